package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/janitor"
)

func status() *cli.Command {
	var f fleet
	return &cli.Command{
		Name: "rollcall status",
		About: `rollcall status shows who leads since when, what holds the sweeping and what to do,
each instance and in what it differs, and what was last evicted. With --http replicas
are asked too: also if Redis does not answer.

  rollcall status --http http://10.0.0.7:8080,http://10.0.0.8:8080`,
		Settings: append([]cli.Setting{f.urls()}, f.table()...),
		Check:    f.check,
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			err := f.ask(f.runStatus)(ctx, stdout, stderr)
			if err == nil || errors.Is(err, cli.ErrNo) || len(f.http) == 0 || ctx.Err() != nil {
				return err
			}
			said := f.replicas(ctx)
			if f.json {
				return cmp.Or(writeJSON(stdout, map[string]any{"replicas": said}), err)
			}
			return cmp.Or(showReplicas(stdout, said, nil), err)
		},
		Notes: exitsNo + " That is: there is no fleet.",
	}
}

func (f *fleet) runStatus(ctx context.Context, r *inspect.Reader, w io.Writer) error {
	s, err := r.Status(ctx)
	if err != nil {
		return err
	}
	said := f.replicas(ctx)
	return f.reply(w, whole(s, said...), s.Empty(), func() error {
		if err := f.showStatus(w, s); err != nil || len(said) == 0 {
			return err
		}
		fmt.Fprintln(w)
		return showReplicas(w, said, &s)
	})
}

func (f *fleet) showStatus(w io.Writer, s inspect.Status) error {
	if s.Empty() {
		return line(w, "there is no fleet: this Redis (%s) has nothing under the prefix %q; look at REDIS_URL and --prefix, "+
			"or start a replica; rollcall doctor says whether this Redis is fit for one", f.base.Redis,
			f.layout().Prefix)
	}
	return showStatus(w, s)
}

func whole(s inspect.Status, said ...answer) any {
	return struct {
		inspect.Status
		Problems []inspect.Finding `json:"problems"`
		Replicas []answer          `json:"replicas,omitempty"`
	}{s, s.Findings(), said}
}

// answer is a replica's, by HTTP.
type answer struct {
	Address  string            `json:"address"`
	Instance string            `json:"instance,omitempty"`
	Version  string            `json:"version,omitempty"`
	Leads    bool              `json:"leads"`
	Ready    bool              `json:"ready"`
	NotReady string            `json:"not_ready,omitempty"`
	Says     []inspect.Finding `json:"says,omitempty"`
	Error    string            `json:"error,omitempty"` // it does not answer
}

// replicas asks all at once.
func (f *fleet) replicas(ctx context.Context) []answer {
	all := make([]answer, len(f.http))
	var asking conc.WaitGroup
	for i, base := range f.http {
		asking.Go(func() {
			s, err := statusOf(ctx, base)
			all[i] = answer{Address: hostOf(base), Instance: s.Instance, Version: s.Version,
				Leads: s.Janitor.Leading, Ready: s.Ready, NotReady: s.NotReady,
				Says: s.Knows().Findings(s.Instance, time.Now(), nil)}
			if err != nil {
				all[i] = answer{Address: hostOf(base), Error: err.Error()}
			}
		})
	}
	asking.Wait()
	return all
}

// showReplicas also names those that are not in Redis; in: what Redis has, or nil.
func showReplicas(w io.Writer, all []answer, in *inspect.Status) error {
	rows := [][]string{{"REPLICA", "INSTANCE", "READY", "SAYS"}}
	for _, p := range all {
		ready, says := "yes", ""
		if !p.Ready {
			ready = "no"
		}
		if p.Leads {
			says = "leads"
		}
		if in != nil && !slices.ContainsFunc(in.Instances, func(i inspect.Instance) bool { return i.ID == p.Instance }) {
			says = join(says, "not in this Redis, or cut off from it")
		}
		for _, f := range p.Says {
			says = join(says, strings.TrimSuffix(strings.TrimPrefix(f.Sentence, p.Instance+": "), "."))
		}
		if p.Error != "" {
			ready, says = "?", "no answer: "+p.Error
		}
		rows = append(rows, []string{p.Address, or(p.Instance), ready, or(says)})
	}
	return cli.Columns(w, rows...)
}

func showStatus(w io.Writer, s inspect.Status) error {
	width := widthOf(w)
	return cmp.Or(showHead(w, s), line(w, ""), showFindings(w, s.Findings()), showInstances(w, s, width),
		showSweeps(w, s, width))
}

func showPartitions(s inspect.Status) (rows [][]string) {
	p := s.Partitions
	text := fmt.Sprintf("%d, the largest is %d with %d entries", p.Count, p.Largest, p.Most)
	rows = append(rows, []string{"partitions", text})
	if len(p.Unread) > 0 {
		rows = append(rows, []string{"not read", inspect.Numbers(p.Unread) + ": their Redis does not answer"})
	}
	for _, l := range p.Leaders {
		text := l.Instance
		if l.Address != "" {
			text += " at " + l.Address
		}
		rows = append(rows, []string{"leader", text + " of " + inspect.Numbers(l.Partitions)})
	}
	return rows
}

func showSweeps(w io.Writer, s inspect.Status, width int) error {
	if len(s.Sweeps) > 0 {
		rows := [][]string{{"SWEEP", "LAST EVICTED", "HOW MANY", "OWNER", "BY"}}
		for _, l := range s.Sweeps {
			rows = append(rows, []string{l.Sweep, ago(l.At, s.Now), strconv.Itoa(l.Count), or(l.Owner), l.Leader})
		}
		fmt.Fprintln(w)
		if err := cli.Columns(w, fitting(rows, width, 3)...); err != nil {
			return err
		}
	}
	if len(s.Passes) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return showPasses(w, s.Passes, s.Now, width)
}

func showPasses(w io.Writer, passes []janitor.Report, now time.Time, width int) error {
	rows := [][]string{{"SWEEP", "LAST PASS", "OUTCOME", "SCANNED", "CONDEMNED", "EVICTED", "KEPT", "TOOK"}}
	for _, p := range passes {
		outcome := join(cmp.Or(string(p.Outcome), "under way"), cmp.Or(p.Reason, p.Error))
		if p.DryRun {
			outcome = join(outcome, "dry run")
		}
		var kept []string
		for _, reason := range slices.Sorted(maps.Keys(p.Spared)) {
			kept = append(kept, fmt.Sprintf("%s %d", reason, p.Spared[reason]))
		}
		rows = append(rows, []string{p.Sweep, ago(p.Started, now), outcome, strconv.Itoa(p.Scanned),
			strconv.Itoa(p.Condemned), strconv.Itoa(p.Evicted), or(strings.Join(kept, ", ")),
			strconv.FormatFloat(p.Seconds, 'f', 3, 64) + "s"})
	}
	return cli.Columns(w, fitting(rows, width, 3)...)
}

func showHead(w io.Writer, s inspect.Status) error {
	stopped := s.Stopped()
	leader := "nobody"
	if l := s.Leader; l != nil {
		leader = l.Instance
		if l.Address != "" {
			leader += " at " + l.Address
		}
		if !l.Since.IsZero() {
			leader += ", since " + ago(l.Since, s.Now)
		}
		if l.Epoch > 0 {
			leader += fmt.Sprintf(", term %d", l.Epoch)
		}
	}
	rows := [][]string{{"leader", leader}}
	if s.Partitions != nil {
		rows = showPartitions(s)
	}
	sweeping := "goes on: what is dead is swept; no hold for " + inspect.Short(s.Unheld())
	if stopped != nil {
		sweeping = "not now: " + stopped.Sentence
	}
	limit := "no limit"
	if s.Redis.MaxMemory > 0 {
		limit = inspect.Megabytes(s.Redis.MaxMemory) + " at most"
	}
	server := fmt.Sprintf("%s, %s, policy %s, %s used, %s", s.Redis.Version,
		cmp.Or(s.Redis.Role, "role unknown"),
		cmp.Or(s.Redis.Policy, "unknown"), inspect.Megabytes(s.Redis.Memory), limit)
	if s.Redis.Version == "" {
		server = "not known: this user may not INFO"
	}
	return cli.Columns(w, append(rows,
		[]string{"sweeping", sweeping},
		[]string{"registry", fmt.Sprintf("%d entries, %d evicted ever", s.Entries, s.Witness.Evicted)},
		[]string{"Redis", server})...)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/orphan"
)

type restoring struct {
	fleet
	ids        []string
	last, list bool
	rule       string
	since      moment
}

func restore() *cli.Command {
	var r restoring
	return &cli.Command{
		Name: "rollcall restore",
		About: `rollcall restore puts back what rules with a bin have taken: what has these ids, or with
--last all that one rule took last: of its newest passes, each at most 15 minutes after the
one before. It says how many earlier ones stay. It overwrites
nothing: a name that is in use again stays as it is, and the others are put back. With
--list it only shows what is in the bins, with the ids. It writes to Redis.

What is still an orphan to its rule goes again after the rule's grace: mend the rule
first, or rollcall pause.`,
		Arguments: "[ID ...]", Mixed: true,
		Settings: append(r.table(),
			cli.Setting{Name: "last", Default: "false", Switch: true, Value: cli.Bool(&r.last),
				Meaning: "undo the last mistake: what one rule took last, in passes that follow one another"},
			cli.Setting{Name: "since", Value: r.since.parse,
				Meaning: "undo all that went since then: a duration, or a time in RFC 3339"},
			cli.Setting{Name: "sweep", Value: cli.Text(&r.rule),
				Meaning: "with --last, --since and --list: only this rule"},
			cli.Setting{Name: "list", Default: "false", Switch: true, Value: cli.Bool(&r.list),
				Meaning: "show what is in the bins, and restore nothing"}),
		Check: func(in *cli.Input) {
			r.check(in)
			r.ids = in.Args
			asked := 0
			for _, yes := range []bool{len(r.ids) > 0, r.last, r.since.given(), r.list} {
				if yes {
					asked++
				}
			}
			if asked != 1 {
				in.Fault("expected one of: ids as --list shows them, --last, --since, --list; got %d of them",
					asked)
			}
			if r.rule != "" && len(r.ids) > 0 {
				in.Fault("--sweep: expected with --last, --since or --list: an id is of one rule")
			}
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			return r.write(ctx, func(c *connect.Clients, keys guard.Layout) error {
				return r.run(ctx, orphan.Bins{Client: c.Data, Layout: keys}, stdout)
			})
		},
		Notes: exitsNo + " That is: not all was put back.",
	}
}

func (r *restoring) run(ctx context.Context, bins orphan.Bins, w io.Writer) error {
	if r.list {
		found, err := bins.List(ctx, r.rule)
		if len(found) == 0 && err != nil {
			return err
		}
		return cmp.Or(r.showBins(w, found), err)
	}
	before := int64(0)
	var err error
	switch {
	case r.last:
		r.ids, before, err = bins.LastMistake(ctx, r.rule)
	case r.since.given():
		r.ids, err = since(ctx, bins, r.rule, r.since.before(time.Now()))
	}
	if err != nil {
		return err
	}
	done, err := bins.Restore(ctx, r.ids...)
	if len(done) > 0 || err == nil {
		err = cmp.Or(r.showRestored(w, done, before), err)
	}
	kept := slices.ContainsFunc(done, func(d orphan.Restored) bool { return d.Fate != orphan.Back })
	if err == nil && (kept || len(done) == 0) {
		err = cli.ErrNo
	}
	return err
}

func since(ctx context.Context, bins orphan.Bins, rule string, at time.Time) (ids []string, err error) {
	met := map[string]bool{}
	for one, err := range bins.All(ctx, rule) {
		if err != nil {
			return nil, err
		}
		if !met[one.ID] && !one.Removed.Before(at) {
			met[one.ID] = true
			ids = append(ids, one.ID)
		}
	}
	return ids, nil
}

func (r *restoring) showBins(w io.Writer, found []orphan.Binned) error {
	if r.json {
		return writeJSON(w, map[string]any{"bins": found})
	}
	if len(found) == 0 {
		return line(w, "the bins are empty")
	}
	rows := [][]string{{"ID", "WAS", "SWEEP", "REMOVED", "UNTIL"}}
	for _, b := range found {
		rows = append(rows, []string{b.ID, was(b), b.Rule, rfc3339(b.Removed), rfc3339(b.Until)})
	}
	return cli.Columns(w, rows...)
}

func (r *restoring) showRestored(w io.Writer, done []orphan.Restored, before int64) error {
	if r.json {
		return writeJSON(w, map[string]any{"restored": done, "earlier": before})
	}
	if len(done) == 0 {
		return line(w, "nothing to restore: no bin has it")
	}
	rows, back := [][]string{{"ID", "WAS", "RESTORED", "REMARKS"}}, 0
	for _, d := range done {
		yes, remark := "no", d.Sentence
		if d.Fate == orphan.Back {
			yes, remark = "yes", ""
			back++
		}
		rows = append(rows, []string{d.ID, or(was(d.Binned)), yes, remark})
	}
	if err := cli.Columns(w, rows...); err != nil {
		return err
	}
	again := ""
	if back > 0 {
		again = "; what is still an orphan to its rule goes again after the rule's grace"
	}
	fmt.Fprintln(w)
	if before > 0 {
		again += fmt.Sprintf("; %d that the rule took more than 15 minutes earlier stay in its bin: --since restores them", before)
	}
	return line(w, "%d restored, %d not%s", back, len(done)-back, again)
}

func was(b orphan.Binned) string {
	if b.Member == "" {
		return b.Key
	}
	return b.Key + " " + b.Member
}

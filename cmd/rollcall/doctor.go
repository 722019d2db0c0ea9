package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

func doctor() *cli.Command {
	var f fleet
	var expect int
	var all bool
	return f.asked(cli.Command{
		Name: "rollcall doctor",
		About: `rollcall doctor looks whether this Redis is fit and the fleet is sound, and says of each
finding what to do, the worst first. It changes nothing, and can be asked before there
is a fleet. Rights are those of the user in REDIS_URL: give the replicas' own.

  rollcall doctor --expect 3`,
		Settings: []cli.Setting{
			{Name: "expect", Default: "0", Value: cli.Number(&expect, 0, 100_000),
				Meaning: "how many replicas are to live: fewer are wrong; 0: not known"},
			{Name: "all", Default: "false", Switch: true, Value: cli.Bool(&all), Meaning: "show also what is well"},
		},
		Notes: exitsNo + " That is: something is wrong.",
	}, func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
		d, err := r.Doctor(ctx, expect)
		if err != nil {
			return err
		}
		return f.reply(w, d, !d.OK, func() error { return showDiagnosis(w, d, all) })
	})
}

var colourOf = map[inspect.Level]string{inspect.OK: green, inspect.Warning: yellow, inspect.Wrong: red}

func showDiagnosis(w io.Writer, d inspect.Diagnosis, all bool) error {
	counts := map[inspect.Level]int{}
	var shown []inspect.Finding
	for _, c := range d.Checks {
		if counts[c.Level]++; all || c.Level != inspect.OK {
			shown = append(shown, c)
		}
	}
	hint := ""
	if !all {
		hint = " (--all shows them)"
	}
	if err := showFindings(w, shown); err != nil {
		return err
	}
	return line(w, "%d wrong, %d warnings, %d ok%s", counts[inspect.Wrong], counts[inspect.Warning], counts[inspect.OK], hint)
}

// showFindings is a line each: level, name, sentence, what to do, and where a replica has more.
func showFindings(w io.Writer, all []inspect.Finding) error {
	for _, f := range all {
		name, _, _ := strings.Cut(f.Name, ":")
		text := f.Text()
		if f.Runbook != "" && f.Level != inspect.OK {
			text += " (/docs/" + f.Runbook + ")"
		}
		_, err := fmt.Fprintf(w, "%s  %-12s  %s\n", paint(w, colourOf[f.Level], fmt.Sprintf("%-7s", f.Level)),
			printable.Text(name), printable.Text(text))
		if err != nil {
			return err
		}
	}
	return nil
}

// memberByMember adds the masters of a Redis Cluster that do not answer.
func memberByMember(ctx context.Context, r *inspect.Reader, err error) error {
	if err == nil || ctx.Err() != nil || inspect.Partial(err) || errors.Is(err, cli.ErrNo) {
		return err
	}
	if away := r.Away(ctx); len(away) > 0 {
		return fmt.Errorf("%s; start it, or promote a replica of it: %w", strings.Join(away, "; "), err)
	}
	return err
}

// advised puts the cause first, with advice for the operator.
func (f *fleet) advised(err error) error {
	switch means, do := inspect.Cause(err); {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case means == "" || errors.Is(err, cli.ErrNo) || errors.As(err, new(*refusal)) || inspect.Partial(err):
		return err
	default:
		return fmt.Errorf("%s (Redis: %s). %s: %w", means, f.base.Redis, do, err)
	}
}

func verify() *cli.Command {
	var f fleet
	return f.asked(cli.Command{
		Name: "rollcall verify",
		About: `rollcall verify reads the whole registry and every index, and counts by owner the entries
whose owner is dead, the entries that the index lacks, and the other way round. It
changes nothing. A fleet goes on meanwhile: a few may be counted that just changed.`,
		Notes: exits,
	}, func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
		v, err := r.Verify(ctx)
		if err != nil && !inspect.Partial(err) {
			return err
		}
		return cmp.Or(f.reply(w, v, false, func() error { return showVerification(w, v) }), err)
	})
}

func showVerification(w io.Writer, v inspect.Verification) error {
	_, err := fmt.Fprintf(w, "%d entries: of dead owners %d, not in their owner's index %d; "+
		"in an index and not that owner's entries %d\n", v.Entries, v.Dead, v.NotIndexed, v.NotEntries)
	if err == nil && v.Unreadable > 0 {
		err = line(w, "entries that nobody can judge, and that stay: %d %s (docs/runbook.md#unreadable)",
			v.Unreadable, strings.Join(v.UnreadableEntries, " "))
	}
	if err != nil || len(v.Owners) == 0 {
		return err
	}
	rows := [][]string{{"OWNER", "ALIVE", "ENTRIES", "NOT INDEXED", "NOT ENTRIES"}}
	for _, o := range v.Owners {
		alive := "no"
		if o.Alive {
			alive = "yes"
		}
		rows = append(rows, []string{or(o.Owner), alive, strconv.Itoa(o.Entries), strconv.Itoa(o.NotIndexed),
			strconv.Itoa(o.NotEntries)})
	}
	fmt.Fprintln(w)
	return cli.Columns(w, rows...)
}

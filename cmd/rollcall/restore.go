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
--last all that went in the last pass that put something into a bin. It overwrites
nothing: a name that is in use again stays as it is, and the others are put back. With
--list it only shows what is in the bins, with the ids. It writes to Redis.

What is still an orphan to its rule goes again after the rule's grace: mend the rule
first, or rollcall pause.`,
		Arguments: "[ID ...]", Mixed: true,
		Settings: append(r.table(),
			cli.Setting{Name: "last", Default: "false", Switch: true, Value: cli.Bool(&r.last),
				Meaning: "undo the last pass that put something into a bin"},
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
	if len(r.ids) == 0 {
		found, err := bins.List(ctx, r.rule)
		if r.list && len(found) > 0 {
			return cmp.Or(r.showBins(w, found), err)
		}
		if err != nil {
			return err
		}
		if r.list {
			return r.showBins(w, found)
		}
		for _, b := range chosen(found, r.last, r.since.before(time.Now())) {
			r.ids = append(r.ids, b.ID)
		}
	}
	done, err := bins.Restore(ctx, r.ids...)
	if len(done) > 0 || err == nil {
		err = cmp.Or(r.showRestored(w, done), err)
	}
	kept := slices.ContainsFunc(done, func(d orphan.Restored) bool { return d.Fate != orphan.Back })
	if err == nil && (kept || len(done) == 0) {
		err = cli.ErrNo
	}
	return err
}

func chosen(found []orphan.Binned, last bool, since time.Time) []orphan.Binned {
	if !last {
		return slices.DeleteFunc(found, func(b orphan.Binned) bool { return b.Removed.Before(since) })
	}
	if len(found) == 0 {
		return nil
	}
	newest := slices.MaxFunc(found, func(a, b orphan.Binned) int { return a.Pass.Compare(b.Pass) })
	return slices.DeleteFunc(found, func(b orphan.Binned) bool {
		return b.Rule != newest.Rule || !b.Pass.Equal(newest.Pass)
	})
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

func (r *restoring) showRestored(w io.Writer, done []orphan.Restored) error {
	if r.json {
		return writeJSON(w, map[string]any{"restored": done})
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
	return line(w, "%d restored, %d not%s", back, len(done)-back, again)
}

func was(b orphan.Binned) string {
	if b.Member == "" {
		return b.Key
	}
	return b.Key + " " + b.Member
}

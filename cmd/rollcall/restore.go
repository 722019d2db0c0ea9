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
	"github.com/rollcall-redis/rollcall/internal/guard"
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
first, or rollcall pause.

  rollcall restore --last --sweep carts --prefix '{cleanup}:'`,
		Arguments: "[ID ...]", Mixed: true,
		Settings: append([]cli.Setting{
			{Name: "last", Default: "false", Switch: true, Value: cli.Bool(&r.last),
				Meaning: "undo the last mistake: what one rule took last, in passes that follow one another"},
			{Name: "since", Value: r.since.parse,
				Meaning: "undo all that went since then: a duration, or a time in RFC 3339"},
			{Name: "sweep", Value: cli.Text(&r.rule),
				Meaning: "with --last, --since and --list: only this rule"},
			{Name: "list", Default: "false", Switch: true, Value: cli.Bool(&r.list),
				Meaning: "show what is in the bins, and restore nothing"}}, r.table()...),
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
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			return r.write(ctx, stderr, func(c *connect.Clients, keys guard.Layout) error {
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
	before := 0
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
	return r.restore(ctx, bins, w, before)
}

func since(ctx context.Context, bins orphan.Bins, rule string, at time.Time) (ids []string, err error) {
	for one, err := range bins.All(ctx, rule) {
		if err != nil {
			return nil, err
		}
		if !one.Removed.Before(at) {
			ids = append(ids, one.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
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

// restoreOf is how many are restored and shown at a time: a mistake can be millions.
const restoreOf = 500

func (r *restoring) restore(ctx context.Context, bins orphan.Bins, w io.Writer, before int) error {
	all, back, kept := []orphan.Restored{}, 0, 0 // all are for JSON, which is one object
	var err error
	for some := range slices.Chunk(r.ids, restoreOf) {
		done, failed := bins.Restore(ctx, some...)
		for _, d := range done {
			if d.Fate == orphan.Back {
				back++
			} else {
				kept++
			}
		}
		if r.json {
			all = append(all, done...)
		} else if len(done) > 0 {
			failed = cmp.Or(showRestored(w, done), failed)
		}
		if err = cmp.Or(err, failed); len(done) < len(some) {
			break
		}
	}
	switch {
	case r.json && (len(all) > 0 || err == nil):
		err = cmp.Or(writeJSON(w, map[string]any{"restored": all, "earlier": before}), err)
	case !r.json && back+kept > 0:
		err = cmp.Or(showEnd(w, back, kept, before), err)
	case !r.json && err == nil:
		err = line(w, "nothing to restore: no bin has it")
	}
	if err == nil && (kept > 0 || back == 0) {
		err = cli.ErrNo
	}
	return err
}

func showRestored(w io.Writer, done []orphan.Restored) error {
	rows := [][]string{{"ID", "WAS", "RESTORED", "REMARKS"}}
	for _, d := range done {
		yes, remark := "no", d.Sentence
		if d.Fate == orphan.Back {
			yes, remark = "yes", ""
		}
		rows = append(rows, []string{d.ID, or(was(d.Binned)), yes, remark})
	}
	return cli.Columns(w, rows...)
}

func showEnd(w io.Writer, back, kept, before int) error {
	again := ""
	if back > 0 {
		again = "; what is still an orphan to its rule goes again after the rule's grace"
	}
	if before > 0 {
		again += fmt.Sprintf("; %d that the rule took more than 15 minutes earlier stay in its bin: --since restores them", before)
	}
	fmt.Fprintln(w)
	return line(w, "%d restored, %d not%s", back, kept, again)
}

func was(b orphan.Binned) string {
	if b.Member == "" {
		return b.Key
	}
	return b.Key + " " + b.Member
}

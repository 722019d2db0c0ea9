package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

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

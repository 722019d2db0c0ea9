package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

func log() *cli.Command {
	var (
		f      fleet
		filter inspect.Filter
		since  moment
		follow bool
	)
	rows := []cli.Setting{
		{Name: "owner", Value: cli.Text(&filter.Owner),
			Meaning: "only what this instance left"},
		{Name: "sweep", Value: cli.Text(&filter.Sweep),
			Meaning: "only this sweep, such as owners or registry"},
		{Name: "limit", Default: "100", Value: cli.Number(&filter.Limit, 0, 1_000_000),
			Meaning: "the newest so many records; 0: all"},
		{Name: "follow", Default: "false", Switch: true, Value: cli.Bool(&follow),
			Meaning: "go on with what is evicted from now on, until interrupted"},
		{Name: "since", Value: since.parse,
			Meaning: "only what was evicted since then: a duration, or a time in RFC 3339"},
	}
	return f.asked(cli.Command{
		Name: "rollcall log",
		About: `rollcall log shows the eviction log, the oldest record first: when which leader evicted how
many entries of which dead owner. In JSON there is one record a line, with what went.

  rollcall log --owner ingest-7 --since 1h`,
		Settings: rows,
		Notes:    exits,
	}, func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
		filter.Since = since.before(time.Now())
		if !follow {
			records, err := r.Log(ctx, filter)
			if err != nil && !inspect.Partial(err) {
				return err
			}
			return cmp.Or(f.showLog(w, records, true), err)
		}
		return f.follow(ctx, r, w, filter)
	})
}

const followEvery = time.Second

// follow shows the present records, and then those that are added. It names on stderr the servers
// of a Redis Cluster that do not answer, and goes on with the rest.
func (f *fleet) follow(ctx context.Context, r *inspect.Reader, w io.Writer, filter inspect.Filter) error {
	records, end, err := r.LogAfter(ctx, "", filter)
	away := ""
	for head := true; err == nil || inspect.Partial(err); head = false {
		now := "all of Redis answers"
		if err != nil {
			now = err.Error()
		}
		if now != away && (err != nil || away != "") {
			fmt.Fprintln(f.stderr, "rollcall log:", printable.Text(now))
			away = now
		}
		if err = f.showLog(w, records, head); err != nil {
			break
		}
		if !wait.For(ctx, followEvery) {
			return nil
		}
		records, end, err = r.LogAfter(ctx, end, filter)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *fleet) showLog(w io.Writer, records []inspect.Record, head bool) error {
	if !f.json {
		return showRecords(w, records, head)
	}
	return writeLines(w, records)
}

const eventsSince = "24h"

func events() *cli.Command {
	var f fleet
	var since moment
	return f.asked(cli.Command{
		Name: "rollcall events",
		About: `rollcall events shows what happened to the fleet, the oldest first: which replica led when,
who fell silent or said goodbye, how many entries went, what held the sweeping for how
long, and who paused it. In JSON there is one event a line.

  rollcall events --since 1h`,
		Settings: []cli.Setting{{
			Name: "since", Default: eventsSince, Value: since.parse,
			Meaning: "only what happened since then: a duration, or a time in RFC 3339; Redis keeps the last " +
				"thousand events, and evictions as long as the eviction log does",
		}},
		Notes: exits,
	}, func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
		found, err := r.Events(ctx, since.before(time.Now()))
		if found == nil && err != nil {
			return err
		}
		if f.json {
			return cmp.Or(writeLines(w, found), err)
		}
		return cmp.Or(showEvents(w, found), err)
	})
}

func showEvents(w io.Writer, found []inspect.Event) error {
	if len(found) == 0 {
		return line(w, "nothing happened that Redis still knows")
	}
	rows := [][]string{{"AT", "LASTED", "WHAT"}}
	for _, e := range found {
		rows = append(rows, []string{rfc3339(e.At), or(e.Lasted), e.Sentence})
	}
	return cli.Columns(w, rows...)
}

func list() *cli.Command {
	var f fleet
	var instance string
	return f.asked(cli.Command{
		Name: "rollcall list",
		About: `rollcall list shows which devices an instance holds, an id a line, in no order. It reads the
whole registry.

  rollcall list ingest-1 | wc -l`,
		Arguments: "INSTANCE", Mixed: true,
		Check: one(&instance, "the name of an instance"),
		Notes: exitsNo + " That is: no entry names it.",
	}, func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
		none := true
		for after := ""; ; {
			held, err := r.List(ctx, instance, after, 1000)
			if err != nil {
				return err
			}
			none = none && len(held.IDs) == 0
			for _, id := range held.IDs {
				if f.json {
					err = writeLines(w, []map[string]string{{"id": id}})
				} else {
					err = line(w, "%s", id)
				}
				if err != nil {
					return err
				}
			}
			if after = held.Next; after == "" {
				break
			}
		}
		if none {
			return cli.ErrNo
		}
		return nil
	})
}

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

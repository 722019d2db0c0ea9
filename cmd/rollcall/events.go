package main

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

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

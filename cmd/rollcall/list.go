package main

import (
	"context"
	"io"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

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

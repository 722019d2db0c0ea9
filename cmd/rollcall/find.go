package main

import (
	"context"
	"io"
	"strconv"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
)

func find() *cli.Command {
	var f fleet
	var imei string
	return f.asked(cli.Command{
		Name: "rollcall find",
		About: `rollcall find shows which instance holds a device, whether that instance lives, since
when it runs, and what was last wrong with what the device sent.

  rollcall find 356307040000076`,
		Arguments: "IMEI", Mixed: true,
		Check: one(&imei, "an IMEI"),
		Notes: exitsNo + " That is: nobody holds it.",
	}, func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
		s, err := r.Status(ctx)
		if err != nil {
			return err
		}
		found, err := r.Find(ctx, s, imei)
		if err != nil {
			return err
		}
		return f.reply(w, found, found.Owner == "", func() error {
			err := line(w, "%s", found.Sentence)
			if err == nil && found.Fault != nil {
				err = showFault(w, *found.Fault)
			}
			return err
		})
	})
}

func showFault(w io.Writer, f inspect.Fault) error {
	err := line(w, "last fault: %s at %s from %s: %s", f.Kind, rfc3339(f.At), f.Peer, f.Error)
	if err != nil {
		return err
	}
	return line(w, "it sent: %s", f.Bytes)
}

func why() *cli.Command {
	var f fleet
	var id string
	return f.asked(cli.Command{
		Name: "rollcall why",
		About: `rollcall why says in a sentence why the entry of a device, or a key that a rule sweeps, is
gone or still here, and shows the records of the eviction log that name it.

  rollcall why cart:bob --prefix '{cleanup}:'`,
		Arguments: "IMEI|KEY", Mixed: true,
		Check: one(&id, "an IMEI or a key"),
		Notes: exitsNo + " That is: nobody knows.",
	}, func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
		s, err := r.Status(ctx)
		if err != nil {
			return err
		}
		answer, err := r.Why(ctx, s, id)
		if err != nil {
			return err
		}
		return f.reply(w, answer, answer.Verdict == inspect.Unknown, func() error { return showWhy(w, answer) })
	})
}

func showWhy(w io.Writer, a inspect.Why) error {
	if err := line(w, "%s", a.Sentence); err != nil {
		return err
	}
	for _, u := range a.Unread {
		text := "not read: " + u.Sentence()
		if u.Fleet {
			text += "; whether sweeping is paused is unknown"
		}
		if err := line(w, "%s", text); err != nil {
			return err
		}
	}
	if len(a.Records) == 0 {
		return nil
	}
	if err := line(w, ""); err != nil {
		return err
	}
	return showRecords(w, a.Records, true)
}

func showRecords(w io.Writer, records []inspect.Record, head bool) error {
	var rows [][]string
	if head {
		rows = append(rows, []string{"AT", "TERM", "LEADER", "SWEEP", "OWNER", "EVICTED", "KEPT"})
	}
	for _, r := range records {
		at, term := rfc3339(r.At), strconv.FormatUint(r.Epoch, 10)
		if r.Term != "" {
			rows = append(rows, []string{at, term, r.Leader, "(leads)", "-", "-", "-"})
			continue
		}
		rows = append(rows, []string{at, term, r.Leader, r.Sweep, or(r.Owner), strconv.Itoa(r.Count),
			strconv.Itoa(r.Reowned)})
	}
	return cli.Columns(w, rows...)
}

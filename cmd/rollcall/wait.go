package main

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	waitEvery = 500 * time.Millisecond
	oneCall   = 10 * time.Second
)

func waitFor() *cli.Command {
	var (
		f                 fleet
		leader, converged bool
		gone              string
		timeout           time.Duration
		atLeast           int
	)
	return &cli.Command{
		Name: "rollcall wait",
		About: `rollcall wait ends when the fleet is as asked for, or after --timeout. It is for scripts
and deployments. Give one of --leader, --converged and --gone.

  rollcall wait --converged --at-least 90000 --timeout 5m`,
		Settings: append([]cli.Setting{
			{Name: "leader", Default: "false", Switch: true, Value: cli.Bool(&leader),
				Meaning: "until a replica leads, and has begun its term"},
			{Name: "converged", Default: "false", Switch: true, Value: cli.Bool(&converged),
				Meaning: "until a replica leads, nothing stops sweeping, each entry's owner lives, and each " +
					"living instance has beaten since, and no entry is missing: reads the whole registry each time"},
			{Name: "at-least", Default: "0", Value: cli.Number(&atLeast, 0, 1_000_000_000),
				Meaning: "with --converged: until the registry has so many entries, too: a fleet that lost " +
					"most of them has converged"},
			{Name: "gone", Value: cli.Text(&gone),
				Meaning: "until nothing is left of this instance: no heartbeat, no entry"},
			{Name: "timeout", Default: "1m",
				Value:   cli.Duration(&timeout, time.Second, 24*time.Hour),
				Meaning: "how long at most"}}, f.common()...),
		Check: func(in *cli.Input) {
			f.check(in)
			asked := 0
			for _, yes := range []bool{leader, converged, gone != ""} {
				if yes {
					asked++
				}
			}
			if asked != 1 {
				in.Fault("expected one of --leader, --converged and --gone ID, got %d", asked)
			}
			if atLeast > 0 && !converged {
				in.Fault("--at-least: expected --converged beside it")
			}
			f.base.Redis.Within = min(timeout, oneCall)
		},
		Run: f.ask(func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
			look := inspect.Condition(r.Led)
			switch {
			case converged:
				look = r.Converging(atLeast)
			case gone != "":
				look = func(ctx context.Context) (bool, string, error) { return r.Gone(ctx, gone) }
			}
			start := time.Now()
			bounded, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			done, sentence, err := await(bounded, look)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				return err
			}
			took := time.Since(start).Round(time.Millisecond).String()
			return f.reply(w, map[string]any{"done": done, "sentence": sentence, "waited": took}, !done,
				func() error { return line(w, "%s", sentence) })
		}),
		Notes: exitsNo + " That is: not in time.",
	}
}

// await returns the result of the last look that ended in time. A short outage of Redis does not
// end it.
func await(
	ctx context.Context, look func(context.Context) (bool, string, error),
) (done bool, sentence string, err error) {
	end, bounded := ctx.Deadline() // a call can fail because of the deadline before ctx has ended
	for first := true; ; first = false {
		d, s, e := look(ctx)
		late := ctx.Err() != nil || bounded && !time.Now().Before(end)
		if first || !late {
			done, sentence, err = d, s, e
		}
		if done || !wait.For(ctx, waitEvery) {
			return done, sentence, err
		}
	}
}

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

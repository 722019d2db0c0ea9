package main

import (
	"context"
	"fmt"
	"io"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

func doctor() *cli.Command {
	var f fleet
	var expect int
	return &cli.Command{
		Name: "rollcall doctor",
		About: `rollcall doctor looks whether this Redis is fit and the fleet is sound, and says of each
finding what to do. It changes nothing, and can be asked before there is a fleet.
Rights are those of the user in REDIS_URL: give the replicas' own.`,
		Settings: append(f.table(), cli.Setting{
			Name: "expect", Default: "0", Value: cli.Number(&expect, 0, 100_000),
			Meaning: "how many replicas are to live: fewer are wrong; 0: not known",
		}),
		Check: f.check,
		Run: f.ask(func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
			d, err := r.DoctorOf(ctx, expect)
			if err != nil {
				return err
			}
			if f.json {
				err = writeJSON(w, d)
			} else {
				err = showDiagnosis(w, d)
			}
			if err == nil && !d.OK {
				err = cli.ErrNo
			}
			return err
		}),
		Notes: exitsNo + " That is: something is wrong.",
	}
}

var colourOf = map[inspect.Level]string{inspect.OK: green, inspect.Warning: yellow, inspect.Wrong: red}

func showDiagnosis(w io.Writer, d inspect.Diagnosis) error {
	counts := map[inspect.Level]int{}
	for _, c := range d.Checks {
		counts[c.Level]++
		level := paint(w, colourOf[c.Level], fmt.Sprintf("%-7s", c.Level))
		_, err := fmt.Fprintf(w, "%s  %-18s  %s\n", level, printable.Text(c.Name), printable.Text(c.Sentence))
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%d wrong, %d warnings, %d ok\n", counts[inspect.Wrong], counts[inspect.Warning],
		counts[inspect.OK])
	return err
}

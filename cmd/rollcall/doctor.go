package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

func doctor() *cli.Command {
	var f fleet
	var expect int
	var all bool
	return f.asked(cli.Command{
		Name: "rollcall doctor",
		About: `rollcall doctor looks whether this Redis is fit and the fleet is sound, and says of each
finding what to do, the worst first. It changes nothing, and can be asked before there
is a fleet. Rights are those of the user in REDIS_URL: give the replicas' own.

  rollcall doctor --expect 3`,
		Settings: []cli.Setting{
			{Name: "expect", Default: "0", Value: cli.Number(&expect, 0, 100_000),
				Meaning: "how many replicas are to live: fewer are wrong; 0: not known"},
			{Name: "all", Default: "false", Switch: true, Value: cli.Bool(&all), Meaning: "show also what is well"},
		},
		Notes: exitsNo + " That is: something is wrong.",
	}, func(ctx context.Context, r *inspect.Reader, w io.Writer) error {
		d, err := r.Doctor(ctx, expect)
		if err != nil {
			return err
		}
		return f.reply(w, d, !d.OK, func() error { return showDiagnosis(w, d, all) })
	})
}

var colourOf = map[inspect.Level]string{inspect.OK: green, inspect.Warning: yellow, inspect.Wrong: red}

func showDiagnosis(w io.Writer, d inspect.Diagnosis, all bool) error {
	counts := map[inspect.Level]int{}
	var shown []inspect.Finding
	for _, c := range d.Checks {
		if counts[c.Level]++; all || c.Level != inspect.OK {
			shown = append(shown, c)
		}
	}
	hint := ""
	if !all {
		hint = " (--all shows them)"
	}
	if err := showFindings(w, shown); err != nil {
		return err
	}
	return line(w, "%d wrong, %d warnings, %d ok%s", counts[inspect.Wrong], counts[inspect.Warning], counts[inspect.OK], hint)
}

// showFindings is a line each: level, name, sentence, what to do, and where a replica has more.
func showFindings(w io.Writer, all []inspect.Finding) error {
	for _, f := range all {
		name, _, _ := strings.Cut(f.Name, ":")
		text := f.Text()
		if f.Runbook != "" && f.Level != inspect.OK {
			text += " (/docs/" + f.Runbook + ")"
		}
		_, err := fmt.Fprintf(w, "%s  %-12s  %s\n", paint(w, colourOf[f.Level], fmt.Sprintf("%-7s", f.Level)),
			printable.Text(name), printable.Text(text))
		if err != nil {
			return err
		}
	}
	return nil
}

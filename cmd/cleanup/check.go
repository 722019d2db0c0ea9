package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func check() *cli.Command {
	var (
		s      settings
		schema bool
	)
	rows := s.table()
	rows[0].Required = false // REDIS_URL: --schema does not need it
	return &cli.Command{
		Name: "cleanup check",
		About: `cleanup check looks whether the rules fit the keys that are there: of which types
they are, some of them, whether the places that rules rely on are there, what one
look finds, and how many candidates each sign keeps. It writes nothing. It needs REDIS_URL, and takes all settings of
cleanup too.`,
		Settings: []cli.Setting{
			{Name: "schema", Default: "false", Switch: true, Value: cli.Bool(&schema),
				Meaning: "print the JSON Schema of the rules, for an editor, and do nothing else"},
		},
		Inherited: rows,
		Prefixes:  prefixes,
		Check: func(in *cli.Input) {
			if schema {
				return
			}
			if !in.Given("REDIS_URL") {
				in.Fault("REDIS_URL: expected %v; it is not set", s.Redis.Parse(""))
			}
			checkOnce(in, &s, "")
		},
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			if schema {
				_, err := stdout.Write(rules.Schema())
				return err
			}
			return once(ctx, &s, "", func(set *orphan.Set) error {
				plans, err := set.Plan(ctx, 0)
				if err != nil {
					return err
				}
				wrong, doubtful, err := showChecks(stdout, plans, rules.Warnings(s.rules))
				switch {
				case err != nil:
					return err
				case wrong > 0:
					fmt.Fprintf(stderr, "cleanup check: %d wrong\n", wrong)
					return cli.ErrSaid
				case doubtful > 0:
					return cli.ErrNo
				}
				return nil
			})
		},
		Notes: `Exit status: 0 if the rules fit, whatever notes there are; 1 if something is wrong or
the look failed; 2 on wrong usage or rules; 3 if nothing is wrong, and something that could delete
the living needs a look: a caution.`,
	}
}

// showChecks returns how many findings are wrong and doubtful.
func showChecks(w io.Writer, plans []orphan.Plan, warnings []string) (wrong, doubtful int, err error) {
	rows := [][]string{{"RULE", "CANDIDATES", "TYPES", "ONE LOOK", "EXAMPLES"}}
	var bad, cautions, notes, signs, places [][]string
	for _, p := range plans {
		look := counts(p.Verdicts)
		if p.Held != "" {
			look = "held: " + p.Held
		}
		rows = append(rows, []string{
			p.Rule, strconv.Itoa(p.Scanned - p.Verdicts["foreign"]), strings.Join(slices.Sorted(maps.Keys(p.Types)), ", "), look,
			strings.Join(p.Samples, ", "),
		})
		for _, s := range p.Signs {
			signs = append(signs, []string{"keeps", p.Rule, fmt.Sprintf("%d: %s", s.Keeps, s.Sign)})
		}
		for _, key := range slices.Sorted(maps.Keys(p.Places)) {
			places = append(places, []string{"place", p.Rule, key + ": " + p.Places[key]})
		}
		add := func(list *[][]string, kind string, texts []string) {
			for _, text := range texts {
				*list = append(*list, []string{kind, p.Rule, text})
			}
		}
		add(&bad, "wrong", p.Wrong)
		add(&cautions, "caution", p.Cautions)
		add(&notes, "note", p.Notes)
	}
	for _, text := range warnings {
		cautions = append(cautions, []string{"caution", "", text})
	}
	if err := cli.Columns(w, rows...); err != nil {
		return 0, 0, err
	}
	return len(bad), len(cautions), cli.Columns(w, slices.Concat(signs, places, notes, cautions, bad)...)
}

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

// samples of each rule.
const samples = 3

// many is the least number of candidates for which a common result means something.
const many = 5

// most is the least number of candidates at which the worker holds a rule if more than half are
// condemned.
const most = 20

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
they are, some of them, whether the places that rules rely on are there, and what
one look finds. It writes nothing. It needs REDIS_URL, and takes all settings of
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
				surveys, err := set.Survey(ctx, samples)
				if err != nil {
					return err
				}
				plans, err := set.Plan(ctx, 0)
				if err != nil {
					return err
				}
				wrong, doubtful, err := showChecks(
					stdout, surveys, plans, rules.Warnings(s.rules), rules.Notes(s.rules))
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
the living needs a look: a caution, or a candidate that is odd.`,
	}
}

// showChecks returns how many findings are wrong and doubtful. A rule's survey and plan have the
// same index.
func showChecks(
	w io.Writer, surveys []orphan.Survey, plans []orphan.Plan, warnings, remarks []string,
) (wrong, doubtful int, err error) {
	rows := [][]string{{"RULE", "CANDIDATES", "TYPES", "ONE LOOK", "EXAMPLES"}}
	var odd, bad, cautions, notes, places [][]string
	for i, v := range surveys {
		p, total := plans[i], 0
		for _, n := range v.Candidates {
			total += n
		}
		look := counts(p.Verdicts)
		if p.Held != "" {
			look = "held: " + p.Held
		}
		rows = append(rows, []string{
			v.Rule, strconv.Itoa(total), strings.Join(slices.Sorted(maps.Keys(v.Candidates)), ", "), look,
			strings.Join(v.Samples, ", "),
		})
		for _, key := range slices.Sorted(maps.Keys(v.Places)) {
			places = append(places, []string{"place", v.Rule, key + ": " + v.Places[key]})
		}
		for _, text := range v.Wrong {
			bad = append(bad, []string{"wrong", v.Rule, text})
		}
		for _, one := range v.Odd {
			odd = append(odd, []string{"odd", v.Rule, one.Name + ": " + one.Why})
		}
		for _, text := range v.Cautions {
			cautions = append(cautions, []string{"caution", v.Rule, text})
		}
		switch dead := p.Verdicts["condemned"]; {
		case dead == p.Scanned && dead >= many:
			cautions = append(cautions,
				[]string{"caution", v.Rule, "all candidates are condemned: are the signs right?"})
		case 2*dead > p.Scanned && p.Scanned >= most:
			cautions = append(cautions, []string{"caution", v.Rule, fmt.Sprintf(
				"%d of %d candidates are condemned: the worker holds the rule once (mass_failure), and then deletes them",
				dead, p.Scanned)})
		case p.Scanned > 0 && p.Verdicts["unknown"] == p.Scanned:
			notes = append(notes, []string{"note", v.Rule,
				"no sign of life can be told of any candidate, so all are kept: see cleanup why, with one of them"})
		}
		for _, text := range v.Notes {
			notes = append(notes, []string{"note", v.Rule, text})
		}
		switch {
		case p.Held != "" && total == 0 && p.Held != "source":
			notes = append(notes, []string{"note", v.Rule, "held: " + p.Held + ": " + p.Detail})
		case p.Held != "":
			bad = append(bad, []string{"wrong", v.Rule, "held: " + p.Held + ": " + p.Detail})
		case p.Scanned > 0 && p.Verdicts["unreadable"] == p.Scanned:
			text := "no candidate can be read: see cleanup why, with one of them"
			if p.Scanned < many {
				notes = append(notes, []string{"note", v.Rule, text})
			} else {
				bad = append(bad, []string{"wrong", v.Rule, text})
			}
		}
	}
	for _, text := range warnings {
		cautions = append(cautions, []string{"caution", "", text})
	}
	for _, text := range remarks {
		notes = append(notes, []string{"note", "", text})
	}
	if err := cli.Columns(w, rows...); err != nil {
		return 0, 0, err
	}
	return len(bad), len(cautions) + len(odd), cli.Columns(w, slices.Concat(odd, places, notes, cautions, bad)...)
}

// Cleanup deletes orphaned keys of any application from Redis, by rules. Without a command it
// serves, on the Redis at REDIS_URL; "cleanup -h" lists every setting. "cleanup check" and "cleanup
// plan" report what the rules would do, and write nothing.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func main() { cli.Main(cleanup()) }

func cleanup() *cli.Command {
	s := new(settings)
	c := &cli.Command{
		Name: "cleanup",
		About: `cleanup deletes keys that point at nothing from an application's Redis, by rules.
It runs beside the application, in any number of replicas: one leads, and works
through every rule each CLEANUP_INTERVAL. Without a command it serves, and needs
REDIS_URL; with the built-in rules MONGODB_URI too. A rule deletes only if it says
"delete: true". What cannot be told is kept.

  cleanup check      looks whether the rules fit the keys that are there
  cleanup plan       shows what would go, and why; writes nothing
  cleanup why KEY    shows what each rule finds of one key
  cleanup rules      lists the packs of rules; cleanup rules NAME prints one`,
		Settings: s.table(),
		Prefixes: prefixes,
		Check:    s.check,
		Notes: `SIGTERM or SIGINT stops it gracefully; a second one at once. Exit status: 0
after a graceful stop, 1 on a failure at run time, 2 on wrong usage, settings or
rules.`,
		Commands: []*cli.Command{check(), plan(), why(), listRules()},
	}
	c.Run = program.Serving(c, &s.Base, func(ctx context.Context, log *slog.Logger) error {
		return serve(ctx, s, log)
	})
	return c
}

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

func plan() *cli.Command {
	var (
		s      settings
		rule   string
		limit  int
		asJSON bool
	)
	return &cli.Command{
		Name: "cleanup plan",
		About: `cleanup plan looks once at every candidate, and shows what is condemned, and why.
It writes nothing, and needs no lease. A worker deletes what is condemned at a
second look, one grace later. It takes all settings of cleanup too.`,
		Settings: []cli.Setting{
			named(&rule),
			{Name: "limit", Default: "20", Value: cli.Number(&limit, 0, 1_000_000),
				Meaning: "most condemned candidates that are shown of a rule"},
			{Name: "json", Default: "false", Switch: true, Value: cli.Bool(&asJSON),
				Meaning: "print it as JSON: an array, one object a rule"},
		},
		Inherited: s.table(),
		Prefixes:  prefixes,
		Check:     func(in *cli.Input) { checkOnce(in, &s, rule) },
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			return once(ctx, &s, rule, func(set *orphan.Set) error {
				plans, err := set.Plan(ctx, limit)
				if err != nil {
					return err
				}
				warnings := rules.Warnings(s.rules)
				if asJSON {
					for _, text := range warnings {
						fmt.Fprintln(stderr, "cleanup plan: doubtful:", printable.Text(text))
					}
					text := json.NewEncoder(printable.Writer(stdout))
					text.SetIndent("", "  ")
					text.SetEscapeHTML(false)
					return text.Encode(plans)
				}
				return showPlans(stdout, plans, warnings...)
			})
		},
		Notes: "Exit status: 0 whatever is found, 1 if a look failed, 2 on wrong usage or rules.",
	}
}

func showPlans(w io.Writer, plans []orphan.Plan, warnings ...string) error {
	rows := [][]string{{"RULE", "CONDEMNED", "SINCE", "WHY"}}
	sums, scanned := map[string]int{}, 0
	var lines []string
	for _, p := range plans {
		for _, f := range p.Findings {
			rows = append(rows, []string{p.Rule, f.Name, moment(f.Since), strings.Join(f.Why, "; ")})
		}
		if p.Held != "" {
			lines = append(lines, fmt.Sprintf("%s is held, nothing of it goes: %s: %s", p.Rule, p.Held, p.Detail))
		}
		if p.Coverage.Of > 0 && !p.Coverage.Complete {
			lines = append(lines, fmt.Sprintf("%s: %d of %d servers were read to the end: nothing of it goes",
				p.Rule, p.Coverage.Masters, p.Coverage.Of))
		}
		if more := p.Verdicts["condemned"] - len(p.Findings); more > 0 {
			lines = append(lines, fmt.Sprintf("%s: %d more are condemned; --limit shows more", p.Rule, more))
		}
		for verdict, n := range p.Verdicts {
			sums[verdict] += n
		}
		scanned += p.Scanned
	}
	if err := cli.Columns(w, rows...); err != nil {
		return err
	}
	for _, text := range warnings {
		lines = append(lines, "doubtful: "+text)
	}
	lines = append(lines, fmt.Sprintf("%d looked at: %s", scanned, cmp.Or(counts(sums), "nothing")))
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, printable.Text(line)); err != nil {
			return err
		}
	}
	return nil
}

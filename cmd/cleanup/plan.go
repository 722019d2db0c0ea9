package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

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

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// once calls do with the settings' rules or only the named one. It involves no janitor, so nothing
// is deleted.
func once(ctx context.Context, s *settings, rule string, do func(*orphan.Set) error) (err error) {
	clients, err := connect.Open(ctx, &s.Redis, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = clients.Close() }() // nothing is left to send
	chosen := s.rules
	if rule != "" {
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(r rules.Rule) bool { return r.Name != rule })
	}
	from, err := openSource(s)
	if err != nil {
		return err
	}
	defer func() { _ = from.close(ctx) }()
	set, err := orphan.New(orphan.Config{
		Rules: chosen, Client: clients.Data, Source: from.orNil(), Layout: s.Layout(),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return do(set)
}

func named(rule *string) cli.Setting {
	return cli.Setting{Name: "rule", Value: cli.Text(rule), Meaning: "only the rule of this name"}
}

func checkOnce(in *cli.Input, s *settings, rule string) {
	s.check(in)
	if s.Redis.Embedded() {
		in.Fault("REDIS_URL: expected the application's Redis; the one inside a worker is not this process'")
	}
	var names []string
	for _, r := range s.rules {
		names = append(names, r.Name)
	}
	if rule != "" && len(names) > 0 && !slices.Contains(names, rule) {
		in.Fault("--rule: expected one of %s, got %q", strings.Join(names, ", "), rule)
	}
}

// counts formats like "alive 3, young 1".
func counts(of map[string]int) string {
	var all []string
	for name, n := range of {
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func why() *cli.Command {
	var (
		s   settings
		key string
	)
	return &cli.Command{
		Name: "cleanup why",
		About: `cleanup why KEY looks at one key now, and shows what each rule that is about it
finds, sign by sign. KEY MEMBER looks at one member of a sorted set, set or hash.
It writes nothing, and takes all settings of cleanup too.`,
		Arguments: "KEY [MEMBER]",
		Inherited: s.table(),
		Prefixes:  prefixes,
		Check: func(in *cli.Input) {
			checkOnce(in, &s, "")
			if len(in.Args) < 1 || len(in.Args) > 2 {
				in.Fault("expected a key, or a key and a member")
			}
			key = strings.Join(in.Args, " ")
		},
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			return once(ctx, &s, "", func(set *orphan.Set) error {
				found, err := set.Explain(ctx, key)
				if err != nil {
					return err
				}
				if len(found) == 0 {
					fmt.Fprintf(stderr, "no rule is about %s\n", printable.Text(key))
					return cli.ErrSaid
				}
				return showWhy(stdout, found)
			})
		},
		Notes: "Exit status: 0, 1 if no rule is about it or the look failed, 2 on wrong usage.",
	}
}

func showWhy(w io.Writer, found []orphan.Finding) error {
	for _, f := range found {
		rows := [][]string{{f.Rule + ":", f.Verdict}, {"  of", f.Name}}
		for _, sign := range f.Why {
			rows = append(rows, []string{"  why", sign})
		}
		if !f.Since.IsZero() {
			rows = append(rows, []string{"  since", moment(f.Since)})
		}
		if err := cli.Columns(w, rows...); err != nil {
			return err
		}
	}
	return nil
}

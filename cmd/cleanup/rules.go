package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func listRules() *cli.Command {
	var name string
	return &cli.Command{
		Name: "cleanup rules",
		About: `cleanup rules lists the packs: rules that are ready for the keys of a library.
RULES=pack:NAME runs one. With the name of a pack it prints its YAML, to copy and
change.`,
		Arguments: "[NAME]",
		Check: func(in *cli.Input) {
			if len(in.Args) > 1 {
				in.Fault("expected the name of one pack, or none")
				return
			}
			name = strings.Join(in.Args, "")
			if name != "" && !slices.Contains(rules.Packs(), name) {
				in.Fault("no pack %q; there are %s", name, strings.Join(rules.Packs(), ", "))
			}
		},
		Run: func(_ context.Context, stdout, _ io.Writer) error {
			if name != "" {
				text, _ := rules.Pack(name)
				_, err := stdout.Write(text)
				return err
			}
			rows := [][]string{}
			for _, name := range rules.Packs() {
				text, _ := rules.Pack(name)
				about, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# Pack "+name+": "), "\n")
				rows = append(rows, []string{name, about})
			}
			if err := cli.Columns(stdout, rows...); err != nil {
				return err
			}
			_, err := fmt.Fprintln(stdout, "\nRULES=pack:NAME runs one, cleanup rules NAME prints it.")
			return err
		},
		Notes: "Exit status: 0 if it was printed, 2 on wrong usage.",
	}
}

// Rejudge judges runs of the chaos suite again, from the folders that they left:
//
//	go run ./chaos/rejudge DIR...
//
// It prints what the checks C1 to C8 find, each with its byte offset in the history, and a
// summary. The exit status is 0 if they find nothing, 1 if they find something or a folder cannot
// be read, and 2 on wrong usage.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(dirs []string, out, errs io.Writer) (status int) {
	if len(dirs) == 0 || strings.HasPrefix(dirs[0], "-") {
		fmt.Fprintln(errs, "usage: rejudge DIR...\nDIR is a run's folder: facts.json and the parts of its history")
		return 2
	}
	for _, dir := range dirs {
		fmt.Fprintf(out, "%s:\n", dir)
		h, facts, err := judge.Load(dir)
		if err != nil {
			fmt.Fprintln(errs, err)
			status = 1
			continue
		}
		v := judge.Judge(h, facts)
		found := append(v.Violations, v.Settled()...)
		if v.Report(out, found); len(found) > 0 {
			status = 1
		}
		if facts.Truth == nil {
			fmt.Fprintln(out, "C7 was not asked: the run did not come to rest")
		}
	}
	return status
}

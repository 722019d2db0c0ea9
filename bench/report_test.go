package bench

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// write writes the page of a whole run.
func write(file string, papers []*paper) error {
	var b strings.Builder
	b.WriteString("# What was measured\n\nWritten by one run; README.md explains how to read it. " +
		"Only ratios mean anything elsewhere.\n\n")
	first, last := papers[0], papers[len(papers)-1]
	fmt.Fprintf(&b, "`%s`, %s, took %s, load average at the end %s.\n%s; %s.\n\n## Targets\n\n%s", first.Command,
		first.Began.Format("2006-01-02 15:04 MST"), last.Ended.Sub(first.Began).Round(time.Second), last.Load, first.Server, first.Client, targets(papers))
	for _, p := range papers {
		b.WriteString(p.Body)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// targets is the table of what was promised, and what came out.
func targets(papers []*paper) string {
	var b strings.Builder
	b.WriteString("| target | want | got | |\n| --- | --- | --- | --- |\n")
	for _, p := range papers {
		for _, t := range p.Targets {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.What, t.Want, t.Got, t.Verdict)
		}
	}
	return b.String()
}

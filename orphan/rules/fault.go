package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Fault is one thing wrong with a rule.
type Fault struct {
	Index int // of the rule; -1: not about a rule
	Rule  string
	Field string // dotted: keep_if[1].field.hash; empty: the whole rule
	Line  int    // of the YAML; 0: a Go struct
	Text  string
}

// Faults are sorted by line. Parse, Validate and orphan.New return them as their error.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// String reads like: line 12: rules[2] "queue": keep_if[0]: want exactly one of exists, field.
func (f Fault) String() string {
	var s strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&s, "line %d: ", f.Line)
	}
	if f.Index >= 0 {
		fmt.Fprintf(&s, "rules[%d]", f.Index)
		if f.Rule != "" {
			fmt.Fprintf(&s, " %q", f.Rule)
		}
		s.WriteString(": ")
	}
	if f.Field != "" {
		s.WriteString(f.Field + ": ")
	}
	return s.String() + f.Text
}

func (f Faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Index, b.Index))
	})
	return f
}

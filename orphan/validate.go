package orphan

import (
	"cmp"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
)

// What a rule is given where it says nothing.
const (
	defaultGrace = time.Minute
	defaultCap   = 1000
)

// Validate returns all that is wrong with rules as a Faults error. Own are the keys of this Rollcall,
// which no rule may be about.
func Validate(rules []Rule, own guard.Layout) error { return errNotBuilt }

// Warnings are sentences about rules that are legal, and weaker than they could be.
func Warnings(rules []Rule) []string { return nil }

// withDefaults fills in what a rule leaves out.
func withDefaults(r Rule) Rule {
	r.Category = cmp.Or(r.Category, r.Name)
	r.Cap = cmp.Or(r.Cap, defaultCap)
	if r.GoneIf == nil {
		r.Grace = cmp.Or(r.Grace, defaultGrace)
	}
	return r
}

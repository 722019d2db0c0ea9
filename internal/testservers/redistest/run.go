package redistest

import (
	"flag"
	"runtime/debug"
	"testing"
)

// Asked reports whether tests were selected with -run, and all of them: what takes many minutes
// runs only then.
func Asked() bool { return !testing.Short() && flag.Lookup("test.run").Value.String() != "" }

// OnlyIfAsked skips a test that takes many minutes, unless it was asked for.
func OnlyIfAsked(t testing.TB) {
	if t.Helper(); !Asked() {
		t.Skip("takes many minutes: run it by its name, with -run")
	}
}

// Raced returns -race for go build if this test was built with it: then most packages are compiled
// already.
func Raced() (flags []string) {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			flags = append(flags, "-race="+s.Value)
		}
	}
	return flags
}

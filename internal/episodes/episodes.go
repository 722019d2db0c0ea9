// Package episodes is for searches: tests that play random steps until an oracle objects, in
// episodes of a seed each:
//
//	ROLLCALL_STEPS=1000000 go test -run TestSearch PACKAGE    # as make search does
//	ROLLCALL_SEED=42 go test -run TestSearch PACKAGE          # one episode
//
// testdata/search.txt of the package keeps the seeds that once found something, with comments. They
// are played first. The seeds that follow are the same in each run, unless a number of steps was
// asked for: a test that fails is to fail again.
package episodes

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Search gives an episode to each lane whose From is the remainder of its seed.
type Search struct {
	Steps int           // of all lanes; a tenth with -short
	Limit time.Duration // of fresh seeds, unless a number of steps was asked for; 0: none
	Again int           // plays of a seed that is asked for
	Lanes []Lane
	// Has is what a lane must have counted after Enough steps: else it would never find anything.
	Has    []string
	Enough int
	Fresh  bool // no seeds are kept
}

// Lane is a place for episodes, beside others.
type Lane struct {
	Name        string
	From, Every uint64
	Share       float64 // of the steps
	// Begin prepares the place, and returns what plays an episode there and fails the test if it
	// finds something.
	Begin func(t *testing.T) (play func(t *testing.T, seed uint64) Tally)
}

// Tally is what was played.
type Tally struct {
	Steps int
	Of    map[string]int
}

// Count adds n.
func (a *Tally) Count(what string, n int) {
	if a.Of == nil {
		a.Of = map[string]int{}
	}
	a.Of[what] += n
}

func (a *Tally) add(b Tally) {
	a.Steps += b.Steps
	for what, n := range b.Of {
		a.Count(what, n)
	}
}

func (a Tally) String() string {
	text := fmt.Sprint(a.Steps, " steps")
	for _, what := range slices.Sorted(maps.Keys(a.Of)) {
		text += fmt.Sprint(", ", what, " ", a.Of[what])
	}
	return text
}

// Run plays the search.
func (s Search) Run(t *testing.T) {
	first := uint64(1)
	if testing.Short() {
		s.Steps /= 10
	}
	if text := os.Getenv("ROLLCALL_STEPS"); text != "" {
		steps, err := strconv.Atoi(text)
		require.NoError(t, err)
		s.Steps, s.Limit, first = steps, 0, uint64(time.Now().UnixNano())
	}
	kept := s.kept(t)
	var asked []uint64
	if text := os.Getenv("ROLLCALL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		s.Steps, kept, asked = 0, nil, slices.Repeat([]uint64{seed}, max(s.Again, 1))
	}
	var over atomic.Bool // one lane has found something
	for _, l := range s.Lanes {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					over.Store(true)
				}
			})
			s.run(t, l, l.own(kept), l.own(asked), first, &over)
		})
	}
}

func (l Lane) own(seeds []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(seeds), func(seed uint64) bool { return seed%l.Every != l.From })
}

func (s Search) run(t *testing.T, l Lane, kept, asked []uint64, first uint64, over *atomic.Bool) {
	if s.Steps == 0 && len(asked) == 0 {
		return
	}
	play := l.Begin(t)
	passed := t.Run("kept", func(t *testing.T) {
		for i := 0; i < len(kept) && !over.Load(); i++ {
			play(t, kept[i])
		}
	})
	if !passed {
		return
	}
	t.Run("fresh", func(t *testing.T) {
		var all Tally
		began, share := time.Now(), int(float64(s.Steps)*l.Share)
		for _, seed := range asked {
			all.add(play(t, seed))
		}
		for seed := first - first%l.Every + l.From; all.Steps < share && !over.Load(); seed += l.Every {
			if s.Limit > 0 && time.Since(began) > s.Limit || endsSoon(t) {
				break
			}
			all.add(play(t, seed))
		}
		t.Log(all, "in", time.Since(began).Round(time.Second))
		for _, what := range s.Has {
			if len(asked) == 0 && all.Steps > 0 && all.Steps >= s.Enough && !over.Load() {
				require.Positive(t, all.Of[what], "%s: a search without it finds nothing", what)
			}
		}
	})
}

func endsSoon(t *testing.T) bool {
	end, limited := t.Deadline()
	return limited && time.Until(end) < time.Minute
}

func (s Search) kept(t *testing.T) (kept []uint64) {
	if s.Fresh {
		return nil
	}
	text, err := os.ReadFile("testdata/search.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			n, err := strconv.ParseUint(strings.Fields(line)[0], 10, 64)
			require.NoError(t, err)
			kept = append(kept, n)
		}
	}
	return kept
}

// Planned plays a seed's steps. If they find something, it leaves out steps for half a minute, as
// long as the rest still does, and fails the test.
func Planned[S any](t *testing.T, seed uint64, steps []S, play func(steps []S) (done Tally, found string)) Tally {
	done, found := play(steps)
	if found == "" {
		return done
	}
	last, begun := found, time.Now()
	for size := len(steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(steps) && time.Since(begun) < 30*time.Second; {
			fewer := slices.Concat(steps[:from], steps[from+size:])
			if _, still := play(fewer); still != "" {
				steps, last = fewer, still
			} else {
				from += size
			}
		}
	}
	var text strings.Builder
	for _, s := range steps {
		fmt.Fprintln(&text, " ", s)
	}
	Found(t, seed, done.Steps, "%s\nThe steps that are left when as many as possible are left out:\n%s\n%s", found, text.String(), last)
	return done
}

// Found fails the test.
func Found(t *testing.T, seed uint64, step int, format string, args ...any) {
	require.FailNow(t, "the search found something", "ROLLCALL_SEED=%d, step %d\n%s", seed, step, fmt.Sprintf(format, args...))
}

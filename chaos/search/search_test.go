package search

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	debug.SetGCPercent(400) // each script of miniredis has a Lua of its own, and then it is garbage
	redistest.Main(m)
}

// quiet keeps go-redis from printing each connection that fails.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Steps come in episodes of a seed each:
//
//	ROLLCALL_STEPS=1000000 go test -run TestSearch ./chaos/search/    # as make search does
//	ROLLCALL_SEED=42 go test -run TestSearch ./chaos/search/          # one episode, several times
//
// testdata/search.txt keeps the seeds of episodes that once found something: they are played first.
// What follows is the same in each run, unless a number of steps was asked for.
const (
	searchSteps = 3_000 // about a minute of one core
	workers     = 2
	again       = 20 // times that one seed is played
)

// tally is what a search did.
type tally struct {
	steps, settled, swept int
	slowest               time.Duration // to become quiet
	byReason              map[string]int
}

func (a *tally) add(b tally) {
	a.steps += b.steps
	a.settled += b.settled
	a.swept += b.swept
	a.slowest = max(a.slowest, b.slowest)
}

func (a tally) String() string {
	return fmt.Sprintf("%d steps, quiet %d times, after at most %s; %d entries of the dead evicted", a.steps, a.settled, a.slowest, a.swept)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	search(t, searchSteps, plan, keptSeeds(t))
}

// search plays the kept seeds and then others, by plans.
func search(t *testing.T, steps int, plan func(seed uint64) []step, kept []uint64) {
	first := uint64(1)
	if testing.Short() {
		steps /= 10
	}
	if text := os.Getenv("ROLLCALL_STEPS"); text != "" {
		var err error
		steps, err = strconv.Atoi(text)
		require.NoError(t, err)
		first = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("ROLLCALL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		for range again {
			episode(t, plan, seed)
		}
		return
	}
	var over atomic.Bool
	for w := range workers {
		t.Run(fmt.Sprint("worker ", w+1), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					over.Store(true)
				}
			})
			var all tally
			for i := w; i < len(kept); i += workers {
				all.add(episode(t, plan, kept[i]))
			}
			for i := w; !over.Load() && all.steps < steps/workers && !endsSoon(t); i += workers {
				all.add(episode(t, plan, first+uint64(i)))
			}
			t.Log(all)
			if !over.Load() && steps >= searchSteps/10 { // fewer may be too few
				require.Positive(t, all.swept, "a search in which nothing is ever swept finds nothing")
			}
		})
	}
}

// endsSoon reports whether too little time is left for one more episode.
func endsSoon(t *testing.T) bool {
	end, limited := t.Deadline()
	return limited && time.Until(end) < time.Minute
}

func keptSeeds(t *testing.T) (kept []uint64) {
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

// episode plays the steps of one seed. If they find something, fewer of them are tried.
func episode(t *testing.T, plan func(seed uint64) []step, seed uint64) tally {
	steps := plan(seed)
	done, what := play(t, seed, steps)
	if what == "" {
		return done
	}
	steps, what = shorten(t, seed, steps, what)
	var text strings.Builder
	for _, s := range steps {
		fmt.Fprintln(&text, " ", s)
	}
	require.FailNow(t, "the search found something", "ROLLCALL_SEED=%d, step %d\n%s\nThe steps that are left when as many as possible are left out:\n%s",
		seed, done.steps, what, text.String())
	return done
}

// play plays steps in a bubble, and returns what they found.
func play(t *testing.T, seed uint64, steps []step) (done tally, what finding) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, seed)
		defer func() {
			if is, ok := recover().(finding); ok {
				what = is
			}
			f.close()
			f.tally.swept = f.swept
			done = f.tally
		}()
		f.play(steps)
	})
	return done, what
}

// shorten leaves steps out, as long as the rest finds something too, within half a minute.
func shorten(t *testing.T, seed uint64, steps []step, what finding) ([]step, finding) {
	begun := time.Now()
	for size := len(steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(steps) && time.Since(begun) < 30*time.Second; {
			fewer := append(append([]step{}, steps[:from]...), steps[from+size:]...)
			if _, still := play(t, seed, fewer); still != "" {
				steps, what = fewer, still
			} else {
				from += size
			}
		}
	}
	return steps, what
}

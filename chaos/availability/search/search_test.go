package search

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/pgtest"
)

func TestMain(m *testing.M) {
	logging.Disable() // what go-redis would print while Redis is away
	debug.SetGCPercent(400)
	pgtest.Main(m)
}

// Steps come in episodes of a seed each:
//
//	ROLLCALL_STEPS=1000000 go test -run TestSearch ./chaos/availability/search/ # as make search does
//	ROLLCALL_SEED=42 go test -run TestSearch ./chaos/availability/search/ # one episode, five times
//
// testdata/search.txt keeps the seeds of episodes that once found something: they are played first.
// What follows is the same in each run, unless a number of steps was asked for; only how much of it
// is played depends on the machine.
const (
	searchSteps = 100_000
	searchTime  = 40 * time.Second // as long as no number of steps was asked for
	slower      = 10               // than searches in virtual time: of the steps asked for it plays one in ten
	workers     = 2
	again       = 5 // times that one seed is played
)

// tally is what a search did.
type tally struct {
	steps, looks, beats, offline, compared, rested, aged int
	slowest                                              time.Duration // look
}

func (a *tally) add(b tally) {
	a.steps += b.steps
	a.looks += b.looks
	a.beats += b.beats
	a.offline += b.offline
	a.compared += b.compared
	a.rested += b.rested
	a.aged += b.aged
	a.slowest = max(a.slowest, b.slowest)
}

func (a tally) String() string {
	return fmt.Sprintf("%d steps, %d looks, the slowest %s; %d signs of life, %d set offline for silence, %d comparisons, "+
		"at rest %d times, Redis away for long %d times",
		a.steps, a.looks, a.slowest.Round(time.Millisecond), a.beats, a.offline, a.compared, a.rested, a.aged)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	steps, first, until := searchSteps, uint64(1), time.Now().Add(searchTime)
	if testing.Short() {
		until = time.Now().Add(searchTime / 10)
	}
	if text := os.Getenv("ROLLCALL_STEPS"); text != "" {
		asked, err := strconv.Atoi(text)
		require.NoError(t, err)
		steps = asked / slower
		first, until = uint64(time.Now().UnixNano()), time.Now().Add(240*time.Hour)
	}
	if text := os.Getenv("ROLLCALL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		s := startServers(t)
		for range again {
			t.Log(episode(t, s, seed))
		}
		return
	}
	kept := keptSeeds(t)
	var over atomic.Bool
	for n := range workers {
		t.Run(fmt.Sprint("worker ", n+1), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					over.Store(true)
				}
			})
			s := startServers(t)
			var all tally
			for i := n; i < len(kept) && !over.Load(); i += workers {
				all.add(episode(t, s, kept[i]))
			}
			for i := n; !over.Load() && all.steps < steps/workers && time.Now().Before(until); i += workers {
				all.add(episode(t, s, first+uint64(i)))
			}
			t.Log(all)
			if !over.Load() && all.steps >= 10*episodeSteps {
				require.Positive(t, all.offline, "a search in which nobody ever goes offline finds nothing")
			}
		})
	}
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
func episode(t *testing.T, s *servers, seed uint64) tally {
	steps := plan(seed)
	done, what := play(t, s, seed, steps)
	if what == "" {
		return done
	}
	first := what
	t.Logf("ROLLCALL_SEED=%d, step %d: %s; fewer steps are tried", seed, done.steps, first[strings.LastIndex(string(first), "\n")+1:])
	steps, what = shorten(t, s, seed, steps, what)
	var text strings.Builder
	for _, one := range steps {
		fmt.Fprintln(&text, " ", one)
	}
	require.FailNow(t, "the search found something", "ROLLCALL_SEED=%d, step %d\n%s\nThe steps that are left when as many as possible are left out:\n%s\n%s",
		seed, done.steps, first, text.String(), what)
	return done
}

// play plays steps, and returns what they found.
func play(t *testing.T, s *servers, seed uint64, steps []step) (done tally, what finding) {
	w := newWorld(t, s, seed)
	defer func() {
		r := recover()
		if is, ok := r.(finding); ok {
			what = is
		} else if r != nil {
			panic(r)
		}
		w.close()
		done = w.tally
	}()
	w.play(steps)
	return done, what
}

// shorten leaves steps out, as long as the rest finds something too, within a minute.
func shorten(t *testing.T, s *servers, seed uint64, steps []step, what finding) ([]step, finding) {
	begun := time.Now()
	for size := len(steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(steps) && time.Since(begun) < time.Minute; {
			fewer := append(append([]step{}, steps[:from]...), steps[from+size:]...)
			if _, still := play(t, s, seed, fewer); still != "" {
				steps, what = fewer, still
			} else {
				from += size
			}
		}
	}
	return steps, what
}

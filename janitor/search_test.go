package janitor_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
)

// The search looks for a sequence of events after which something living is deleted. It drives the
// scripts of guard and witness, the leader's two sweeps and the breaker through random steps, in
// virtual time: beats, ticks, passes, evictions, restarts with and without a file, promotions,
// jumps of the clock, CONFIG RESETSTAT, two fleets' settings, replicas that may not INFO, changes
// of the leader, lost keys. An oracle knows who lived (see model_test.go).
//
//	ROLLCALL_STEPS=1000000 go test -run TestSearch ./janitor/    # as make search does
//	ROLLCALL_SEED=42 go test -run TestSearch ./janitor/          # one episode again
//
// With -short it is a tenth of the steps: make mutate runs it for each mutant.
//
// Steps come in episodes of a seed each. testdata/search.txt keeps the seeds of episodes that once
// found something: they are played first. What follows is the same in each run, unless a number of
// steps was asked for: a test that fails is to fail again.
const (
	searchSteps  = 100_000 // on all servers together
	episodeSteps = 400
)

// seeds are those to play: what is kept, then fresh ones.
func seeds(t *testing.T) (kept []uint64, one bool) {
	if text := os.Getenv("ROLLCALL_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		return []uint64{n}, true
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
	return kept, false
}

func TestSearch(t *testing.T) {
	t.Parallel()
	steps, first := searchSteps, uint64(1)
	if testing.Short() {
		steps /= 10
	}
	if text := os.Getenv("ROLLCALL_STEPS"); text != "" {
		var err error
		steps, err = strconv.Atoi(text)
		require.NoError(t, err)
		first = uint64(time.Now().UnixNano())
	}
	kept, one := seeds(t)
	var over atomic.Bool // one has found something: the others need not go on
	onReal := func(t *testing.T) *redis.Options { return redistest.Start(t).Options() }
	const halves = 2 // of the seeds on a real server, each on one of its own: an episode has one core
	for _, w := range []struct {
		name    string
		share   int // of twenty steps: miniredis takes several times as long for each
		from    int // the first of its seeds
		every   int // from there one in so many is its own
		options func(t *testing.T) *redis.Options
	}{
		{"real, first half", 9, 0, halves, onReal},
		{"real, second half", 9, 1, halves, onReal},
		{"miniredis", 2, 0, 1, func(t *testing.T) *redis.Options {
			m := miniredis.NewMiniRedis()
			require.NoError(t, m.Start())
			t.Cleanup(m.Close)
			return &redis.Options{Addr: m.Addr()}
		}},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			o := w.options(t)
			t.Cleanup(func() {
				if t.Failed() {
					over.Store(true)
				}
			})
			var all tally
			play := func(seed uint64) {
				synctest.Test(t, func(t *testing.T) { all.add(episode(t, o, seed)) })
			}
			for i := w.from; i < len(kept); i += w.every {
				play(kept[i])
			}
			for i := w.from; !one && !over.Load() && all.steps < steps*w.share/20; i += w.every {
				play(first + uint64(i))
			}
			t.Log(all)
			if !one && !over.Load() {
				require.Positive(t, all.evicted, "a search in which nothing is ever swept finds nothing")
				require.Positive(t, all.holds["restarted"])
				require.Positive(t, all.holds["redis_evicting"])
				require.Positive(t, all.holds["mass_failure"])
			}
		})
	}
}

// tally is what a search did.
type tally struct {
	steps, passes, evicted, given int // given up: the machine was too busy for a deadline
	holds                         map[string]int
}

func (a *tally) add(b tally) {
	a.steps += b.steps
	a.passes += b.passes
	a.evicted += b.evicted
	a.given += b.given
	if a.holds == nil {
		a.holds = map[string]int{}
	}
	for reason, n := range b.holds {
		a.holds[reason] += n
	}
}

func (a tally) String() string {
	return fmt.Sprintf("%d steps, %d passes, %d entries of the dead evicted, holds %v, %d episodes given up",
		a.steps, a.passes, a.evicted, a.holds, a.given)
}

// episode plays the steps of one seed on a server of which it uses its own keys.
func episode(t *testing.T, o *redis.Options, seed uint64) tally {
	m := newModel(t, o, seed)
	defer m.close()
	for m.steps < episodeSteps && !m.gaveUp {
		m.step()
	}
	return m.tally
}

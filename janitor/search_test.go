package janitor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/episodes"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

const (
	searchSteps  = 100_000 // on all servers together
	searchTime   = 45 * time.Second
	episodeSteps = 400
)

const evicted = "entries of the dead evicted"

// The search looks for a sequence of events after which something living is deleted. It drives the
// scripts of guard and witness, the leader's two sweeps and the breaker through random steps, in
// virtual time: beats, ticks, passes, evictions, restarts with and without a file, promotions,
// jumps of the clock, CONFIG RESETSTAT, two fleets' settings, replicas that may not INFO, changes
// of the leader, lost keys. An oracle knows who lived (see model_test.go).
//
// With -short it is a tenth of the steps: make mutate runs it for each mutant. A busy machine plays
// as many as there is time for.
func TestSearch(t *testing.T) {
	t.Parallel()
	on := func(start func(t *testing.T) *redis.Options) func(*testing.T) func(*testing.T, uint64) episodes.Tally {
		return func(t *testing.T) func(*testing.T, uint64) episodes.Tally {
			o := start(t)
			return func(t *testing.T, seed uint64) (done episodes.Tally) {
				synctest.Test(t, func(t *testing.T) { done = episode(t, o, seed) })
				return done
			}
		}
	}
	onReal := on(func(t *testing.T) *redis.Options { return redistest.Start(t).Options() })
	onFake := on(func(t *testing.T) *redis.Options {
		m := miniredis.NewMiniRedis()
		require.NoError(t, m.Start())
		t.Cleanup(m.Close)
		return &redis.Options{Addr: m.Addr()}
	})
	episodes.Search{
		Steps: searchSteps, Limit: searchTime, Enough: 10 * episodeSteps,
		Has: []string{evicted, "restarted", "redis_evicting", "mass_failure"},
		Lanes: []episodes.Lane{ // an episode has one core
			{Name: "real, even seeds", From: 0, Every: 2, Share: 0.45, Begin: onReal},
			{Name: "real, odd seeds", From: 1, Every: 2, Share: 0.45, Begin: onReal},
			{Name: "miniredis", From: 0, Every: 1, Share: 0.1, Begin: onFake}, // takes several times as long
		},
	}.Run(t)
}

// episode plays the steps of one seed on a server of which it uses its own keys.
func episode(t *testing.T, o *redis.Options, seed uint64) episodes.Tally {
	m := newModel(t, o, seed)
	defer m.close()
	for m.Steps < episodeSteps && !m.gaveUp {
		m.step()
	}
	return m.Tally
}

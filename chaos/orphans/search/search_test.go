package search

import (
	"context"
	"fmt"
	"os"
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
	redistest.Main(m)
}

// quiet keeps go-redis from printing each connection that fails.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Steps come in episodes of a seed each:
//
//	ROLLCALL_STEPS=1000000 go test -run TestSearch ./chaos/orphans/search/    # as make search does
//	ROLLCALL_SEED=42 go test -run TestSearch ./chaos/orphans/search/          # one episode
//
// testdata/search.txt keeps the seeds of episodes that once found something: they are played first.
// What follows is the same in each run, unless a number of steps was asked for; only how much of it
// is played depends on the machine.
const (
	searchSteps  = 3_000
	searchTime   = 15 * time.Second // as long as no number of steps was asked for
	episodeSteps = 60
)

// tally is what a search did.
type tally struct {
	steps, passes, removed, restores int
	holds                            map[string]int
}

func (a *tally) add(b tally) {
	a.steps += b.steps
	a.passes += b.passes
	a.removed += b.removed
	a.restores += b.restores
	if a.holds == nil {
		a.holds = map[string]int{}
	}
	for reason, n := range b.holds {
		a.holds[reason] += n
	}
}

func (a tally) String() string {
	return fmt.Sprintf("%d steps, %d passes, %d candidates removed, %d restored, holds %v", a.steps, a.passes, a.removed, a.restores, a.holds)
}

// server is what an episode is played on. It is restarted from outside of the bubble, whose clock
// would go on while it waits.
type server struct {
	*redistest.Server
	cluster bool
	again   chan struct{}
	is      chan error
}

// servers are what episodes are played on, by their seeds.
var servers = []struct {
	name  string
	start func(t *testing.T) *server
}{
	{"the usual", func(t *testing.T) *server { return &server{Server: redistest.Start(t)} }},
	{"the newest", func(t *testing.T) *server { return &server{Server: redistest.StartNewest(t)} }},
	{"a Cluster", func(t *testing.T) *server {
		return &server{Server: redistest.StartCluster(t, 1, 0).Nodes[0], cluster: true}
	}},
}

func startServer(t *testing.T, seed uint64) *server {
	s := servers[seed%uint64(len(servers))].start(t)
	s.again, s.is = make(chan struct{}), make(chan error)
	rdb := s.Client()
	go func() {
		for range s.again {
			err := rdb.Save(context.Background()).Err()
			if err == nil {
				s.Restart()
			}
			s.is <- err
		}
	}()
	t.Cleanup(func() { close(s.again) })
	return s
}

func TestSearch(t *testing.T) {
	t.Parallel()
	steps, first, until := searchSteps, uint64(1), time.Now().Add(searchTime)
	if testing.Short() {
		steps /= 10
	}
	if text := os.Getenv("ROLLCALL_STEPS"); text != "" {
		var err error
		steps, err = strconv.Atoi(text)
		require.NoError(t, err)
		first, until = uint64(time.Now().UnixNano()), time.Now().Add(240*time.Hour)
	}
	if text := os.Getenv("ROLLCALL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		t.Log(episode(t, startServer(t, seed), seed))
		return
	}
	kept, n := keptSeeds(t), uint64(len(servers))
	var over atomic.Bool
	for i := range n {
		t.Run(servers[i].name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					over.Store(true)
				}
			})
			s := startServer(t, i)
			var all tally
			for _, seed := range kept {
				if seed%n == i {
					all.add(episode(t, s, seed))
				}
			}
			for seed := first - first%n + i; !over.Load() && all.steps < steps/len(servers) && time.Now().Before(until); seed += n {
				all.add(episode(t, s, seed))
			}
			t.Log(all)
			if !over.Load() && all.steps >= 10*episodeSteps {
				require.Positive(t, all.removed, "a search in which nothing is ever swept finds nothing")
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
func episode(t *testing.T, s *server, seed uint64) tally {
	steps := plan(seed)
	done, what := play(t, s, seed, steps)
	if what == "" {
		return done
	}
	first := what
	steps, what = shorten(t, s, seed, steps, what)
	var text strings.Builder
	for _, one := range steps {
		fmt.Fprintln(&text, " ", one)
	}
	require.FailNow(t, "the search found something", "ROLLCALL_SEED=%d, step %d\n%s\nThe steps that are left when as many as possible are left out:\n%s\n%s",
		seed, done.steps, first, text.String(), what)
	return done
}

// play plays steps in a bubble, and returns what they found.
func play(t *testing.T, s *server, seed uint64, steps []step) (done tally, what finding) {
	synctest.Test(t, func(t *testing.T) {
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
	})
	return done, what
}

// shorten leaves steps out, as long as the rest finds something too, within half a minute.
func shorten(t *testing.T, s *server, seed uint64, steps []step, what finding) ([]step, finding) {
	begun := time.Now()
	for size := len(steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(steps) && time.Since(begun) < 30*time.Second; {
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

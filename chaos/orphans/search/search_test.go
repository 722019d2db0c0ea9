package search

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/episodes"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	redistest.Main(m)
}

// quiet keeps go-redis from printing each connection that fails.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

const (
	searchSteps  = 3_000
	searchTime   = 15 * time.Second
	episodeSteps = 60
)

func TestSearch(t *testing.T) {
	t.Parallel()
	s := episodes.Search{
		Steps: searchSteps, Limit: searchTime, Again: 3, Has: []string{removed}, Enough: 2 * episodeSteps,
	}
	for i, p := range places {
		// A Cluster is slow to play on: make search does, a test of every change does not.
		if p.masters > 0 && os.Getenv("ROLLCALL_STEPS")+os.Getenv("ROLLCALL_SEED") == "" {
			continue
		}
		s.Lanes = append(s.Lanes, episodes.Lane{
			Name: p.name, From: uint64(i), Every: uint64(len(places)), Share: 1 / float64(len(places)),
			Begin: func(t *testing.T) func(*testing.T, uint64) episodes.Tally {
				on := newServer(t, p)
				return func(t *testing.T, seed uint64) episodes.Tally {
					return episodes.Planned(t, seed, on.plan(seed), func(steps []step) (episodes.Tally, string) {
						return play(t, on, seed, steps)
					})
				}
			},
		})
	}
	s.Run(t)
}

// play plays steps in a bubble, and returns what they found.
func play(t *testing.T, on *server, seed uint64, steps []step) (done episodes.Tally, found string) {
	on.ready()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, on, seed)
		defer func() {
			r := recover()
			is, ok := r.(finding)
			if !ok && r != nil {
				panic(r)
			}
			found = string(is)
			w.close()
			done = w.Tally
		}()
		w.play(steps)
	})
	return done, found
}

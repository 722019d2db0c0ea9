package search

import (
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/episodes"
)

func TestMain(m *testing.M) {
	logging.Disable() // what go-redis would print while Redis is away
	debug.SetGCPercent(400)
	pgtest.Main(m)
}

const (
	searchSteps = 1_000_000 // as make search plays: searchTime ends it
	searchTime  = 25 * time.Second
	slower      = 10 // than searches in virtual time: of the steps asked for it plays one in ten
	lanes       = 2
)

const offline = "set offline for silence"

func TestSearch(t *testing.T) {
	t.Parallel()
	s := episodes.Search{
		Steps: searchSteps, Limit: searchTime, Again: 5, Has: []string{offline}, Enough: 10 * episodeSteps,
	}
	if testing.Short() {
		s.Limit /= 10
	}
	for i := range uint64(lanes) {
		s.Lanes = append(s.Lanes, episodes.Lane{
			Name: fmt.Sprint("lane ", i+1), From: i, Every: lanes, Share: 1. / lanes / slower,
			Begin: func(t *testing.T) func(*testing.T, uint64) episodes.Tally {
				on := startServers(t)
				return func(t *testing.T, seed uint64) episodes.Tally {
					return episodes.Planned(t, seed, plan(seed), func(steps []step) (episodes.Tally, string) {
						return play(t, on, seed, steps)
					})
				}
			},
		})
	}
	s.Run(t)
}

// play plays steps, and returns what they found.
func play(t *testing.T, s *servers, seed uint64, steps []step) (done episodes.Tally, found string) {
	w := newWorld(t, s, seed)
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
	return done, found
}

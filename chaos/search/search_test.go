package search

import (
	"context"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/episodes"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	debug.SetGCPercent(400) // each script of miniredis has a Lua of its own, and then it is garbage
	redistest.Main(m)
}

// quiet keeps go-redis from printing each connection that fails.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

const (
	searchSteps = 3_000 // about a minute of one core
	searchTime  = 45 * time.Second
	lanes       = 2
)

const swept = "entries of the dead evicted"

func TestSearch(t *testing.T) {
	t.Parallel()
	search(plan, episodes.Search{Steps: searchSteps, Limit: searchTime, Enough: searchSteps / 5}).Run(t)
}

// search plays episodes by plans.
func search(plan func(seed uint64) []step, s episodes.Search) episodes.Search {
	s.Again, s.Has = 20, []string{swept}
	for i := range uint64(lanes) {
		s.Lanes = append(s.Lanes, episodes.Lane{
			Name: fmt.Sprint("lane ", i+1), From: i, Every: lanes, Share: 1. / lanes,
			Begin: func(*testing.T) func(*testing.T, uint64) episodes.Tally {
				return func(t *testing.T, seed uint64) episodes.Tally {
					return episodes.Planned(t, seed, plan(seed), func(steps []step) (episodes.Tally, string) {
						return play(t, seed, steps)
					})
				}
			},
		})
	}
	return s
}

// play plays steps in a bubble, and returns what they found.
func play(t *testing.T, seed uint64, steps []step) (done episodes.Tally, found string) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, seed)
		defer func() {
			r := recover()
			is, ok := r.(finding)
			if !ok && r != nil {
				panic(r)
			}
			found = string(is)
			f.close()
			f.Count(swept, f.swept)
			done = f.Tally
		}()
		f.play(steps)
	})
	return done, found
}

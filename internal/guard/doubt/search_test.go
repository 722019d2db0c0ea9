package doubt_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/internal/episodes"

	. "github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

const (
	searchSteps  = 30_000
	episodeSteps = 400
	lanes        = 2
)

// TestSearch plays random worlds of 1 to 100 owners. In every third one the leader may not read for
// minutes, and heartbeats are evicted in the second in which they are written. In every fourth some
// owners have other settings than the fleet.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := episodes.Search{
		Steps: searchSteps, Limit: 45 * time.Second, Again: 1, Enough: 10 * episodeSteps,
		Has: []string{"dead swept", string(Held), string(Alive), string(Refused), string(Most)},
	}
	for i := range uint64(lanes) {
		s.Lanes = append(s.Lanes, episodes.Lane{
			Name: fmt.Sprint("lane ", i+1), From: i, Every: lanes, Share: 1. / lanes,
			Begin: func(*testing.T) func(*testing.T, uint64) episodes.Tally { return search },
		})
	}
	s.Run(t)
}

func search(t *testing.T, seed uint64) episodes.Tally {
	w := play(seed, asIs)
	if len(w.found) > 0 {
		episodes.Found(t, seed, 0, "%s", strings.Join(w.log[max(0, w.first-20):min(len(w.log), w.first+60)], "\n"))
	}
	return episodes.Tally{Steps: episodeSteps, Of: w.count}
}

// play plays an episode, until something is found.
func play(seed uint64, r rule) *world {
	w := newWorld(seed, r)
	w.hard, w.mixed = seed%3 == 0, seed%4 == 1
	size := []int{1, 2, 3, 3, 4, 5, 7, 11, 11, 30}[w.rng.IntN(10)]
	steps := episodeSteps
	if seed%100 == 99 {
		size = 100
	}
	if size > 20 {
		steps /= 4
	}
	w.noInfo = w.some(1, 6)
	for range size {
		w.add(true, w.some(1, 12))
	}
	for range w.rng.IntN(size+2) * w.rng.IntN(3) / 2 {
		w.add(false, false)
	}
	w.advance(200 * sec)
	for range steps {
		if w.act(size); len(w.found) > 0 {
			break
		}
	}
	return w
}

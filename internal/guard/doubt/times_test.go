package doubt_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimes prints how long the entries of the dead stand, for docs/guarantees.md:
//
//	go test -count=1 -v -run TestTimes ./guard/doubt/
//
// With other settings the times are others; TTL is 90 s and GRACE 92 s.
func TestTimes(t *testing.T) {
	t.Parallel()
	seeds := uint64(100)
	if testing.Short() {
		seeds = 20
	}
	strangers := func(w *world) { w.each, w.strangers = 60*sec, always }
	for _, c := range []struct {
		name  string
		play  func(w *world)
		worst int64 // s
	}{
		{"one of three dies", func(w *world) { w.kill(w.fleet(3)[:1]) }, 93},
		{"one of eleven dies, and the leader", func(w *world) { w.kill(w.fleet(11)[:1]); w.leaderDies() }, 93},
		{"one of three dies, and another two minutes later", bothDie, 93},
		{"half are killed", func(w *world) { w.kill(w.fleet(10)[:5]) }, 93},
		{"more than half are killed", func(w *world) { w.kill(w.fleet(10)[:6]) }, 185},
		{"all are killed, and new ones start", func(w *world) {
			w.kill(w.fleet(4))
			for range 4 {
				w.add(true, false)
			}
		}, 185},
		{"a deployment of ten, and one of the new ones dies", deployed, 93},
		{"a plain writer of three dies", func(w *world) { w.add(true, true); w.kill(w.fleet(2)[:1]) }, 151},
		{"one of three dies, and wrong passwords come each minute", func(w *world) {
			strangers(w)
			w.kill(w.fleet(3)[:1])
		}, 1013},
	} {
		var gone []int64
		for seed := range seeds {
			w := newWorld(seed, asIs)
			c.play(w)
			w.advance(1200 * sec)
			require.Empty(t, w.found)
			for _, o := range w.owners {
				require.True(t, o.alive || !w.entries[o.name])
			}
			gone = append(gone, w.gone...)
		}
		slices.Sort(gone)
		gone = slices.DeleteFunc(gone, func(d int64) bool { return d < 40*sec }) // what goodbyes left
		t.Logf("%-60s half within %4d s, all within %4d s", c.name, gone[len(gone)/2]/1000, gone[len(gone)-1]/1000)
		require.LessOrEqual(t, gone[len(gone)-1], c.worst*sec)
	}
}

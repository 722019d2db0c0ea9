package chaos

import (
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// termsRows are about terms that follow each other.
var termsRows = []row{
	{8, "ManyTerms", false, 60, slowSweep, manyTerms},
}

// gap is the longest silence that is no hold.
const gap = (harness.TTL - harness.Interval) / 2

// Terms end as fast as they can, from the very beginning: leaders resign, and leases are taken
// away. Epochs rise (C4). Nothing is swept before GRACE is over, however many terms it lasts (C4),
// and once it is they sweep, though none of them has listened for so long.
func manyTerms(w *environment) {
	const terms, sweeping = 30, 5
	fault := &calm{}
	w.fault = fault
	haunts(w)
	w.Start("one", "two", "three")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	w.Registered(len(w.Ghosts))
	w.Traffic.Start(w.Environment)
	w.Moves()
	begun := time.Now()
	swept := make(map[uint64]bool) // terms that have
	for fault.hits() < terms || len(swept) < sweeping {
		before, _ := w.term()
		if fault.hits()%4 < 3 {
			if !w.resigns(w.Leader()) {
				continue
			}
		} else {
			w.Meddle("lease", func(p redis.Pipeliner) { p.Del(w.Context(), w.Lease()) })
		}
		fault.hit(1)
		harness.Eventually(w, "another term begins", func() bool {
			epoch, _ := w.term()
			return epoch > before
		})
		if !w.listened() || len(swept) >= sweeping {
			continue
		}
		if w.HLen(w.Context(), w.Registry()).Val() < ghosts/2 {
			haunts(w)
		}
		harness.Eventually(w, "a term sweeps", func() bool {
			epoch, batches := w.term()
			if batches > 0 {
				swept[epoch] = true
			}
			return batches > 0
		})
	}
	took := time.Since(begun)
	w.ends()
	v := w.judge()
	w.Logf("%d terms in %v: %.0f a minute", len(v.Terms), took.Round(time.Millisecond), float64(len(v.Terms))/took.Minutes())
	require.GreaterOrEqual(w, len(v.Terms), terms)
	require.Equal(w, len(w.Ghosts), v.Evicted("ghost"))
	require.GreaterOrEqual(w, w.Traffic.Done(), w.Fleet.Len()/2, "too little traffic: this run proves nothing")
}

// listened tells whether the witness has listened for GRACE.
func (w *environment) listened() bool {
	w.Helper()
	fields, err := w.HMGet(w.Context(), w.Witness(), "since", "hold").Result()
	require.NoError(w, err)
	var since int64
	for _, f := range fields {
		if text, ok := f.(string); ok {
			ms, err := strconv.ParseInt(text, 10, 64)
			require.NoError(w, err)
			since = max(since, ms)
		}
	}
	return since > 0 && time.Since(time.UnixMilli(since)) > harness.GracePeriod
}

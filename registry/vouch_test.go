package registry_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
)

// lead runs a replica's janitor until stop is called.
func (w *bubble) lead(r *replica) (stop func()) {
	data, control := redis.NewClient(lease.Options(w.options)), redis.NewClient(lease.Options(w.options))
	j, err := janitor.New(janitor.Config{
		Client: data, Control: control, Registry: r.Registry, Interval: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-ended)
		require.NoError(w.t, data.Close())
		require.NoError(w.t, control.Close())
	})
	w.t.Cleanup(stop)
	return stop
}

// looks counts the IMEIs that a replica checks by itself.
func (r *replica) looks() *atomic.Int64 {
	n := new(atomic.Int64)
	r.data.set(func(cmd redis.Cmder) error {
		if cmd.Name() == "hmget" {
			n.Add(int64(len(cmd.Args()) - 2))
		}
		return nil
	}, nil)
	return n
}

// If a scan finds nothing more of an owner, it publishes that: the findings of an earlier scan
// would vouch for its lost entries until they expire.
func TestALossOfAllEntriesOfAnOwnerIsFoundWhateverWasSaidBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.registerMany(t, 200)
		q := w.start("r2")
		q.Register("lonely")
		stop := w.lead(r)
		time.Sleep(10*q.Timing().Interval + 61*time.Second) // past its own round
		synctest.Wait()
		w.PExpire(t.Context(), w.Scanned("r2"), 30*time.Minute) // as if full scans were rare
		w.HDel(t.Context(), w.Registry(), "lonely")
		time.Sleep(time.Minute + 11*q.Timing().Interval)
		synctest.Wait()
		require.Equal(t, "r2", w.owner("lonely"))
		stop()
		w.kill(q)
		w.kill(r)
	})
}

func TestFullScansSaveOwnersTheirLooks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		const many = 6000
		w.listened() // the first to listen has everything checked
		r := w.start("r1")
		r.registerMany(t, many)
		stop := w.lead(r)
		looks := r.looks()
		beats := func(n int) int64 {
			before := looks.Load()
			time.Sleep(time.Duration(n) * r.Timing().Interval)
			synctest.Wait()
			return looks.Load() - before
		}
		round := func() int64 { return beats(10) }
		require.InDelta(t, many, beats(9), many/5, "its own round, but for the first beat: there was no claim yet")
		for range 3 {
			require.Zero(t, round())
		}
		require.InDelta(t, many, round(), many/10, "its own round")

		w.HDel(t.Context(), w.Registry(), "imei-7")
		missed := round()
		require.Positive(t, missed, "the full scan missed it")
		require.Less(t, missed, int64(many/8), "only its part is looked at, and until the next full scan meets it")
		require.Equal(t, "r1", w.owner("imei-7"))
		require.EqualValues(t, 1, r.Status().Healed)
		round()

		stop()
		require.Positive(t, round(), "what the leader said has expired")
		w.end(r)
	})
}

// An owner recognises new findings by a different text. Two scans with equal findings and durations
// must differ: the second vouches only for what it found itself.
func TestEachFullScanSaysAWordOfItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.registerMany(t, 20)
		stop := w.lead(r)
		word := func() string {
			time.Sleep(time.Hour) // longer than the longest interval of full scans
			synctest.Wait()
			return w.Get(t.Context(), w.Scanned("r1")).Val()
		}
		one, two := word(), word()
		require.NotEmpty(t, one)
		require.NotEqual(t, one, two)
		stop()
		w.end(r)
	})
}

func TestAWrongLeaderDelaysHealingAndDoesNotPreventIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.registerMany(t, 200)
		stop := w.lead(r)
		time.Sleep(10*r.Timing().Interval + time.Second)
		word := w.Get(t.Context(), w.Scanned("r1")).Val()
		require.NotEmpty(t, word)
		stop()

		w.HDel(t.Context(), w.Registry(), "imei-7")
		says := func(beats int) {
			for range beats { // after it has found everything
				w.Set(t.Context(), w.Scanned("r1"), word, 2*time.Minute)
				time.Sleep(r.Timing().Interval)
			}
			synctest.Wait()
		}
		says(28)
		require.Empty(t, w.owner("imei-7"))
		says(13)
		require.Equal(t, "r1", w.owner("imei-7"))
		w.end(r)
	})
}

func TestAWordOfAFullScanThatCannotBeReadVouchesForNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.registerMany(t, 6000) // so that each beat has some to check
		stop := w.lead(r)
		time.Sleep(11 * r.Timing().Interval)
		word := w.Get(t.Context(), w.Scanned("r1")).Val()
		stop()
		for _, change := range []func(){
			func() { w.Del(t.Context(), w.Scanned("r1")) },
			func() { w.Set(t.Context(), w.Scanned("r1"), "rubbish", time.Hour) },
			func() { w.Set(t.Context(), w.Scanned("r1"), word, 0) }, // of unknown age
			func() { w.Del(t.Context(), w.Scanned("r1")); w.HSet(t.Context(), w.Scanned("r1"), "x", "y") },
		} {
			w.Del(t.Context(), w.Scanned("r1"))
			w.Set(t.Context(), w.Scanned("r1"), word, time.Minute)
			time.Sleep(r.Timing().Interval)
			change()
			looks := r.looks()
			time.Sleep(2 * r.Timing().Interval)
			synctest.Wait()
			require.Positive(t, looks.Load())
		}
		w.end(r)
	})
}

func TestADeviceThatMovedLeavesTheFormerOwnersIndex(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		former, next := w.start("r1"), w.start("r2")
		claim := former.register(t, "moves")
		former.register(t, "stays")
		newer := next.register(t, "moves")
		in := func(id string) bool {
			synctest.Wait()
			return w.SIsMember(t.Context(), w.Devices(id), "moves").Val()
		}
		time.Sleep(11 * former.Timing().Interval) // even if nothing is published
		require.False(t, in("r1"))
		require.True(t, in("r2"))
		require.True(t, w.SIsMember(t.Context(), w.Devices("r1"), "stays").Val())
		require.Equal(t, 1, former.Status().Foreign)

		frame(claim) // it is here after all
		frame(claim)
		require.Equal(t, "r1", w.owner("moves"))
		require.True(t, in("r1"))
		time.Sleep(11 * former.Timing().Interval)
		require.False(t, in("r2"))
		newer.Release()
		require.Equal(t, "r1", w.owner("moves"))
		require.Zero(t, w.HExists(t.Context(), w.Witness(), "index_wrong").Val())
		w.end(former)
		w.end(next)
	})
}

func TestAnOwnerWhoseIndexWasLostTellsTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		r.registerMany(t, 10)
		w.HSet(t.Context(), w.Witness(), "last", "1")
		told := func() string {
			time.Sleep(2 * r.Timing().Interval)
			synctest.Wait()
			return w.HGet(t.Context(), w.Witness(), "index_wrong").Val()
		}
		w.Del(t.Context(), w.Registry(), w.Devices("r1")) // both are recreated
		require.Empty(t, told())
		w.SRem(t.Context(), w.Devices("r1"), "imei-3")
		require.Equal(t, "1", told())
		require.True(t, w.SIsMember(t.Context(), w.Devices("r1"), "imei-3").Val())
		w.end(r)
	})
}

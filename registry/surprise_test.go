package registry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func TestAHoldThatLosesNoEntriesHasNothingChecked(t *testing.T) {
	eachBubble(t, map[string]bool{"settings": false, "an evicted heartbeat": true}, func(w *bubble, evicted bool) {
		r := w.start("r1")
		r.registerMany(5000)
		var n atomic.Int64
		r.data.set(func(cmd redis.Cmder) error { n.Add(int64(len(checkedBy(cmd)))); return nil }, nil)
		for i := range 60 {
			w.HSet(w.Context(), w.Witness(), "since", fmt.Sprint(i+1), "reason", "settings")
			if evicted {
				w.del(w.Heartbeat("r1"))
			}
			r.register("passing").Release()
			pass(time.Second)
		}
		require.InDelta(w, 2*500, n.Load(), 700, "a tenth each beat")
	})
}

func TestALossSoonAfterAnotherIsMadeGoodAnIntervalLater(t *testing.T) {
	inBubble(t, func(w *bubble) {
		ctx := w.Context()
		r := w.start("r1", func(c *registry.Config) { c.NoReverseIndex = true })
		r.registerMany(2000)
		time.Sleep(interval * 5 / 3) // no beat comes soon after the second interval
		for range 2 {
			w.del(w.Beats())
			r.register("one").Release() // its reply shows it
			time.Sleep(time.Second)
			w.drop("imei-1000", "imei-1999")
		}
		pass(interval + 2*time.Second)
		require.EqualValues(w, 2000, w.HLen(ctx, w.Registry()).Val())
	})
}

// listened writes a witness whose last tick was a second ago.
func (w *bubble) listened() {
	was := fmt.Sprint(time.Now().Add(-time.Second).UnixMilli())
	require.NoError(w, w.HSet(w.Context(), w.Witness(), "since", was, "last", was, "lost", was).Err())
}

func TestARegistryThatItsOwnersEmptyHasLostNothing(t *testing.T) {
	inBubble(t, func(w *bubble) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		logged := func(c *registry.Config) { c.Logger = logger }
		w.listened()
		r, other := w.start("r1", logged), w.start("r2", logged)
		r.register("first").Release() // the registry did not exist yet
		pass(3 * interval)
		log.Reset()
		for range 10 {
			r.register("passing").Release()
			time.Sleep(interval)
			other.register("elsewhere").Release()
			pass(interval)
		}
		require.Empty(w, log.String())
	})
}

func TestARegistryThatIsLostIsNoticedThoughItWasEmptiedBefore(t *testing.T) {
	eachBubble(t, map[string]func(w *bubble, r *replica){
		"deleted while it has entries": func(w *bubble, _ *replica) {
			w.del(w.Registry())
		},
		"flushed, and the witness begins anew": func(w *bubble, _ *replica) {
			require.NoError(w, w.FlushAll(w.Context()).Err())
			w.listened()
		},
		"deleted, after a plain writer wrote the first entry": func(w *bubble, r *replica) {
			w.del(w.Registry())
			require.NoError(w, w.HSet(w.Context(), w.Witness(), "emptied", time.Now().UnixMilli()).Err())
			w.write("stays", "r1", "plain", "r3")
			pass(interval)
			w.del(w.Registry())
		},
		"emptied, restarted, and written by an owner of an older version, before it is deleted": func(w *bubble, _ *replica) {
			now := time.Now().UnixMilli()
			require.NoError(w, w.HSet(w.Context(), w.Witness(), "emptied", now-1, "lost", now).Err())
			w.del(w.Registry())
		},
	}, func(w *bubble, lose func(w *bubble, r *replica)) {
		w.listened()
		r, other := w.start("r1"), w.start("r2")
		r.register("passing").Release()
		time.Sleep(time.Second)
		r.register("stays")
		time.Sleep(time.Second)
		lose(w, r)
		before := w.HGet(w.Context(), w.Witness(), "lost").Val()
		time.Sleep(time.Second)
		other.register("elsewhere") // hides the missing registry from r
		require.Greater(w, w.HGet(w.Context(), w.Witness(), "lost").Val(), before)
		pass(interval + time.Second)
		w.is("stays", "r1")
	})
}

// The script that finds the record missing writes it anew, so later answers say nothing.
func TestALossWhoseOnlySignWasInAnAnswerThatNeverArrivedIsMadeGood(t *testing.T) {
	type row struct{ beat, noIndex bool }
	eachBubble(t, map[string]row{
		"a beat's": {true, false}, "a beat's, without the index": {true, true},
		"a registration's": {}, "a registration's, without the index": {false, true},
	}, func(w *bubble, c row) {
		r := w.start("r1", func(to *registry.Config) { to.NoReverseIndex = c.noIndex })
		r.registerMany(2000)
		pass(interval)
		w.drop("imei-7", "imei-1000", "imei-1999")
		w.del(w.Beats())
		lose := &r.control
		if !c.beat {
			lose = &r.data
			r.control.set(always, nil) // beats come later
			r.Register("passing")
		}
		lose.set(nil, always)
		pass(interval)
		r.loses(nil, nil)
		require.Eventually(w, func() bool { return w.owner("imei-1000") == "r1" }, interval+time.Second, time.Second)
		w.is("imei-7", "r1")
		w.is("imei-1999", "r1")
	})
}

// While nobody listens, nobody can be warned. The first tick does that.
func TestALossWhileNobodyListensIsMadeGoodWhenSomebodyDoes(t *testing.T) {
	eachBubble(t, map[string]bool{"somebody did before": true, "nobody did": false}, func(w *bubble, before bool) {
		if before {
			w.listened()
		}
		r, other := w.start("r1"), w.start("r2")
		r.registerMany(2000)
		w.del(w.Witness())
		time.Sleep(interval)
		r.register("passing").Release()
		time.Sleep(interval * 7 / 2) // between two beats
		w.del(w.Registry())
		other.register("elsewhere") // hides the missing registry from r
		time.Sleep(time.Second)
		w.listened()
		pass(interval + time.Second)
		require.Equal(w, 2000, w.are("r1"))
	})
}

package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// ticks listens like a janitor, every few seconds, until the test ends.
func (w *bubble) ticks(r *replica) {
	c := redis.NewClient(lease.Options(w.options))
	g := guard.New(c, c, w.Layout, r.Timing(), "janitor")
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = g.Tick(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(r.Timing().Gap() / 5):
			}
		}
	})
	w.Cleanup(func() { cancel(); wg.Wait(); _ = c.Close() })
}

// outage registers n devices at r while Redis is down for longer than a handshake is fresh. Their
// entries name old instances, which died with Redis.
func outage(w *bubble, r *replica, n int) []*registry.Claim {
	r.loses(always, nil)
	claims := make([]*registry.Claim, n)
	timing, record := r.Timing(), doubt.Record{Last: time.Now().UnixMilli(), State: doubt.Holds}
	record.TTL, record.Due = timing.TTL.Milliseconds(), doubt.Own{Interval: timing.Interval.Milliseconds()}.Due()
	for i := range 7 {
		w.HSet(context.Background(), w.Beats(), fmt.Sprint("old-", i), record.String())
	}
	for i := range claims {
		imei := fmt.Sprintf("imei-%d", i)
		w.write(imei, fmt.Sprint("old-", i%7))
		claims[i] = r.Register(imei)
	}
	time.Sleep(10 * time.Second)
	r.loses(nil, nil)
	return claims
}

func (w *bubble) are(id string) (n int) {
	for _, owner := range w.HGetAll(context.Background(), w.Registry()).Val() {
		if owner == id {
			n++
		}
	}
	return n
}

// Nobody sweeps here: the leader is paused, dry or held for another reason, or no janitor runs.
func TestEntriesOfTheDeadAreTakenOverByWhoHoldsTheDevices(t *testing.T) {
	eachBubble(t, map[string]bool{"others listen": true, "nobody else listens": false}, func(w *bubble, listened bool) {
		// Somebody may watch the channels of all owners, and a process whose heartbeats are refused
		// listens on its own: that is not a heartbeat.
		sub := w.PSubscribe(w.Context(), "*")
		defer sub.Close()
		_, err := sub.Receive(w.Context())
		require.NoError(w, err)
		go func() {
			for range sub.Channel() {
			}
		}()
		r := w.start("new")
		claims := outage(w, r, 1200)
		if listened {
			w.ticks(r)
		}
		pass(ttl - 11*time.Second) // the outage lasted for ten
		require.Zero(w, w.are("new"), "before a TTL has passed nobody is dead")
		pass(interval + time.Second)
		require.Equal(w, 1200, w.are("new"))
		require.EqualValues(w, 1200, w.SCard(w.Context(), w.Devices("new")).Val())
		require.Zero(w, r.Status().Disputed)
		require.EqualValues(w, 1200, r.Status().Healed)
		for _, c := range claims {
			require.NoError(w, c.Wait(w.Context()))
			c.Release()
		}
	})
}

func TestOfTheLivingNothingIsTakenOverWhateverTheWitnessHasHeard(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("new")
		for i := range 7 { // by processes that hang
			w.Set(w.Context(), w.Heartbeat(fmt.Sprint("old-", i)), "1/1", 24*time.Hour)
		}
		outage(w, r, 70)
		w.ticks(r)
		pass(10 * r.Timing().Grace())
		require.Zero(w, w.are("new"))
		w.Del(w.Context(), w.Heartbeat("old-3"))
		pass(interval + interval/10 + time.Second)
		require.Equal(w, 10, w.are("new"), "those of the one that is dead")
		w.kill(r)
	})
}

// A device has sockets at two replicas, one of them half open, and its entry names a third, dead
// one. One of the two takes it over, and then they settle who has the device.
func TestTwoThatHoldADeviceOfTheDeadFindOutWhoHasIt(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r1, r2 := w.start("r1"), w.start("r2")
		half := outage(w, r1, 1)[0]
		time.Sleep(time.Minute)
		c := outage(w, r2, 1)[0]
		pass(r1.Timing().Grace() + 4*time.Minute)
		w.is("imei-0", "r2")
		require.Zero(w, r1.Status().Disputed+r2.Status().Disputed)
		require.NoError(w, c.Err())
		require.Equal(w, registry.MovedError{To: "r2"}, half.Err())
		c.Release()
	})
}

// An owner that was silent for longer than the TTL was dead to everybody. If its socket is the
// newer one, it takes its device back.
func TestAnOwnerThatWasTakenForDeadTakesBackWhatItHas(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r1, r2 := w.start("r1"), w.start("r2")
		w.ticks(r1)
		r1.cut(true)
		half := r1.open("imei", false, false)
		time.Sleep(2 * time.Second)
		there := r2.open("imei", false, true)
		require.NoError(w, there.Wait(w.Context()))
		r1.cut(false)
		time.Sleep(r1.Timing().Grace())
		require.NoError(w, there.Err())
		require.Error(w, half.Err())

		r1.cut(true)
		half = r1.open("imei", false, false)
		time.Sleep(2 * time.Second)
		there = r2.open("imei", false, true)
		require.NoError(w, there.Wait(w.Context()))
		r2.cut(true)
		r1.cut(false)
		pass(ttl + 2*interval)
		w.is("imei", "r1")
		r2.cut(false)
		time.Sleep(2 * interval)
		w.is("imei", "r2")
		require.NoError(w, there.Err())
		require.Equal(w, registry.MovedError{To: "r2"}, half.Err())
	})
}

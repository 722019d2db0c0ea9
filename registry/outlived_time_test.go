package registry_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	ctx, cancel := context.WithCancel(w.t.Context())
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
	w.t.Cleanup(func() { cancel(); wg.Wait(); _ = c.Close() })
}

// outage registers n devices at r while Redis is down for longer than a handshake is fresh. Their
// entries name old instances, which died with Redis.
func outage(w *bubble, r *replica, n int) []*registry.Claim {
	r.data.set(always, nil)
	r.control.set(always, nil)
	claims := make([]*registry.Claim, n)
	timing, record := r.Timing(), doubt.Record{Last: time.Now().UnixMilli(), State: doubt.Holds}
	record.TTL, record.Due = timing.TTL.Milliseconds(), doubt.Own{Interval: timing.Interval.Milliseconds()}.Due()
	for i := range 7 {
		w.HSet(context.Background(), w.Beats(), fmt.Sprint("old-", i), record.String())
	}
	for i := range claims {
		imei := fmt.Sprintf("imei-%d", i)
		w.HSet(context.Background(), w.Registry(), imei, fmt.Sprint("old-", i%7))
		claims[i] = r.Register(imei)
	}
	time.Sleep(10 * time.Second)
	r.data.set(nil, nil)
	r.control.set(nil, nil)
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
	t.Parallel()
	for name, listened := range map[string]bool{"others listen": true, "nobody else listens": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				r := w.start("new")
				claims := outage(w, r, 1200)
				if listened {
					w.ticks(r)
				}
				time.Sleep(r.Timing().TTL - 11*time.Second) // the outage lasted for ten
				synctest.Wait()
				require.Zero(t, w.are("new"), "before a TTL has passed nobody is dead")
				time.Sleep(r.Timing().Interval + time.Second)
				synctest.Wait()
				require.Equal(t, 1200, w.are("new"))
				require.EqualValues(t, 1200, w.SCard(t.Context(), w.Devices("new")).Val())
				require.Zero(t, r.Status().Disputed)
				require.EqualValues(t, 1200, r.Status().Healed)
				for _, c := range claims {
					require.NoError(t, c.Wait(t.Context()))
					c.Release()
				}
				w.end(r)
			})
		})
	}
}

type records struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *records) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *records) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestOfTheLivingNothingIsTakenOverWhateverTheWitnessHasHeard(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("new")
		for i := range 7 { // by processes that hang
			w.Set(t.Context(), w.Heartbeat(fmt.Sprint("old-", i)), "1/1", 24*time.Hour)
		}
		outage(w, r, 70)
		w.ticks(r)
		time.Sleep(10 * r.Timing().Grace())
		synctest.Wait()
		require.Zero(t, w.are("new"))
		w.Del(t.Context(), w.Heartbeat("old-3"))
		time.Sleep(r.Timing().Interval + r.Timing().Interval/10 + time.Second)
		synctest.Wait()
		require.Equal(t, 10, w.are("new"), "those of the one that is dead")
		w.kill(r)
	})
}

// Somebody may watch the channels of all owners, and a process whose heartbeats are refused listens
// on its own: that is not a heartbeat.
func TestADeadInstanceWhoseChannelIsListenedToIsDead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		sub := w.PSubscribe(t.Context(), "*")
		defer sub.Close()
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		go func() {
			for range sub.Channel() {
			}
		}()
		r := w.start("new")
		outage(w, r, 7)
		time.Sleep(r.Timing().Grace() + r.Timing().Interval)
		synctest.Wait()
		require.Equal(t, 7, w.are("new"))
		w.kill(r)
	})
}

// A device has sockets at two replicas, one of them half open, and its entry names a third, dead
// one. One of the two takes it over, and then they settle who has the device.
func TestTwoThatHoldADeviceOfTheDeadFindOutWhoHasIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r1, r2 := w.start("r1"), w.start("r2")
		half := outage(w, r1, 1)[0]
		time.Sleep(time.Minute)
		c := outage(w, r2, 1)[0]
		time.Sleep(r1.Timing().Grace() + 4*time.Minute)
		synctest.Wait()
		require.Equal(t, "r2", w.owner("imei-0"))
		require.Zero(t, r1.Status().Disputed+r2.Status().Disputed)
		require.NoError(t, c.Err())
		require.Equal(t, registry.MovedError{To: "r2"}, half.Err())
		c.Release()
		w.end(r1)
		w.end(r2)
	})
}

// An owner that was silent for longer than the TTL was dead to everybody. If its socket is the
// newer one, it takes its device back.
func TestAnOwnerThatWasTakenForDeadTakesBackWhatItHas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r1, r2 := w.start("r1"), w.start("r2")
		w.ticks(r1)
		r1.cut(true)
		half := r1.open("imei", false, false)
		time.Sleep(2 * time.Second)
		there := r2.open("imei", false, true)
		require.NoError(t, there.Wait(t.Context()))
		r1.cut(false)
		time.Sleep(r1.Timing().Grace())
		require.NoError(t, there.Err())
		require.Error(t, half.Err())

		r1.cut(true)
		half = r1.open("imei", false, false)
		time.Sleep(2 * time.Second)
		there = r2.open("imei", false, true)
		require.NoError(t, there.Wait(t.Context()))
		r2.cut(true)
		r1.cut(false)
		time.Sleep(r1.Timing().TTL + 2*r1.Timing().Interval)
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		r2.cut(false)
		time.Sleep(2 * r2.Timing().Interval)
		require.Equal(t, "r2", w.owner("imei"))
		require.NoError(t, there.Err())
		require.Equal(t, registry.MovedError{To: "r2"}, half.Err())
		w.end(r1)
		w.end(r2)
	})
}

package availability

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// listening makes a witness of the mirror's layout that has listened for so long.
func (r *rig) listening(d time.Duration) {
	r.t.Helper()
	now, err := r.client.Time(r.t.Context()).Result()
	require.NoError(r.t, err)
	require.NoError(r.t, r.client.HSet(r.t.Context(), r.keys.Witness(),
		"since", now.Add(-d).UnixMilli(), "last", now.UnixMilli(), "gap", time.Hour.Milliseconds()).Err())
}

// cut lets every call to Redis fail while it is true.
func (r *rig) cut() *atomic.Bool {
	var away atomic.Bool
	r.rdb.AddHook(commands{func(redis.Cmder) error {
		if away.Load() {
			return errors.New("connection refused")
		}
		return nil
	}})
	return &away
}

// workforce is a source with one mitra of each kind; available are a and b.
func workforce() *fake {
	full, off, away, busy := online("full"), online("off"), online("away"), online("b")
	full.Sessions, off.Active, away.Online, busy.Sessions = 3, false, false, 2
	return newFake(online("a"), busy, full, off, away, silent("silent"))
}

func TestTheSameAnswersComeFromRedisAndFromTheSource(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, workforce())
		r.seeded()
		r.listening(time.Hour)
		r.broughtAt(time.Now())
		away := r.cut()
		for _, from := range []Origin{FromValkey, FromPostgres} {
			away.Store(from == FromPostgres)
			ctx := t.Context()
			found, err := r.FindAvailable(ctx, 0)
			require.NoError(t, err)
			require.Equal(t, Answer[[]Available]{[]Available{{"a", 0}, {"b", 2}}, from, 0}, found, "the least busy first")
			found, err = r.FindAvailable(ctx, 1)
			require.NoError(t, err)
			require.Equal(t, []Available{{"a", 0}}, found.Value)
			count, err := r.CountOnline(ctx)
			require.NoError(t, err)
			require.Equal(t, Answer[int]{4, from, 0}, count)
			for id, want := range map[string]bool{
				"a": true, "b": true, "full": true, "off": false, "away": false, "silent": false, "nobody": false,
			} {
				reachable, err := r.Reachable(ctx, id)
				require.NoError(t, err)
				require.Equal(t, Answer[bool]{want, from, 0}, reachable, id)
			}
			status, err := r.Status(ctx, "b")
			require.NoError(t, err)
			require.Equal(t, from, status.From)
			require.WithinDuration(t, time.Now(), status.Value.Heartbeat, time.Minute)
			status.Value.Heartbeat = time.Time{}
			require.Equal(t, MitraStatus{Version: 1, Online: true, Active: true, Sessions: 2, Fresh: true}, status.Value)
			_, err = r.Status(ctx, "nobody")
			require.ErrorIs(t, err, ErrNotFound)
			snapshot, err := r.Snapshot(ctx)
			require.NoError(t, err)
			require.Equal(t, Snapshot{true, 2}, snapshot.Value)
		}
		require.InDelta(t, 2, testutil.ToFloat64(r.metrics.reads.WithLabelValues("find_available", "postgres")), 0)
	})
}

func TestSilenceIsNotJudgedBeforeItWasListenedToForLongEnough(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, workforce())
		r.seeded()
		finds := func(n int, why string) {
			t.Helper()
			found, err := r.FindAvailable(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, FromValkey, found.From)
			require.Len(t, found.Value, n, why)
		}
		finds(3, "nobody listens")
		r.listening(59 * time.Second)
		finds(3, "not for as long as a mitra may be silent")
		r.listening(61 * time.Second)
		finds(2, "the silent one is not counted")
		require.NoError(t, r.client.HSet(t.Context(), r.keys.Witness(), "gap", "-1").Err())
		finds(3, "the last tick is too long ago")
		r.listening(time.Hour)
		r.source.settings.RequirePing = false
		_, err := r.readSettings(t.Context())
		require.NoError(t, err)
		finds(3, "silence does not matter")

		r.broughtAt(time.Now())
		r.source.settings.RequirePing = true
		s, err := r.readSettings(t.Context())
		require.NoError(t, err)
		finds(3, "no app had to ping before")
		status, err := r.Status(t.Context(), "silent")
		require.NoError(t, err)
		require.True(t, status.Value.Fresh)
		require.Zero(t, r.cutoff(s), "nor does the source judge")
		r.required = r.required.Add(-s.StaleAfter)
		finds(2, "it could have been heard by now")
		require.NotZero(t, r.cutoff(s))

		r.source.settings.StaleAfter = s.PingInterval
		s, err = r.readSettings(t.Context())
		require.NoError(t, err)
		finds(3, "even punctual apps are silent for so long")
		require.Zero(t, r.cutoff(s))
	})
}

func TestManyPagesAreOneAnswer(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake()
		for i := range 2*findPage + 100 {
			source.put(online(fmt.Sprintf("%05d", i)))
		}
		r := newRig(t, w, source)
		r.seeded()
		found, err := r.FindAvailable(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, FromValkey, found.From)
		require.Len(t, found.Value, 2*findPage+100)
		ids := map[string]bool{}
		for _, a := range found.Value {
			ids[a.ID] = true
		}
		require.Len(t, ids, len(found.Value), "nobody twice")

		busy := online(fmt.Sprintf("%05d", 7))
		busy.Version, busy.Sessions = 2, 1
		_, err = r.apply(t.Context(), newer, busy)
		require.NoError(t, err)
		found, err = r.FindAvailable(t.Context(), 2*findPage+99)
		require.NoError(t, err)
		require.Len(t, found.Value, 2*findPage+99)
		require.NotContains(t, found.Value, Available{busy.ID, 1}, "the least busy first, over all pages")
		found, err = r.FindAvailable(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, Available{busy.ID, 1}, found.Value[2*findPage+99])
		found, err = r.FindAvailable(t.Context(), 3)
		require.NoError(t, err)
		require.Len(t, found.Value, 3)
	})
}

func TestABreakerKeepsReadsFromARedisThatIsAway(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, workforce())
		r.seeded()
		var calls atomic.Int64
		var away atomic.Bool
		away.Store(true)
		r.rdb.AddHook(commands{func(redis.Cmder) error {
			calls.Add(1)
			if away.Load() {
				return errors.New("connection refused")
			}
			return nil
		}})
		for range 10 * tripsAfter {
			count, err := r.CountOnline(t.Context())
			require.NoError(t, err)
			require.Equal(t, FromPostgres, count.From)
		}
		require.Equal(t, "open", r.Health().Redis)
		require.Less(t, calls.Load(), int64(10*tripsAfter))
		away.Store(false)
		r.eventually(func() bool {
			count, err := r.CountOnline(t.Context())
			return err == nil && count.From == FromValkey
		}, "a second later it is tried again")
	})
}

func TestOnlySoManyAskTheSourceAtOnceAndABreakerIsBeforeItToo(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := workforce()
		r := newRig(t, w, source, func(c *Config) { c.Fallbacks = 2 })
		r.cut().Store(true)
		var at, most atomic.Int64
		var full sync.Once
		two := make(chan struct{}) // closed when two ask at once
		source.fault.set(func(op string) error {
			if op == "CountOnline" {
				now := at.Add(1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				if now == 2 {
					full.Do(func() {
						if r.fallbacks.TryAcquire(1) {
							t.Error("there is a place for a third")
						}
						close(two)
					})
				}
				<-two
				at.Add(-1)
			}
			return nil
		})
		var work sync.WaitGroup
		for range 50 {
			work.Go(func() { _, _ = r.CountOnline(t.Context()) })
		}
		work.Wait()
		require.Equal(t, int64(2), most.Load())

		r.failing("CountOnline")
		before := source.asked("CountOnline")
		for range 10 * tripsAfter {
			_, err := r.CountOnline(t.Context())
			require.ErrorIs(t, err, ErrUnavailable)
		}
		require.Less(t, source.asked("CountOnline")-before, 10*tripsAfter)
		require.Equal(t, "open", r.Health().Source)
	})
}

func TestASnapshotOfOlderSettingsIsDropped(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := workforce()
		r, other := newRig(t, w, source), newRig(t, w, source)
		r.run()
		other.run()
		ctx := t.Context()
		r.listening(time.Hour)
		channel := r.keys.invalidate()
		r.eventually(func() bool { return r.client.PubSubNumSub(ctx, channel).Val()[channel] == 2 || !w.Real }, "both listen")
		a, err := other.Snapshot(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, a.Value.Count)
		require.NoError(t, r.PutSetting(ctx, "max_customers_per_mitra", 1))
		for _, each := range []*rig{r, other} {
			r.eventually(func() bool {
				a, err := each.Snapshot(ctx)
				return err == nil && a.Value == Snapshot{true, 1}
			}, "the change is heard of")
		}
	})
}

func TestTheLastSnapshotIsServedWithItsAgeWhenNobodyCanAnswer(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, workforce())
		r.seeded()
		_, err := r.Snapshot(t.Context())
		require.NoError(t, err)
		r.cut().Store(true)
		r.failing("Available")
		r.mu.Lock()
		r.snapshot.at = time.Now().Add(-time.Hour)
		r.mu.Unlock()
		a, err := r.Snapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, FromStale, a.From)
		require.Equal(t, Snapshot{true, 3}, a.Value)
		require.InDelta(t, time.Hour, a.Age, float64(time.Minute))

		r.dropSnapshot()
		_, err = r.Snapshot(t.Context())
		require.ErrorIs(t, err, ErrUnavailable)
	})
}

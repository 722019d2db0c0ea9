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
)

// listening makes a witness of the mirror's layout that has listened for so long.
func (r *rig) listening(d time.Duration) {
	r.t.Helper()
	now, err := r.client.Time(r.ctx).Result()
	r.NoError(err)
	r.NoError(r.client.HSet(r.ctx, r.keys.Witness(),
		"since", now.Add(-d).UnixMilli(), "last", now.UnixMilli(), "gap", time.Hour.Milliseconds()).Err())
}

// cut lets every call to Redis fail while it is true.
func (r *rig) cut() *atomic.Bool {
	var away atomic.Bool
	r.before(func(redis.Cmder) error {
		if away.Load() {
			return errors.New("connection refused")
		}
		return nil
	})
	return &away
}

// workforce is a source with one mitra of each kind; available are a and b.
func workforce() *fake {
	full, off, away, busy := online("full"), online("off"), online("away"), online("b")
	full.Sessions, off.Active, away.Online, busy.Sessions = 3, false, false, 2
	return newFake(online("a"), busy, full, off, away, silent("silent"))
}

func TestTheSameAnswersComeFromRedisAndFromTheSource(t *testing.T) {
	onWhole(t, workforce(), func(r *rig) {
		r.listening(time.Hour)
		r.broughtAt(time.Now())
		away := r.cut()
		for _, from := range []Origin{FromValkey, FromPostgres} {
			away.Store(from == FromPostgres)
			ctx := r.ctx
			found := r.found(0)
			r.Equal(Answer[[]Available]{[]Available{{"a", 0}, {"b", 2}}, from, 0}, found, "the least busy first")
			r.Equal([]Available{{"a", 0}}, r.found(1).Value)
			r.Equal(Answer[int]{4, from, 0}, r.counted())
			for id, want := range map[string]bool{
				"a": true, "b": true, "full": true, "off": false, "away": false, "silent": false, "nobody": false,
			} {
				reachable, err := r.Reachable(ctx, id)
				r.NoError(err)
				r.Equal(Answer[bool]{want, from, 0}, reachable, id)
			}
			status := r.states("b")
			r.Equal(from, status.From)
			r.WithinDuration(time.Now(), status.Value.Heartbeat, time.Minute)
			status.Value.Heartbeat = time.Time{}
			r.Equal(MitraStatus{Version: 1, Online: true, Active: true, Sessions: 2, Fresh: true}, status.Value)
			_, err := r.Status(ctx, "nobody")
			r.ErrorIs(err, ErrNotFound)
			r.Equal(Snapshot{true, 2}, r.snapshots().Value)
		}
		r.InDelta(2, testutil.ToFloat64(r.metrics.reads.WithLabelValues("find_available", "postgres")), 0)
	})
}

func TestSilenceIsNotJudgedBeforeItWasListenedToForLongEnough(t *testing.T) {
	onWhole(t, workforce(), func(r *rig) {
		finds := func(n int, why string) {
			t.Helper()
			found := r.found(0)
			r.Equal(FromValkey, found.From)
			r.Len(found.Value, n, why)
		}
		finds(3, "nobody listens")
		r.listening(59 * time.Second)
		finds(3, "not for as long as a mitra may be silent")
		r.listening(61 * time.Second)
		finds(2, "the silent one is not counted")
		r.redis("HSET", r.keys.Witness(), "gap", "-1")
		finds(3, "the last tick is too long ago")
		r.listening(time.Hour)
		r.source.settings.RequirePing = false
		r.did(r.readSettings(r.ctx))
		finds(3, "silence does not matter")

		r.broughtAt(time.Now())
		r.source.settings.RequirePing = true
		s, err := r.readSettings(r.ctx)
		r.NoError(err)
		finds(3, "no app had to ping before")
		r.True(r.states("silent").Value.Fresh)
		r.Zero(r.cutoff(s), "nor does the source judge")
		r.required = r.required.Add(-s.StaleAfter)
		finds(2, "it could have been heard by now")
		r.NotZero(r.cutoff(s))

		r.source.settings.StaleAfter = s.PingInterval
		s, err = r.readSettings(r.ctx)
		r.NoError(err)
		finds(3, "even punctual apps are silent for so long")
		r.Zero(r.cutoff(s))
	})
}

func TestManyPagesAreOneAnswer(t *testing.T) {
	source := newFake()
	for i := range 2*findPage + 100 {
		source.put(online(fmt.Sprintf("%05d", i)))
	}
	onWhole(t, source, func(r *rig) {
		found := r.found(0)
		r.Equal(FromValkey, found.From)
		r.Len(found.Value, 2*findPage+100)
		ids := map[string]bool{}
		for _, a := range found.Value {
			ids[a.ID] = true
		}
		r.Len(ids, len(found.Value), "nobody twice")

		busy := online(fmt.Sprintf("%05d", 7))
		busy.Version, busy.Sessions = 2, 1
		r.did(r.apply(r.ctx, newer, busy))
		found = r.found(2*findPage + 99)
		r.Len(found.Value, 2*findPage+99)
		r.NotContains(found.Value, Available{busy.ID, 1}, "the least busy first, over all pages")
		found = r.found(0)
		r.Equal(Available{busy.ID, 1}, found.Value[2*findPage+99])
		r.Len(r.found(3).Value, 3)
	})
}

func TestABreakerKeepsReadsFromARedisThatIsAway(t *testing.T) {
	onWhole(t, workforce(), func(r *rig) {
		var calls atomic.Int64
		var away atomic.Bool
		away.Store(true)
		r.before(func(redis.Cmder) error {
			calls.Add(1)
			if away.Load() {
				return errors.New("connection refused")
			}
			return nil
		})
		for range 10 * tripsAfter {
			r.Equal(FromPostgres, r.counted().From)
		}
		r.Equal("open", r.Health().Redis)
		r.Less(calls.Load(), int64(10*tripsAfter))
		away.Store(false)
		r.eventually(func() bool {
			count, err := r.CountOnline(r.ctx)
			return err == nil && count.From == FromValkey
		}, "a second later it is tried again")
	})
}

func TestOnlySoManyAskTheSourceAtOnceAndABreakerIsBeforeItToo(t *testing.T) {
	onEmpty(t, workforce(), func(r *rig) {
		r.cut().Store(true)
		var at, most atomic.Int64
		var full sync.Once
		two := make(chan struct{}) // closed when two ask at once
		r.source.at("CountOnline", func() error {
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
			return nil
		})
		var work sync.WaitGroup
		for range 50 {
			work.Go(func() { _, _ = r.CountOnline(r.ctx) })
		}
		work.Wait()
		r.Equal(int64(2), most.Load())

		r.failing("CountOnline")
		before := r.source.asked("CountOnline")
		for range 10 * tripsAfter {
			_, err := r.CountOnline(r.ctx)
			r.ErrorIs(err, ErrUnavailable)
		}
		r.Less(r.source.asked("CountOnline")-before, 10*tripsAfter)
		r.Equal("open", r.Health().Source)
	}, func(c *Config) { c.Fallbacks = 2 })
}

func TestTheLastSnapshotIsServedWithItsAgeWhenNobodyCanAnswer(t *testing.T) {
	onWhole(t, workforce(), func(r *rig) {
		r.snapshots()
		r.cut().Store(true)
		r.failing("Available")
		r.mu.Lock()
		r.snapshot.at = time.Now().Add(-time.Hour)
		r.mu.Unlock()
		a := r.snapshots()
		r.Equal(FromStale, a.From)
		r.Equal(Snapshot{true, 3}, a.Value)
		r.InDelta(time.Hour, a.Age, float64(time.Minute))

		r.dropSnapshot()
		_, err := r.Snapshot(r.ctx)
		r.ErrorIs(err, ErrUnavailable)
	})
}

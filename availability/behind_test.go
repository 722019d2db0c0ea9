package availability

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// setBack has the source lose the last versions of a mitra, as a crash does, without another life.
func (f *fake) setBack(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[s.ID] = row{s, 1}
}

// failsAt lets the operation fail that is stored there, while everything runs.
func (f *fake) failsAt() *atomic.Value {
	var at atomic.Value
	f.fault.set(func(op string) error {
		if op == at.Load() {
			return errors.New("no answer")
		}
		return nil
	})
	return &at
}

func TestAWriteBehindLostCommitsIsInRedisWhenItIsAcknowledged(t *testing.T) {
	for name, lost := range map[string]int{"at a version that Redis has of a lost one": 1, "at one that is older": 5} {
		t.Run(name, func(t *testing.T) {
			redistest.OnReal(t, func(t *testing.T, w redistest.World) {
				source := newFake(online("a"))
				r := newRig(t, w, source)
				r.seeded()
				before := source.state("a")
				for range lost {
					_, err := r.Online(t.Context(), "a")
					require.NoError(t, err)
				}
				source.setBack(before)
				_, err := r.Deactivate(t.Context(), "a")
				require.NoError(t, err)
				r.same()
				beat, err := r.Heartbeat(t.Context(), "a")
				require.NoError(t, err)
				require.Equal(t, BeatDeactivated, beat)
				require.Equal(t, 1, r.drift(Ahead))
			})
		})
	}
}

// The failure of an outbid requests a comparison, which repairs the rest.
func TestAWriteBehindLostCommitsIsBroughtThoughTheSourceFailsJustThen(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"))
		fails := source.failsAt()
		r := newRig(t, w, source)
		r.run()
		before := source.state("a")
		_, err := r.Online(t.Context(), "a")
		require.NoError(t, err)
		r.looked()
		source.setBack(before)
		fails.Store("Outbid")
		_, err = r.Deactivate(t.Context(), "a")
		require.NoError(t, err)
		fails.Store("")
		r.eventually(func() bool { return len(r.differences()) == 0 }, "it is compared")
	})
}

func TestAnotherLifeIsRepairedComparedAndNotTrustedBefore(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"), online("b"))
		fails := source.failsAt()
		r := newRig(t, w, source)
		r.run()
		fails.Store("Page")
		wrong := source.state("b")
		wrong.Sessions = 2
		source.mu.Lock()
		source.base["b"], source.life = wrong, "another"
		source.mu.Unlock()
		r.eventually(func() bool { return r.Health().Behind > 0 }, "the status says so")
		a, err := r.Status(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, FromPostgres, a.From)
		r.eventually(func() bool { return r.mirrored("b").Sessions == 2 }, "states are repaired, and the feed goes on")
		require.Equal(t, 1, r.drift(Base))
		require.Positive(t, r.Health().Behind)
		fails.Store("")
		r.eventually(func() bool { return r.Health().Behind == 0 }, "all is compared")
		a, err = r.Status(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, FromValkey, a.From)
		r.same()
	})
}

// The server runs on, and its ids stay: somebody brought a backup of its keys back.
func TestARedisThatWasSetBackIsComparedBeforeItAnswers(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		ctx, require := t.Context(), require.New(t)
		b := online("b")
		b.Online = false
		source := newFake(online("a"), b)
		fails := source.failsAt()
		r := newRig(t, w, source)
		r.run()
		backup := map[string]string{}
		for _, key := range r.client.Keys(ctx, r.keys.Prefix+"*").Val() {
			backup[key] = r.client.Dump(ctx, key).Val()
		}
		_, err := r.Deactivate(ctx, "a")
		require.NoError(err)
		_, err = r.Online(ctx, "b")
		require.NoError(err)
		r.looked() // the backup has an older mark
		fails.Store("Page")
		for key, value := range backup {
			require.NoError(r.client.RestoreReplace(ctx, key, 0, value).Err())
		}
		r.eventually(func() bool { return r.Health().Behind > 0 }, "it is noticed")
		found, err := r.FindAvailable(ctx, 0)
		require.NoError(err)
		require.Equal(Answer[[]Available]{[]Available{{"b", 0}}, FromPostgres, 0}, found)
		fails.Store("")
		r.eventually(func() bool { return r.Health().Behind == 0 }, "all is compared")
		found, err = r.FindAvailable(ctx, 0)
		require.NoError(err)
		require.Equal(Answer[[]Available]{[]Available{{"b", 0}}, FromValkey, 0}, found)
		r.same()
	})
}

func TestReadsAskTheSourceWhileTheFeedDoesNotKnow(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"))
		r := newRig(t, w, source)
		r.seeded()
		reads := func(from Origin, count int) time.Duration {
			t.Helper()
			n, err := r.CountOnline(t.Context())
			require.NoError(t, err)
			require.Equal(t, count, n.Value)
			require.Equal(t, from, n.From)
			return n.Age
		}
		r.upToDate(time.Now())
		source.put(online("b"))
		require.Zero(t, reads(FromValkey, 1))
		require.Zero(t, r.Health().Behind)

		r.upToDate(time.Now().Add(-time.Hour))
		require.GreaterOrEqual(t, r.Health().Behind, time.Hour)
		require.Zero(t, reads(FromPostgres, 2))
		_, err := r.Status(t.Context(), "b")
		require.NoError(t, err, "Redis does not know it yet")
		require.InDelta(t, 1, testutil.ToFloat64(r.metrics.reads.WithLabelValues("count_online", "postgres")), 0)

		r.source.fault.set(func(string) error { return errors.New("no answer") })
		require.GreaterOrEqual(t, reads(FromValkey, 1), time.Hour, "the best there is, with its age")
		snapshot, err := r.Snapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, Snapshot{true, 1}, snapshot.Value)
		require.GreaterOrEqual(t, snapshot.Age, time.Hour, "it is of the same age")
		r.upToDate(time.Time{})
		require.Zero(t, reads(FromValkey, 1), "nobody follows the feed here")
	})
}

// A Redis that takes no writes keeps refusing somebody who has gone online, or was activated,
// since.
func TestNobodyIsRefusedAHeartbeatForWhatIsNoLongerTrue(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		for name, was := range map[Beat]State{
			BeatNotOnline:   {ID: "a", Version: 1, Active: true},
			BeatDeactivated: {ID: "a", Version: 1, Online: true},
		} {
			source := newFake(was)
			r := newRig(t, w, source)
			r.seeded()
			now := online("a")
			now.Version = 2
			source.put(now)
			beats := func(want Beat) {
				t.Helper()
				got, err := r.Heartbeat(t.Context(), "a")
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			r.upToDate(time.Now())
			beats(name)
			require.Equal(t, now, source.state("a"), "nobody is asked: it arrives within a second")
			r.upToDate(time.Now().Add(-time.Hour))
			beats(BeatKept)
			require.Greater(t, source.state("a").Version, now.Version, "the source has it")
			r.failing("Beat")
			beats(name)
		}
	})
}

func TestAFeedThatHangsIsGivenUpAndAllIsCompared(t *testing.T) {
	inTime(t, func(t *testing.T, w redistest.World, _ *line) {
		source := &hanging{fake: newFake(online("a"))}
		r := newRig(t, w, source.fake)
		r.Mirror.source, r.patience = source, callTimeout
		r.run()
		seeds := testutil.ToFloat64(r.metrics.seeds)
		source.hangs.Store(true)
		time.Sleep(2 * time.Second)
		require.Greater(t, r.Health().Behind, time.Second, "it is told within a second")
		source.hangs.Store(false)
		_, err := source.SetOnline(t.Context(), "a", false)
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.Zero(t, r.Health().Behind)
		r.same()
		require.InDelta(t, seeds+1, testutil.ToFloat64(r.metrics.seeds), 0)
	})
}

// hanging is a source whose feed does not answer while it hangs: its network is cut.
type hanging struct {
	*fake
	hangs atomic.Bool
}

func (h *hanging) Feed(ctx context.Context, since Cursor) ([]State, Cursor, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return nil, since, ctx.Err()
	}
	return h.fake.Feed(ctx, since)
}

func TestSnapshotsThatTakeLongAreComputedByOneAtATimeAndPause(t *testing.T) {
	inTime(t, func(t *testing.T, w redistest.World, _ *line) {
		source := newFake(online("a"))
		var asked atomic.Int64
		source.fault.set(func(op string) error {
			if op == "Available" {
				asked.Add(1)
				time.Sleep(8 * time.Second)
			}
			return nil
		})
		rigs := []*rig{newRig(t, w, source), newRig(t, w, source), newRig(t, w, source)}
		for range 600 { // a minute
			for _, r := range rigs {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				_, _ = r.Snapshot(ctx)
				cancel()
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, asked.Load(), int64(4), "8 s each, and 10 s until the next")
		require.GreaterOrEqual(t, asked.Load(), int64(3))

		time.Sleep(time.Minute)
		synctest.Wait() // nobody computes
		source.fault.set(func(op string) error {
			if op == "Available" {
				asked.Add(1)
				return errors.New("no answer")
			}
			return nil
		})
		asked.Store(0)
		for _, r := range rigs {
			r.patience = callTimeout
		}
		for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(100 * time.Millisecond) {
			for _, r := range rigs {
				_, err := r.Snapshot(t.Context())
				require.NoError(t, err, "the last one that it knew")
			}
		}
		require.LessOrEqual(t, asked.Load(), int64(12), "one that fails is not tried again at once")
		time.Sleep(time.Minute)
		synctest.Wait() // what was asked for last is over
	})
}

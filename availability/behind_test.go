package availability

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// setBack has the source lose the last versions of a mitra, as a crash does, without another life.
func (f *fake) setBack(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[s.ID] = row{s, 1}
}

func TestAWriteBehindLostCommitsIsInRedisWhenItIsAcknowledged(t *testing.T) {
	for name, lost := range map[string]int{"at a version that Redis has of a lost one": 1, "at one that is older": 5} {
		t.Run(name, func(t *testing.T) {
			onWhole(t, newFake(online("a")), func(r *rig) {
				source := r.source
				before := source.state("a")
				for range lost {
					r.did(r.Online(r.ctx, "a"))
				}
				source.setBack(before)
				r.did(r.Deactivate(r.ctx, "a"))
				r.same()
				r.beats("a", BeatDeactivated)
				r.Equal(1, r.drift(Ahead))
			})
		})
	}
}

// The failure of an outbid requests a comparison, which repairs the rest.
func TestAWriteBehindLostCommitsIsBroughtThoughTheSourceFailsJustThen(t *testing.T) {
	onEmpty(t, newFake(online("a")), func(r *rig) {
		source := r.source
		r.run()
		before := source.state("a")
		r.did(r.Online(r.ctx, "a"))
		r.looked()
		source.setBack(before)
		r.failing("Outbid")
		r.did(r.Deactivate(r.ctx, "a"))
		r.mended()
		r.eventually(func() bool { return len(r.differences()) == 0 }, "it is compared")
	})
}

func TestAnotherLifeIsRepairedComparedAndNotTrustedBefore(t *testing.T) {
	onEmpty(t, newFake(online("a"), online("b")), func(r *rig) {
		source := r.source
		r.run()
		r.failing("Page")
		wrong := source.state("b")
		wrong.Sessions = 2
		source.mu.Lock()
		source.base["b"], source.life = wrong, "another"
		source.mu.Unlock()
		r.eventually(func() bool { return r.Health().Behind > 0 }, "the status says so")
		r.Equal(FromPostgres, r.states("a").From)
		r.eventually(func() bool { return r.mirrored("b").Sessions == 2 }, "states are repaired, and the feed goes on")
		r.Equal(1, r.drift(Base))
		r.Positive(r.Health().Behind)
		r.mended()
		r.eventually(func() bool { return r.Health().Behind == 0 }, "all is compared")
		r.Equal(FromValkey, r.states("a").From)
		r.same()
	})
}

// The server runs on, and its ids stay: somebody brought a backup of its keys back.
func TestARedisThatWasSetBackIsComparedBeforeItAnswers(t *testing.T) {
	onEmpty(t, newFake(online("a"), State{ID: "b", Active: true}), func(r *rig) {
		ctx := r.ctx
		r.run()
		backup := map[string]string{}
		for _, key := range r.client.Keys(ctx, r.keys.Prefix+"*").Val() {
			backup[key] = r.client.Dump(ctx, key).Val()
		}
		r.did(r.Deactivate(ctx, "a"))
		r.did(r.Online(ctx, "b"))
		r.looked() // the backup has an older mark
		r.failing("Page")
		for key, value := range backup {
			r.NoError(r.client.RestoreReplace(ctx, key, 0, value).Err())
		}
		r.eventually(func() bool { return r.Health().Behind > 0 }, "it is noticed")
		r.Equal(Answer[[]Available]{[]Available{{"b", 0}}, FromPostgres, 0}, r.found(0))
		r.mended()
		r.eventually(func() bool { return r.Health().Behind == 0 }, "all is compared")
		r.Equal(Answer[[]Available]{[]Available{{"b", 0}}, FromValkey, 0}, r.found(0))
		r.same()
	})
}

func TestReadsAskTheSourceWhileTheFeedDoesNotKnow(t *testing.T) {
	onWhole(t, newFake(online("a")), func(r *rig) {
		source := r.source
		reads := func(from Origin, count int) time.Duration {
			t.Helper()
			n := r.counted()
			r.Equal(count, n.Value)
			r.Equal(from, n.From)
			return n.Age
		}
		r.upToDate(time.Now())
		source.put(online("b"))
		r.Zero(reads(FromValkey, 1))
		r.Zero(r.Health().Behind)

		r.upToDate(time.Now().Add(-time.Hour))
		r.GreaterOrEqual(r.Health().Behind, time.Hour)
		r.Zero(reads(FromPostgres, 2))
		r.states("b")
		r.InDelta(1, testutil.ToFloat64(r.metrics.reads.WithLabelValues("count_online", "postgres")), 0)

		r.source.fault.set(func(string) error { return errors.New("no answer") })
		r.GreaterOrEqual(reads(FromValkey, 1), time.Hour, "the best there is, with its age")
		snapshot := r.snapshots()
		r.Equal(Snapshot{true, 1}, snapshot.Value)
		r.GreaterOrEqual(snapshot.Age, time.Hour, "it is of the same age")
		r.upToDate(time.Time{})
		r.Zero(reads(FromValkey, 1), "nobody follows the feed here")
	})
}

// A Redis that takes no writes keeps refusing somebody who has gone online, or was activated,
// since.
func TestNobodyIsRefusedAHeartbeatForWhatIsNoLongerTrue(t *testing.T) {
	for name, was := range map[Beat]State{
		BeatNotOnline:   {ID: "a", Version: 1, Active: true},
		BeatDeactivated: {ID: "a", Version: 1, Online: true},
	} {
		t.Run(string(name), func(t *testing.T) {
			onWhole(t, newFake(was), func(r *rig) {
				now := online("a")
				now.Version = 2
				r.source.put(now)
				r.upToDate(time.Now())
				r.beats("a", name)
				r.Equal(now, r.source.state("a"), "nobody is asked: it arrives within a second")
				r.upToDate(time.Now().Add(-time.Hour))
				r.beats("a", BeatKept)
				r.Greater(r.source.state("a").Version, now.Version, "the source has it")
				r.failing("Beat")
				r.beats("a", name)
			})
		})
	}
}

func TestAFeedThatHangsIsGivenUpAndAllIsCompared(t *testing.T) {
	inTime(t, func(r *rig, _ *line) {
		source := &hanging{fake: r.source}
		r.Mirror.source, r.patience = source, callTimeout
		r.run()
		seeds := testutil.ToFloat64(r.metrics.seeds)
		source.hangs.Store(true)
		time.Sleep(2 * time.Second)
		r.Greater(r.Health().Behind, time.Second, "it is told within a second")
		source.hangs.Store(false)
		r.did(source.SetOnline(r.ctx, "a", false))
		time.Sleep(3 * time.Second)
		r.Zero(r.Health().Behind)
		r.same()
		r.InDelta(seeds+1, testutil.ToFloat64(r.metrics.seeds), 0)
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
	inTime(t, func(r *rig, _ *line) {
		source := r.source
		var asked atomic.Int64
		source.at("Available", func() error {
			asked.Add(1)
			time.Sleep(8 * time.Second)
			return nil
		})
		rigs := []*rig{r, r.another(source), r.another(source)}
		for range 600 { // a minute
			for _, r := range rigs {
				ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
				_, _ = r.Snapshot(ctx)
				cancel()
			}
			time.Sleep(100 * time.Millisecond)
		}
		r.LessOrEqual(asked.Load(), int64(4), "8 s each, and 10 s until the next")
		r.GreaterOrEqual(asked.Load(), int64(3))

		time.Sleep(time.Minute)
		synctest.Wait() // nobody computes
		source.at("Available", func() error {
			asked.Add(1)
			return errors.New("no answer")
		})
		asked.Store(0)
		for _, r := range rigs {
			r.patience = callTimeout
		}
		for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(100 * time.Millisecond) {
			for _, r := range rigs {
				_, err := r.Snapshot(r.ctx)
				r.NoError(err, "the last one that it knew")
			}
		}
		r.LessOrEqual(asked.Load(), int64(12), "one that fails is not tried again at once")
		time.Sleep(time.Minute)
		synctest.Wait() // what was asked for last is over
	})
}

package availability

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// wrongVersions are fields that no writer of ours stores.
var wrongVersions = []string{
	"", "x", "nan", "-nan", "inf", "1e300", "1e3", "0x10", "-5", "1.5", " 7", "7 ",
	"999999999999999", "9007199254740993", "9223372036854775807", "99999999999999999999",
}

func TestACallerWithoutTimeTripsNothing(t *testing.T) {
	onWhole(t, workforce(), func(r *rig) {
		late, cancel := context.WithDeadline(r.ctx, time.Now())
		defer cancel()
		for range 2 * tripsAfter {
			_, err := r.Heartbeat(late, "a")
			r.Error(err)
			_, err = r.CountOnline(late)
			r.Error(err)
		}
		r.Equal("closed", r.Health().Redis)
		r.Equal("closed", r.Health().Source)
	})
}

func TestAnIDIsTheSameInCapitals(t *testing.T) {
	const lower, upper = "0fa0b2c3-1111-4111-8111-abcdefabcdef", "0FA0B2C3-1111-4111-8111-ABCDEFABCDEF"
	onWhole(t, newFake(online(lower)), func(r *rig) {
		r.beats(upper, BeatKept)
		reachable, err := r.Reachable(r.ctx, upper)
		r.NoError(err)
		r.True(reachable.Value)
		r.Zero(r.client.Exists(r.ctx, r.keys.heartbeat(upper)).Val())
	})
}

func TestSilenceWhilePingsWereNotRequiredIsNoSilence(t *testing.T) {
	swept(t, []State{silent("a")}, func(l *leader) {
		ping := func(required bool) {
			l.source.mu.Lock()
			defer l.source.mu.Unlock()
			l.source.settings.RequirePing = required
		}
		ping(false)
		l.sweeps(janitor.Done)
		ping(true)
		l.sweeps(janitor.Held)
		l.Equal(heldListening, l.Health().Offline)
		l.Empty(l.source.flips)
		s, err := l.readSettings(l.ctx)
		l.NoError(err)
		l.required, l.free = time.Time{}, time.Time{} // as in a replica that began afterwards
		l.True(l.judges(s))
		l.NoError(newFeed(l.Mirror).look(l.ctx))
		l.False(l.judges(s))
		// Long ago it was required.
		at := time.Now().Add(-never - 2*l.source.settings.StaleAfter).UnixMilli()
		l.redis("HSET", l.keys.noted(), notRequired, at)
		l.Equal(1, l.offline().Evicted)
		l.Len(l.source.flips, 1)
		l.required, l.free = time.Time{}, time.Time{}
		l.NoError(newFeed(l.Mirror).look(l.ctx))
		l.True(l.judges(s))
	})
}

func TestASettingThatCannotBeReadAgainIsNotAnsweredAsItWas(t *testing.T) {
	onEmpty(t, newFake(), func(r *rig) {
		r.did(r.Settings(r.ctx))
		r.failing("Settings")
		r.ErrorContains(r.PutSetting(r.ctx, "stale_after_seconds", 77), "stale_after_seconds is stored, but")
		r.mended()
		r.NoError(r.PutSetting(r.ctx, "stale_after_seconds", 77))
	})
}

func TestNothingIsSeededFromASourceWhoseFeedCannotBeRead(t *testing.T) {
	onEmpty(t, newFake(online("a")), func(r *rig) {
		f := newFeed(r.Mirror)
		r.NoError(f.look(r.ctx))
		r.redis("DEL", r.keys.seeded())
		r.failing("Feed") // as a standby: it has pages, and they may be old
		r.Error(f.look(r.ctx))
		r.Zero(r.client.Exists(r.ctx, r.keys.seeded()).Val())
		r.mended()
		f.rests = time.Time{}
		r.NoError(f.look(r.ctx))
		r.Equal(int64(1), r.client.Exists(r.ctx, r.keys.seeded()).Val())
	})
}

func TestTheSourceJudgesSilenceOnlyFromHeartbeatsThatWereBroughtToIt(t *testing.T) {
	swept(t, []State{silent("a")}, func(l *leader) {
		f := newFeed(l.Mirror)
		l.NoError(f.look(l.ctx))
		settings, err := l.Settings(l.ctx)
		l.NoError(err)
		l.WithinDuration(time.Now().Add(-settings.StaleAfter-never), l.cutoff(settings), time.Minute)
		// Nobody leads for a while. Meanwhile Redis takes heartbeats that do not reach the source.
		l.stop()
		long := time.Now().Add(-never)
		l.redis("HSET", l.keys.noted(), heartbeatsAt, long.UnixMilli())
		l.NoError(f.look(l.ctx))
		l.WithinDuration(long.Add(-settings.StaleAfter-never), l.cutoff(settings), time.Minute)
		// Redis is emptied, and seeded.
		l.redis("DEL", l.keys.noted())
		l.NoError(f.look(l.ctx))
		l.WithinDuration(long.Add(-settings.StaleAfter-never), l.cutoff(settings), time.Minute)
	})
}

func TestASettingThatWasReadLateDoesNotUndoANewerOne(t *testing.T) {
	onEmpty(t, newFake(), func(r *rig) {
		slow, goOn := make(chan struct{}), make(chan struct{})
		r.source.at("Settings committed", func() error {
			r.mended()
			close(slow)
			<-goOn
			return fmt.Errorf("%w: stale_after_seconds: soon", ErrSetting)
		})
		ended := make(chan error)
		go func() { _, err := r.readSettings(context.Background()); ended <- err }()
		<-slow
		r.NoError(r.PutSetting(r.ctx, "stale_after_seconds", 77))
		close(goOn)
		r.ErrorIs(<-ended, ErrSetting)
		r.Empty(r.Health().SettingsError, "what was wrong is mended since")
		settings, err := r.Settings(r.ctx)
		r.NoError(err)
		r.Equal(77*time.Second, settings.StaleAfter)
	})
}

func TestALeaseThatMakesNoSenseIsInNobodysWay(t *testing.T) {
	onEmpty(t, newFake(online("a")), func(r *rig) {
		for _, until := range append(wrongVersions, fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())) {
			r.redis("HSET", r.keys.fed(), "by", "other", "until", until, "upto", until)
			f := newFeed(r.Mirror)
			r.NoError(f.look(r.ctx))
			r.True(f.feeding, until)
			r.same()
			f.leave(r.ctx)
		}
	})
}

func TestABreakerOutlivesAPanic(t *testing.T) {
	t.Parallel()
	b := newBreaker("test")
	for range tripsAfter {
		require.Panics(t, func() { _ = b.do(t.Context(), func() error { panic("a bug") }) })
	}
	require.Equal(t, "open", b.State().String())
}

func TestReadsStayInARedisThatTakesNoWrites(t *testing.T) {
	for name, config := range map[string]func(r *rig) error{
		"because its memory is full": func(r *rig) error {
			return r.client.ConfigSet(r.t.Context(), "maxmemory", "1").Err()
		},
		"because it became a replica": func(r *rig) error {
			return r.client.Do(r.t.Context(), "REPLICAOF", "127.0.0.1", "1").Err()
		},
		"because it has no replicas": func(r *rig) error {
			return r.client.ConfigSet(r.t.Context(), "min-replicas-to-write", "1").Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			w := redistest.World{Client: server.Client(), Options: server.Options(), Real: true}
			r := newRig(t, w, workforce())
			r.seeded()
			r.listening(time.Hour)
			r.NoError(config(r))
			for range 2 * tripsAfter {
				_, err := r.Heartbeat(r.ctx, "a")
				r.Error(err)
				_, err = r.Online(r.ctx, "a")
				r.NoError(err, "the source decides")
				r.Equal(FromValkey, r.found(0).From)
				r.Equal(FromValkey, r.states("a").From)
				r.Equal(Snapshot{true, 2}, r.snapshots().Value)
			}
			r.Equal("closed", r.Health().Redis)
			r.InDelta(1, testutil.ToFloat64(r.metrics.computed), 0)
		})
	}
}

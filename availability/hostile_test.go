package availability

import (
	"context"
	"errors"
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
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, workforce())
		r.seeded()
		late, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		for range 2 * tripsAfter {
			_, err := r.Heartbeat(late, "a")
			require.Error(t, err)
			_, err = r.CountOnline(late)
			require.Error(t, err)
		}
		require.Equal(t, "closed", r.Health().Redis)
		require.Equal(t, "closed", r.Health().Source)
	})
}

func TestAnIDIsTheSameInCapitals(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		const lower, upper = "0fa0b2c3-1111-4111-8111-abcdefabcdef", "0FA0B2C3-1111-4111-8111-ABCDEFABCDEF"
		r := newRig(t, w, newFake(online(lower)))
		r.seeded()
		beat, err := r.Heartbeat(t.Context(), upper)
		require.NoError(t, err)
		require.Equal(t, BeatKept, beat)
		reachable, err := r.Reachable(t.Context(), upper)
		require.NoError(t, err)
		require.True(t, reachable.Value)
		require.Zero(t, r.client.Exists(t.Context(), r.keys.heartbeat(upper)).Val())
	})
}

func TestSilenceWhilePingsWereNotRequiredIsNoSilence(t *testing.T) {
	swept(t, []State{silent("a")}, func(t *testing.T, l *leader) {
		require := require.New(t)
		ping := func(required bool) {
			l.source.mu.Lock()
			defer l.source.mu.Unlock()
			l.source.settings.RequirePing = required
		}
		ping(false)
		require.Equal(janitor.Done, l.offline().Outcome)
		ping(true)
		require.Equal(janitor.Held, l.offline().Outcome)
		require.Equal(heldListening, l.Health().Offline)
		require.Empty(l.source.flips)
		s, err := l.readSettings(t.Context())
		require.NoError(err)
		l.required, l.free = time.Time{}, time.Time{} // as in a replica that began afterwards
		require.True(l.judges(s))
		require.NoError(newFeed(l.Mirror).look(t.Context()))
		require.False(l.judges(s))
		// Long ago it was required.
		at := time.Now().Add(-never - 2*l.source.settings.StaleAfter).UnixMilli()
		require.NoError(l.client.HSet(t.Context(), l.keys.noted(), notRequired, at).Err())
		require.Equal(1, l.offline().Evicted)
		require.Len(l.source.flips, 1)
		l.required, l.free = time.Time{}, time.Time{}
		require.NoError(newFeed(l.Mirror).look(t.Context()))
		require.True(l.judges(s))
	})
}

func TestASettingThatCannotBeReadAgainIsNotAnsweredAsItWas(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake())
		_, err := r.Settings(t.Context())
		require.NoError(t, err)
		r.failing("Settings")
		require.ErrorContains(t, r.PutSetting(t.Context(), "stale_after_seconds", 77), "stale_after_seconds is stored, but")
		r.source.fault.set(func(string) error { return nil })
		require.NoError(t, r.PutSetting(t.Context(), "stale_after_seconds", 77))
	})
}

func TestNothingIsSeededFromASourceWhoseFeedCannotBeRead(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(online("a")))
		f := newFeed(r.Mirror)
		require.NoError(t, f.look(t.Context()))
		require.NoError(t, r.client.Del(t.Context(), r.keys.seeded()).Err())
		r.source.fault.set(func(op string) error { // as a standby: it has pages, and they may be old
			if op == "Feed" {
				return errors.New("recovery is in progress")
			}
			return nil
		})
		require.Error(t, f.look(t.Context()))
		require.Zero(t, r.client.Exists(t.Context(), r.keys.seeded()).Val())
		r.source.fault.set(func(string) error { return nil })
		f.rests = time.Time{}
		require.NoError(t, f.look(t.Context()))
		require.Equal(t, int64(1), r.client.Exists(t.Context(), r.keys.seeded()).Val())
	})
}

func TestTheSourceJudgesSilenceOnlyFromHeartbeatsThatWereBroughtToIt(t *testing.T) {
	swept(t, []State{silent("a")}, func(t *testing.T, l *leader) {
		f := newFeed(l.Mirror)
		require.NoError(t, f.look(t.Context()))
		settings, err := l.Settings(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(-settings.StaleAfter-never), l.cutoff(settings), time.Minute)
		// Nobody leads for a while. Meanwhile Redis takes heartbeats that do not reach the source.
		l.stop()
		long := time.Now().Add(-never)
		require.NoError(t, l.client.HSet(t.Context(), l.keys.noted(), heartbeatsAt, long.UnixMilli()).Err())
		require.NoError(t, f.look(t.Context()))
		require.WithinDuration(t, long.Add(-settings.StaleAfter-never), l.cutoff(settings), time.Minute)
		// Redis is emptied, and seeded.
		require.NoError(t, l.client.Del(t.Context(), l.keys.noted()).Err())
		require.NoError(t, f.look(t.Context()))
		require.WithinDuration(t, long.Add(-settings.StaleAfter-never), l.cutoff(settings), time.Minute)
	})
}

func TestASettingThatWasReadLateDoesNotUndoANewerOne(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake())
		slow, goOn := make(chan struct{}), make(chan struct{})
		r.source.fault.set(func(op string) error {
			if op == "Settings committed" {
				r.source.fault.set(func(string) error { return nil })
				close(slow)
				<-goOn
				return fmt.Errorf("%w: stale_after_seconds: soon", ErrSetting)
			}
			return nil
		})
		ended := make(chan error)
		go func() { _, err := r.readSettings(context.Background()); ended <- err }()
		<-slow
		require.NoError(t, r.PutSetting(t.Context(), "stale_after_seconds", 77))
		close(goOn)
		require.ErrorIs(t, <-ended, ErrSetting)
		require.Empty(t, r.Health().SettingsError, "what was wrong is mended since")
		settings, err := r.Settings(t.Context())
		require.NoError(t, err)
		require.Equal(t, 77*time.Second, settings.StaleAfter)
	})
}

func TestALeaseThatMakesNoSenseIsInNobodysWay(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		for _, until := range append(wrongVersions, fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())) {
			r := newRig(t, w, newFake(online("a")))
			require.NoError(t, r.client.HSet(t.Context(), r.keys.fed(), "by", "other", "until", until, "upto", until).Err())
			f := newFeed(r.Mirror)
			require.NoError(t, f.look(t.Context()))
			require.True(t, f.feeding, until)
			r.same()
			f.leave(t.Context())
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
			require.NoError(t, config(r))
			for range 2 * tripsAfter {
				_, err := r.Heartbeat(t.Context(), "a")
				require.Error(t, err)
				_, err = r.Online(t.Context(), "a")
				require.NoError(t, err, "the source decides")
				found, err := r.FindAvailable(t.Context(), 0)
				require.NoError(t, err)
				require.Equal(t, FromValkey, found.From)
				status, err := r.Status(t.Context(), "a")
				require.NoError(t, err)
				require.Equal(t, FromValkey, status.From)
				snapshot, err := r.Snapshot(t.Context())
				require.NoError(t, err)
				require.Equal(t, Snapshot{true, 2}, snapshot.Value)
			}
			require.Equal(t, "closed", r.Health().Redis)
			require.InDelta(t, 1, testutil.ToFloat64(r.metrics.computed), 0)
		})
	}
}

package availability

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// order notes in which order the source and Redis are asked.
type order struct {
	mu    sync.Mutex
	steps []string
}

func (o *order) note(step string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.steps = append(o.steps, step)
}

func (o *order) taken() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	steps := o.steps
	o.steps = nil
	return steps
}

// commands is a hook that sees each script and may refuse it.
type commands struct{ refuse func(cmd redis.Cmder) error }

func (commands) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := h.refuse(cmd); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func (h commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.refuse(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func extend(r *rig, paid bool) func(context.Context, string) (Session, error) {
	return func(ctx context.Context, id string) (Session, error) { return r.Extend(ctx, id, paid) }
}

// writers are all that change something, each as a step from the state before.
func writers(r *rig) []struct {
	name, op string
	do       func(ctx context.Context) error
} {
	state := func(f func(context.Context, string) (State, error), id string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := f(ctx, id); return err }
	}
	session := func(f func(context.Context, string) (Session, error), id string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := f(ctx, id); return err }
	}
	ends := func(id, status string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := r.End(ctx, id, status); return err }
	}
	to := func(f func(context.Context, string, string) (Session, error), id, mitra string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := f(ctx, id, mitra); return err }
	}
	return []struct {
		name, op string
		do       func(ctx context.Context) error
	}{
		{"online", "SetOnline", state(r.Online, "a")},
		{"accept", "Accept", to(r.Accept, "s1", "a")},
		{"accept another", "Accept", to(r.Accept, "s2", "a")},
		{"accept a third", "Accept", to(r.Accept, "s3", "a")},
		{"ask for a payment", "Extend", session(extend(r, false), "s1")},
		{"reroute", "Reroute", to(r.Reroute, "s1", "b")},
		{"extend", "Extend", session(extend(r, true), "s1")},
		{"end", "End", ends("s1", "completed")},
		{"cancel", "End", ends("s2", "cancelled")},
		{"expire", "End", ends("s3", "expired")},
		{"deactivate", "SetActive", state(r.Deactivate, "a")},
		{"activate", "SetActive", state(r.Activate, "a")},
		{"offline", "SetOnline", state(r.Offline, "a")},
	}
}

// searching makes sessions that are searching.
func (f *fake) searching(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.sessions[id] = Session{ID: id, Status: "searching"}
	}
}

func TestEachWriterCommitsInTheSourceFirstAndBringsItRightAfter(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(State{ID: "a", Active: true}, State{ID: "b", Active: true})
		source.searching("s1", "s2", "s3")
		r := newRig(t, w, source)
		r.seeded()
		_, err := r.Settings(t.Context())
		require.NoError(t, err)
		var o order
		source.fault.set(func(op string) error { o.note(op); return nil })
		r.rdb.AddHook(commands{func(redis.Cmder) error {
			o.note("redis")
			return nil
		}})
		for _, c := range writers(r) {
			require.NoError(t, c.do(t.Context()), c.name)
			// The first time, the server asks for the script's text.
			require.Equal(t, []string{c.op, c.op + " committed", "redis"}, slices.Compact(o.taken()), c.name)
			r.same()
		}
		require.Equal(t, "completed", source.sessions["s1"].Status)
		require.Equal(t, "cancelled", source.sessions["s2"].Status)
		require.Equal(t, "expired", source.sessions["s3"].Status)
	})
}

func TestWhatTheSourceRefusesIsNotBroughtToRedis(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(State{ID: "a", Active: true})
		source.searching("s1", "s2", "s3")
		r := newRig(t, w, source)
		r.seeded()
		failed := errors.New("no disk")
		source.fault.set(func(op string) error {
			if op == "Settings" {
				return nil
			}
			return failed
		})
		for _, c := range writers(r) {
			require.ErrorIs(t, c.do(t.Context()), failed, c.name)
			require.Equal(t, int64(1), r.mirrored("a").Version, c.name)
		}
	})
}

func TestAWriteStandsThoughRedisIsAwayAndTheFeedBringsIt(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(State{ID: "a", Active: true}, State{ID: "b", Active: true})
		source.searching("s1", "s2", "s3")
		r := newRig(t, w, source)
		r.seeded()
		_, err := r.Settings(t.Context())
		require.NoError(t, err)
		away := true
		r.rdb.AddHook(commands{func(redis.Cmder) error {
			if away {
				return errors.New("connection refused")
			}
			return nil
		}})
		all := writers(r)
		for _, c := range all {
			require.NoError(t, c.do(t.Context()), c.name)
		}
		require.InDelta(t, len(all), testutil.ToFloat64(r.metrics.applyFailed), 0, "each is counted")
		require.Len(t, r.differences(), 2)
		f := newFeed(r.Mirror)
		f.cursor = Cursor{Xmin: 1}
		require.Error(t, f.read(t.Context()))
		away = false
		require.NoError(t, f.read(t.Context()), "from where the last one began that arrived")
		r.same()
	})
}

func TestAWriteWhoseCallerWentAwayStillReachesRedis(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(State{ID: "a", Active: true})
		r := newRig(t, w, source)
		r.seeded()
		ctx, cancel := context.WithCancel(t.Context())
		source.fault.set(func(op string) error {
			if op == "SetOnline committed" {
				cancel()
			}
			return nil
		})
		_, err := r.Online(ctx, "a")
		require.NoError(t, err)
		r.same()
	})
}

func TestARerouteIsSeenOnBothOrOnNeither(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"), online("b"))
		source.searching("s")
		r := newRig(t, w, source)
		r.seeded()
		_, err := r.Accept(t.Context(), "s", "a")
		require.NoError(t, err)
		stop, ended := make(chan struct{}), make(chan int)
		go func() {
			for wrong := 0; ; {
				select {
				case <-stop:
					ended <- wrong
					return
				default:
				}
				n, err := r.client.MGet(context.Background(), r.keys.capacity("a"), r.keys.capacity("b")).Result()
				if err != nil || fmt.Sprint(n) != "[1 0]" && fmt.Sprint(n) != "[0 1]" {
					wrong++
				}
			}
		}()
		for i := range 100 {
			_, err := r.Reroute(t.Context(), "s", []string{"b", "a"}[i%2])
			require.NoError(t, err)
		}
		close(stop)
		require.Zero(t, <-ended)
		r.same()
	})
}

func TestAHeartbeatIsOneRoundTripAndAsksNoSource(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"))
		r := newRig(t, w, source)
		r.seeded()
		_, err := r.Heartbeat(t.Context(), "a") // the server knows the script then
		require.NoError(t, err)
		before := r.mirrored("a").Seen
		calls, asked := 0, 0
		r.rdb.AddHook(commands{func(redis.Cmder) error { calls++; return nil }})
		source.fault.set(func(string) error { asked++; return nil })
		r.later(before)
		beat, err := r.Heartbeat(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, BeatKept, beat)
		require.Equal(t, 1, calls)
		require.Zero(t, asked)
		require.True(t, r.mirrored("a").Seen.After(before))
		require.Equal(t, time.Duration(-1), r.client.TTL(t.Context(), r.keys.heartbeat("a")).Val(), "no TTL")
	})
}

func TestAHeartbeatIsOfTheServersTimeWhateverTheClientBelieves(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(online("a")))
		r.seeded()
		ctx, keys := t.Context(), []string{r.keys.heartbeat("a")}
		for _, ahead := range []time.Duration{-time.Hour, -time.Minute, 0, time.Minute, time.Hour} {
			before, err := r.client.Time(ctx).Result()
			require.NoError(t, err)
			minute := before.UTC().Truncate(time.Minute).Add(ahead)
			require.NoError(t, heartbeatScript.Run(ctx, r.rdb, keys, "a", minute.Unix(),
				minute.Format("2006-01-02T15:04:")).Err())
			after, err := r.client.Time(ctx).Result()
			require.NoError(t, err)
			seen := r.mirrored("a").Seen
			require.False(t, seen.Before(before.Truncate(time.Millisecond)), "%s ahead", ahead)
			require.False(t, seen.After(after), "%s ahead", ahead)
			require.Len(t, r.client.Get(ctx, keys[0]).Val(), len(isoMS))
		}
	})
}

func TestAHeartbeatIsRefusedByName(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		off := online("off")
		off.Active = false
		source := newFake(online("a"), off, State{ID: "offline", Active: true})
		r := newRig(t, w, source)
		r.seeded()
		ctx := t.Context()
		beats := func(id string, want Beat) {
			t.Helper()
			before := r.client.Get(ctx, r.keys.heartbeat(id)).Val()
			got, err := r.Heartbeat(ctx, id)
			require.NoError(t, err)
			require.Equal(t, want, got)
			if want == BeatDeactivated || want == BeatNotOnline {
				require.Equal(t, before, r.client.Get(ctx, r.keys.heartbeat(id)).Val(), "nothing is written")
			}
		}
		beats("a", BeatKept)
		beats("off", BeatDeactivated)
		beats("offline", BeatNotOnline)
		beats("nobody", BeatNotOnline)

		require.NoError(t, r.client.Del(ctx, r.keys.seeded()).Err())
		beats("a", BeatUnseeded)
		beats("offline", BeatUnseeded)
		beats("off", BeatDeactivated)
		r.seeded()
		require.True(t, r.mirrored("offline").Seen.IsZero(), "a seeding takes the heartbeat of one who is offline")

		_, err := r.Online(ctx, "offline")
		require.NoError(t, err)
		beats("offline", BeatKept)
		_, err = r.Deactivate(ctx, "a")
		require.NoError(t, err)
		beats("a", BeatDeactivated)
	})
}

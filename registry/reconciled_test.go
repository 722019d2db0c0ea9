package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// reconciled counts calls of Config.OnReconciled, each of which must find every entry in Redis.
type reconciled struct {
	calls atomic.Int64
	early atomic.Int64 // an entry was missing
}

func (c *reconciled) hook(w *bubble, entries int64) func(*registry.Config) {
	return func(cfg *registry.Config) {
		cfg.OnReconciled = func() {
			c.calls.Add(1)
			if w.HLen(context.Background(), w.Registry()).Val() != entries {
				c.early.Add(1)
			}
		}
	}
}

func TestTheCallerIsToldWhenEverythingIsBack(t *testing.T) {
	t.Parallel()
	const n = 2000
	for name, lose := range map[string]func(t *testing.T, w *bubble, r *replica){
		"after FLUSHALL": func(t *testing.T, w *bubble, _ *replica) {
			require.NoError(t, w.FlushAll(t.Context()).Err())
		},
		"after a hold in which entries may be lost": func(t *testing.T, w *bubble, _ *replica) {
			require.NoError(t, w.HSet(t.Context(), w.Witness(), "since", "7", "lost", "7", "reason", "gap").Err())
		},
		"after its own silence": func(t *testing.T, w *bubble, _ *replica) {
			w.Del(t.Context(), w.Heartbeat("r1"), w.Registry(), w.Devices("r1"))
		},
		"after one entry was lost": func(t *testing.T, w *bubble, _ *replica) {
			require.NoError(t, w.HDel(t.Context(), w.Registry(), "imei-7").Err())
		},
		"after calls that failed": func(_ *testing.T, _ *bubble, r *replica) {
			r.data.set(always, nil)
			r.control.set(always, nil)
			time.Sleep(40 * time.Second)
			r.data.set(nil, nil)
			r.control.set(nil, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				var told reconciled
				w.HSet(t.Context(), w.Witness(), "since", "1", "last", "1", "lost", "1", "reason", "gap")
				r := w.start("r1", told.hook(w, n))
				r.registerMany(t, n)
				time.Sleep(10 * time.Minute)
				require.Zero(t, told.calls.Load(), "nothing was lost")

				lose(t, w, r)
				time.Sleep(6 * time.Minute) // ten intervals find a single entry
				synctest.Wait()
				require.EqualValues(t, 1, told.calls.Load())
				require.Zero(t, told.early.Load())
				w.end(r)
			})
		})
	}
}

func TestTheCallerIsToldOnceAnIntervalAndAlwaysOfTheLast(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told reconciled
		r := w.start("r1", told.hook(w, 1))
		c := r.register(t, "imei")
		for range 60 {
			require.NoError(t, w.HDel(t.Context(), w.Registry(), "imei").Err())
			frame(c)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		calls := told.calls.Load()
		require.GreaterOrEqual(t, calls, int64(3))
		require.LessOrEqual(t, calls, int64(8), "once an interval")
		require.NoError(t, w.HDel(t.Context(), w.Registry(), "imei").Err())
		frame(c)
		time.Sleep(time.Minute)
		require.Equal(t, calls+1, told.calls.Load())
		w.end(r)
	})
}

func TestTheCallerIsNotToldWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told reconciled
		r := w.start("r1", told.hook(w, 1))
		r.data.set(always, nil)
		r.control.set(always, nil)
		c := r.Register("imei")
		time.Sleep(5 * time.Minute)
		require.Zero(t, told.calls.Load())
		r.data.set(nil, nil)
		r.control.set(nil, nil)
		require.NoError(t, c.Wait(t.Context()))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, told.calls.Load())
		require.Zero(t, told.early.Load())
		w.end(r)
	})
}

// An index by user, kept beside the entries, survives what Redis loses, while others come and go.
func TestAnIndexBesideTheEntriesIsPutBackOnARealRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	opt := srv.Options()
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = time.Second, time.Second, time.Second
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	defer rdb.Close()
	defer ctl.Close()
	var lost atomic.Bool
	again := make(chan struct{}, 1)
	r, err := registry.New(registry.Config{
		Client: rdb, Control: ctl, Instance: "r1", Logger: slog.New(slog.DiscardHandler),
		HeartbeatInterval: 3 * time.Second, HeartbeatTTL: 9 * time.Second,
		OnReconciled: func() {
			select {
			case again <- struct{}{}:
			default:
			}
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	ids := []string{"alice|phone", "alice|tablet"}
	claims := make([]*registry.Claim, 0, len(ids))
	for _, id := range ids {
		claims = append(claims, r.Register(id))
		require.NoError(t, claims[len(claims)-1].Wait(ctx))
		require.NoError(t, rdb.ZAdd(ctx, "online", redis.Z{Member: id}).Err())
	}
	crowd := make(chan struct{})
	go func() { // some write is always under way
		defer close(crowd)
		for i := 0; !lost.Load() || len(again) == 0 && ctx.Err() == nil; i++ {
			c := r.Register(fmt.Sprint("bob|", i%50))
			if err := c.Wait(ctx); errors.Is(err, context.Canceled) {
				return
			}
			c.Release()
		}
	}()
	require.NoError(t, rdb.FlushAll(ctx).Err())
	lost.Store(true)
	<-crowd
	<-again
	require.NoError(t, rdb.ZAdd(ctx, "online", redis.Z{Member: ids[0]}, redis.Z{Member: ids[1]}).Err())
	owners, err := r.LookupMany(ctx, ids)
	require.NoError(t, err)
	require.Equal(t, registry.Owner{Instance: "r1", Live: true}, owners[ids[0]])
	require.Equal(t, registry.Owner{Instance: "r1", Live: true}, owners[ids[1]])
	for _, c := range claims {
		c.Release()
	}
	waittest.Until(t, 10*time.Millisecond, func() bool { return r.Status().Devices == 0 })
	cancel()
	require.NoError(t, <-ended)
}

func TestASupersededClaimSaysSo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		over := func(c *registry.Claim) bool {
			select {
			case <-c.Superseded():
				return true
			default:
				return false
			}
		}
		r1, r2 := w.start("r1"), w.start("r2")
		first := r1.register(t, "alice|phone")
		watched := first.Superseded()
		require.Equal(t, watched, first.Superseded())
		require.False(t, over(first))
		other := r1.register(t, "alice|tablet")
		second := r1.Register("alice|phone")
		<-watched // closed before Register returns
		third := r1.register(t, "alice|phone")
		require.True(t, over(second), "nobody had asked when it was")
		require.False(t, over(third))
		require.False(t, over(other))

		moved := r2.register(t, "alice|phone")
		synctest.Wait()
		require.False(t, over(third), "of another replica OnDisplaced tells")
		third.Release()
		moved.Release()
		require.False(t, over(third), "a release supersedes nothing")
		last := r1.register(t, "alice|phone")
		require.False(t, over(third), "a socket that has closed was not superseded")
		w.end(r1)
		late := r1.Register("alice|phone")
		require.True(t, over(last), "Run has ended")
		require.False(t, over(late))
		w.end(r2)
	})
}

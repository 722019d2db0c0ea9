package registry_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

func TestARegistrationThatFailsIsCountedOnceHoweverOftenItIsTried(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		r := w.start("r1")
		r.data.set(always, nil)
		r.Register(t.Context(), "tried at once")
		synctest.Wait()
		require.InDelta(t, 1, r.failures("register"), 0)
		r.Register(t.Context(), "tried too late") // the writer waits after its failure
		time.Sleep(10 * r.Interval())
		synctest.Wait()
		require.InDelta(t, 2, r.failures("register"), 0)
		require.Greater(t, r.failures("heal"), 10.0)
		w.kill(r)
	})
}

func TestTheHeartbeatSaysWhenItWasWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		r := w.start("r1")
		written := func() time.Time {
			at, _, ok := strings.Cut(w.Get(t.Context(), w.Heartbeat("r1")).Val(), "/")
			require.True(t, ok)
			ms, err := strconv.ParseInt(at, 10, 64)
			require.NoError(t, err)
			return time.UnixMilli(ms)
		}
		require.WithinDuration(t, time.Now(), written(), time.Millisecond)
		for range 3 {
			time.Sleep(r.Interval())
			synctest.Wait()
			require.WithinDuration(t, r.Status().LastBeat, written(), time.Millisecond)
		}
		w.end(r)
	})
}

func TestTheWholeRegistryIsScannedForAFormerLifeOnly(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]int64{"r1": 1, "": 0} { // one that was made up here had none
		inBubble(t, func(t *testing.T, w *world) {
			var scans, looks atomic.Int64
			r := w.start(id, func(c *registry.Config) {
				see := &faults{}
				see.set(func(cmd redis.Cmder) error {
					switch cmd.Name() {
					case "hscan":
						scans.Add(1)
					case "sscan":
						looks.Add(1)
					}
					return nil
				}, nil)
				c.Client.(*redis.Client).AddHook(see)
			})
			r.register(t, "imei")
			require.Equal(t, want, scans.Load())
			before := looks.Load()
			w.Del(t.Context(), w.Devices(r.Instance())) // the index is lost
			time.Sleep(2 * r.Interval())
			synctest.Wait()
			require.Greater(t, looks.Load(), before, "the index is compared again")
			require.Equal(t, want, scans.Load())
			require.Equal(t, []string{"imei"}, w.SMembers(t.Context(), w.Devices(r.Instance())).Val())
			w.end(r)
		})
	}
}

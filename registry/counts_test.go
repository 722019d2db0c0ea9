package registry_test

import (
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestTheWholeRegistryIsScannedForAFormerLifeOnly(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]int64{"r1": 1, "": 0} { // a generated id had no former life
		inBubble(t, func(t *testing.T, w *bubble) {
			var scans, checks atomic.Int64
			r := w.start(id, func(c *registry.Config) {
				see := &faults{}
				see.set(func(cmd redis.Cmder) error {
					switch cmd.Name() {
					case "hscan":
						scans.Add(1)
					case "sscan":
						checks.Add(1)
					}
					return nil
				}, nil)
				c.Client.(*redis.Client).AddHook(redistest.Intercept(see.meets))
			})
			r.register(t, "imei")
			require.Equal(t, want, scans.Load())
			before := checks.Load()
			w.Del(t.Context(), w.Devices(r.Instance())) // the index is lost
			time.Sleep(2 * r.Timing().Interval)
			synctest.Wait()
			require.Greater(t, checks.Load(), before, "the index is compared again")
			require.Equal(t, want, scans.Load())
			require.Equal(t, []string{"imei"}, w.SMembers(t.Context(), w.Devices(r.Instance())).Val())
			w.end(r)
		})
	}
}

func TestWhatPrometheusIsToldIsWhatTheStatusSays(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		for _, op := range []string{"register", "release", "heartbeat", "heal", "lookup"} {
			require.Zero(t, r.failures(op), "%s is there before its first failure", op)
		}
		r.registerMany(t, 7)
		w.HDel(t.Context(), w.Registry(), "imei-1", "imei-2")
		time.Sleep(10*r.Timing().Interval + time.Second)
		synctest.Wait()
		told := map[string]float64{}
		families, err := r.metrics.Gather()
		require.NoError(t, err)
		for _, f := range families {
			m := f.GetMetric()[0]
			told[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		require.EqualValues(t, 2, r.Status().Healed)
		require.InDelta(t, 2, told["teltonika_registry_healed_total"], 0)
		require.Equal(t, 7, r.Status().Held)
		require.InDelta(t, 7, told["teltonika_registry_held"], 0)
		w.end(r)
	})
}

func TestASettingAtItsBoundIsTaken(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(lease.Options(&redis.Options{Addr: "127.0.0.1:1"}))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for name, at := range map[string]struct {
		change func(*registry.Config)
		err    string // "": accepted
	}{
		"more than can be multiplied": {func(c *registry.Config) { c.HeartbeatInterval, c.HeartbeatTTL = math.MaxInt64, math.MaxInt64 }, "at least three"},
		"a letter of two bytes":       {func(c *registry.Config) { c.Instance = strings.Repeat("я", 101) }, "bad Instance"},
		"letters of any kind":         {func(c *registry.Config) { c.Instance = "{имя}%b" }, ""},
		"three intervals":             {func(c *registry.Config) { c.HeartbeatInterval, c.HeartbeatTTL = time.Second, 3*time.Second }, ""},
		"less than three":             {func(c *registry.Config) { c.HeartbeatInterval, c.HeartbeatTTL = time.Second, 3*time.Second-1 }, "HeartbeatTTL"},
		"an interval below zero":      {func(c *registry.Config) { c.HeartbeatInterval = -1 }, "HeartbeatInterval"},
		"less than a tick":            {func(c *registry.Config) { c.HeartbeatInterval = time.Millisecond - 1 }, "HeartbeatInterval is"},
		"a negative drain":            {func(c *registry.Config) { c.Drain = -1 }, "negative Drain"},
		"the longest name":            {func(c *registry.Config) { c.Instance = strings.Repeat("i", 200) }, ""},
		"a longer one":                {func(c *registry.Config) { c.Instance = strings.Repeat("i", 201) }, "bad Instance"},
		"a slash":                     {func(c *registry.Config) { c.Instance = "a/b" }, "bad Instance"},
		"a control character":         {func(c *registry.Config) { c.Instance = "pod\u0085x" }, "bad Instance"},
		"a space of any kind":         {func(c *registry.Config) { c.Instance = "pod\u2003x" }, "bad Instance"},
		"bytes that are no text":      {func(c *registry.Config) { c.Instance = "pod\xff" }, "bad Instance"},
		"what deletes":                {func(c *registry.Config) { c.Instance = "a\x7f" }, "bad Instance"},
		"the first that prints":       {func(c *registry.Config) { c.Instance = "!" }, ""},
		"no Client":                   {func(c *registry.Config) { c.Client = nil }, "unfit Client"},
		"no Control":                  {func(c *registry.Config) { c.Control = nil }, "unfit Control"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := registry.Config{Client: c, Control: c, Logger: slog.New(slog.DiscardHandler)}
			at.change(&cfg)
			_, err := registry.New(cfg)
			if at.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, at.err)
		})
	}
}

func TestTwoOfOneNameAtOneRegistererAreAnError(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(lease.Options(&redis.Options{Addr: "127.0.0.1:1"}))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	cfg := registry.Config{Client: c, Control: c, Registerer: prometheus.NewRegistry()}
	_, err := registry.New(cfg)
	require.NoError(t, err)
	_, err = registry.New(cfg)
	require.ErrorContains(t, err, "registry: metrics")
}

func TestAnIDThatIsTooLongIsRefusedAndCountedAndNoOtherDeviceSuffers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		r := w.start("r1")
		long := strings.Repeat("x", 1025)
		refused, other := r.Register(long), r.Register(long[1:])
		require.ErrorIs(t, refused.Wait(t.Context()), registry.ErrIDTooLong)
		require.NoError(t, other.Wait(t.Context()))
		touch(refused)
		refused.Release()
		refused.Release()
		require.EqualValues(t, 1, r.failures("register"))
		require.Equal(t, 1, r.Status().Held)
		require.EqualValues(t, 1, w.HLen(t.Context(), w.Registry()).Val())
		w.end(r)
	})
}

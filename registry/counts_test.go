package registry_test

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestTheWholeRegistryIsScannedForAFormerLifeOnly(t *testing.T) {
	type row struct {
		id   string
		want int64
	}
	eachBubble(t, map[string]row{"its own id": {"r1", 1}, "a generated id": {"", 0}}, func(w *bubble, c row) {
		var scans, checks atomic.Int64
		w.first = func(r *replica) {
			r.data.set(func(cmd redis.Cmder) error {
				switch cmd.Name() {
				case "hscan":
					scans.Add(1)
				case "sscan":
					checks.Add(1)
				}
				return nil
			}, nil)
		}
		r := w.start(c.id)
		r.register("imei")
		require.Equal(w, c.want, scans.Load())
		before := checks.Load()
		w.del(w.Devices(r.Instance())) // the index is lost
		pass(2 * interval)
		require.Greater(w, checks.Load(), before, "the index is compared again")
		require.Equal(w, c.want, scans.Load())
		require.Equal(w, []string{"imei"}, w.SMembers(w.Context(), w.Devices(r.Instance())).Val())
	})
}

func TestAnIDThatIsTooLongIsRefusedAndCountedAndNoOtherDeviceSuffers(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1")
		long := strings.Repeat("x", 1025)
		refused, other := r.Register(long), r.Register(long[1:])
		require.ErrorIs(w, refused.Wait(w.Context()), registry.ErrIDTooLong)
		require.NoError(w, other.Wait(w.Context()))
		touch(refused)
		refused.Release()
		refused.Release()
		require.EqualValues(w, 1, r.failures("register"))
		require.Equal(w, 1, r.Status().Held)
		require.EqualValues(w, 1, w.HLen(w.Context(), w.Registry()).Val())
	})
}

func TestASettingAtItsBoundIsTaken(t *testing.T) {
	t.Parallel()
	o := &redis.Options{Addr: "127.0.0.1:1"}
	c, unsafe := redis.NewClient(lease.Options(o)), redis.NewClient(o)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}})
	defer func() { require.NoError(t, errors.Join(c.Close(), unsafe.Close(), cluster.Close())) }()
	taken := prometheus.NewRegistry()
	_, err := registry.New(registry.Config{Client: c, Control: c, Registerer: taken})
	require.NoError(t, err)
	type row struct {
		change func(*registry.Config)
		err    string // "": accepted
	}
	named := func(id, err string) row { return row{func(c *registry.Config) { c.Instance = id }, err} }
	beats := func(interval, ttl time.Duration, err string) row {
		return row{func(c *registry.Config) { c.HeartbeatInterval, c.HeartbeatTTL = interval, ttl }, err}
	}
	clients := func(client, control redis.UniversalClient, err string) row {
		return row{func(c *registry.Config) { c.Client, c.Control = client, control }, err}
	}
	for name, at := range map[string]row{
		"more than can be multiplied":  beats(math.MaxInt64, math.MaxInt64, "at least three"),
		"a letter of two bytes":        named(strings.Repeat("я", 101), "bad Instance"),
		"letters of any kind":          named("{имя}%b", ""),
		"three intervals":              beats(time.Second, 3*time.Second, ""),
		"less than three":              beats(time.Second, 3*time.Second-1, "HeartbeatTTL"),
		"an interval below zero":       beats(-1, 0, "HeartbeatInterval"),
		"less than a tick":             beats(time.Millisecond-1, 0, "HeartbeatInterval is"),
		"a negative drain":             {func(c *registry.Config) { c.Drain = -1 }, "negative Drain"},
		"the longest name":             named(strings.Repeat("i", 200), ""),
		"a longer one":                 named(strings.Repeat("i", 201), "bad Instance"),
		"a slash":                      named("a/b", "bad Instance"),
		"a control character":          named("pod\u0085x", "bad Instance"),
		"a space of any kind":          named("pod\u2003x", "bad Instance"),
		"bytes that are no text":       named("pod\xff", "bad Instance"),
		"what deletes":                 named("a\x7f", "bad Instance"),
		"the first that prints":        named("!", ""),
		"no Client":                    clients(nil, c, "unfit Client"),
		"no Control":                   clients(c, nil, "unfit Control"),
		"an unsafe Client":             clients(unsafe, c, "unfit Client: lease: unsafe client"),
		"an unsafe Control":            clients(c, unsafe, "unfit Control: lease: unsafe client"),
		"a Cluster that is redirected": clients(cluster, c, "MaxRedirects is 3, must be -1"),
		"a Cluster without a hash tag": clients(c, cluster, `Layout.Prefix "" has no hash tag`),
		"two of one name":              {func(c *registry.Config) { c.Registerer = taken }, "registry: metrics"},
	} {
		cfg := registry.Config{Client: c, Control: c, Logger: slog.New(slog.DiscardHandler)}
		at.change(&cfg)
		_, err := registry.New(cfg)
		if at.err == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, at.err, name)
		if strings.Contains(at.err, "unfit") {
			require.ErrorIs(t, err, lease.ErrUnsafeClient, name)
		}
	}
}

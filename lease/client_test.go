package lease

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

// refuses demands that a client is refused for each of these reasons, and closes it.
func refuses(t *testing.T, client redis.UniversalClient, says string) {
	t.Helper()
	err := CheckClient(client, time.Second)
	_ = client.Close()
	require.ErrorIs(t, err, ErrUnsafeClient)
	for part := range strings.SplitSeq(says, "; ") {
		require.ErrorContains(t, err, part)
	}
}

func TestOptionsMakeASafeClientAndLeaveTheUsersAlone(t *testing.T) {
	t.Parallel()
	user := &redis.Options{
		Addr: "127.0.0.1:1", Username: "u", Password: "p", DB: 3, ClientName: "n", Protocol: 2,
		MaxRetries: 5, DialerRetries: 7, ReadTimeout: 100 * time.Millisecond, DialTimeout: time.Minute,
		WriteTimeout: -1, MinIdleConns: 50, MaxIdleConns: 60, PoolSize: 500, PipelinePoolSize: 10,
		MaxConcurrentDials: 9, MaxActiveConns: 900, ClientSideCacheConfig: &redis.ClientSideCacheConfig{},
	}
	before := *user
	o := Options(user)
	require.Equal(t, before, *user, "the user's are left alone")
	require.Equal(t, &redis.Options{
		Addr: "127.0.0.1:1", Username: "u", Password: "p", DB: 3, ClientName: "n", Protocol: 2,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: callTimeout, ReadTimeout: 100 * time.Millisecond, WriteTimeout: callTimeout, PoolTimeout: callTimeout,
		PoolSize: controlPool, PipelinePoolSize: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, o, "what is shorter than needed stays")

	c := redis.NewClient(o)
	defer c.Close()
	require.NoError(t, CheckClient(c, time.Second))
	require.Zero(t, c.Options().MaxRetries, "go-redis writes none as 0")
}

func TestFailoverOptionsMakeASafeClientThatReadsFromThePrimary(t *testing.T) {
	t.Parallel()
	user := &redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, SentinelPassword: "sp", Username: "u", Password: "p", DB: 3,
		MaxRetries: 5, DialerRetries: 7, ReadTimeout: 100 * time.Millisecond, DialTimeout: time.Minute, PoolTimeout: -1,
		MinIdleConns: 50, MaxIdleConns: 60, PoolSize: 500, PipelinePoolSize: 10, MaxConcurrentDials: 9, MaxActiveConns: 900,
		RouteByLatency: true, RouteRandomly: true, ReplicaOnly: true,
	}
	before := *user
	o := FailoverOptions(user)
	require.Equal(t, before, *user, "the user's are left alone")
	require.Equal(t, &redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, SentinelPassword: "sp", Username: "u", Password: "p", DB: 3,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: callTimeout, ReadTimeout: 100 * time.Millisecond, WriteTimeout: callTimeout, PoolTimeout: callTimeout,
		PoolSize: controlPool, PipelinePoolSize: -1,
	}, o)
	c := redis.NewFailoverClient(o)
	defer c.Close()
	require.NoError(t, CheckClient(c, time.Second))
}

func TestCheckClientNamesEveryUnsafeOption(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(o *redis.Options){
		"MaxRetries is 2": func(o *redis.Options) { o.MaxRetries = 2 },
		"ContextTimeoutEnabled": func(o *redis.Options) {
			o.ContextTimeoutEnabled = false
		},
		"ReadTimeout is off": func(o *redis.Options) { o.ReadTimeout = -1 },
		"DialTimeout (with DialerRetries) is 5s": func(o *redis.Options) {
			o.DialTimeout = 5 * time.Second
		},
		"DialTimeout (with DialerRetries) is 2.9s":   func(o *redis.Options) { o.DialerRetries = 3 },
		"PoolTimeout is 1s, must be shorter than 1s": func(o *redis.Options) { o.PoolTimeout = time.Second },
		"client-side caching": func(o *redis.Options) {
			o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{}
		},
		"MaxRetries; ContextTimeoutEnabled; DialTimeout; ReadTimeout; WriteTimeout; PoolTimeout": func(o *redis.Options) {
			*o = redis.Options{Addr: o.Addr}
		},
	} {
		o := Options(&redis.Options{Addr: "127.0.0.1:1"})
		change(o)
		refuses(t, redis.NewClient(o), says)
	}
}

func TestClusterOptionsMakeASafeClientThatSendsNothingTwice(t *testing.T) {
	t.Parallel()
	user := &redis.ClusterOptions{
		Addrs: []string{"127.0.0.1:1"}, Username: "u", Password: "p", Protocol: 2, MaxRetries: 5, MaxRedirects: 7,
		DialerRetries: 7, ReadTimeout: 100 * time.Millisecond, DialTimeout: time.Minute, PoolTimeout: -1,
		MinIdleConns: 50, MaxIdleConns: 60, PoolSize: 500, PipelinePoolSize: 10, MaxConcurrentDials: 9, MaxActiveConns: 900,
		ReadOnly: true, RouteByLatency: true, RouteRandomly: true,
	}
	before := *user
	o := ClusterOptions(user)
	require.Equal(t, before, *user, "the user's are left alone")
	require.NotNil(t, o.NewClient)
	o.NewClient = nil // functions are never equal
	require.Equal(t, &redis.ClusterOptions{
		Addrs: []string{"127.0.0.1:1"}, Username: "u", Password: "p", Protocol: 2, MaxRetries: -1, MaxRedirects: -1,
		DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: callTimeout, ReadTimeout: 100 * time.Millisecond, WriteTimeout: callTimeout, PoolTimeout: callTimeout,
		PoolSize: controlPool, PipelinePoolSize: -1, ClusterStateReloadInterval: reload,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, o)
	c := redis.NewClusterClient(ClusterOptions(user))
	defer c.Close()
	require.NoError(t, CheckClient(c, time.Second))
	require.NoError(t, CheckClient(c, 0))
}

func TestCheckClientNamesEveryUnsafeOptionOfACluster(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(o *redis.ClusterOptions){
		"MaxRedirects is 1":  func(o *redis.ClusterOptions) { o.MaxRedirects = 1 },
		"MaxRetries is 2":    func(o *redis.ClusterOptions) { o.MaxRetries = 2 },
		"ReadOnly":           func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteByLatency":     func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		"RouteRandomly":      func(o *redis.ClusterOptions) { o.RouteRandomly = true },
		"is 1m0s":            func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = 0 },
		"ReadTimeout is off": func(o *redis.ClusterOptions) { o.ReadTimeout = -1 },
		"ClusterSlots":       func(o *redis.ClusterOptions) { o.ClusterSlots = noSlots },
		"MaxRedirects is 3; ContextTimeoutEnabled; DialTimeout; ReadTimeout; WriteTimeout": func(o *redis.ClusterOptions) {
			*o = redis.ClusterOptions{Addrs: o.Addrs}
		},
	} {
		o := ClusterOptions(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
		change(o)
		refuses(t, redis.NewClusterClient(o), says)
	}
}

func noSlots(context.Context) ([]redis.ClusterSlot, error) { return nil, nil }

func TestCheckClientRefusesWhatItCannotCheck(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	other := struct{ redis.UniversalClient }{}

	for name, c := range map[string]struct {
		client redis.UniversalClient
		says   string
	}{
		"none":    {nil, "there is none"},
		"ring":    {ring, "ring"},
		"unknown": {other, "cannot be checked"},
	} {
		err := CheckClient(c.client, time.Second)
		require.ErrorIs(t, err, ErrUnsafeClient, name)
		require.ErrorContains(t, err, c.says, name)
	}
}

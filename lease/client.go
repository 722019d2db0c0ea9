package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrUnsafeClient marks a client that must not be used. The wrapping error lists every reason.
var ErrUnsafeClient = errors.New("lease: unsafe client")

const (
	// callTimeout suits every TTL of three seconds or more.
	callTimeout = 900 * time.Millisecond
	// controlPool allows a renewal, a beat and a tick at the same time.
	controlPool = 4
	// reload is how soon a Cluster client notices that a replica has replaced a dead master.
	reload = 500 * time.Millisecond
)

// Options derives the options of a control client from those of the client that carries the load:
// the same server and credentials, but
//
//   - no retries. go-redis resends a command whose reply was lost; a SETNX then finds its own value
//     and reports "taken", and nobody leads for a TTL.
//   - contexts honoured. Otherwise a call with 200 ms takes as long as the read deadline.
//   - dial, read, write and pool deadlines of 0.9 s, or o's own if shorter.
//   - a pool of its own, of 4 connections, so that neither a sweep nor a storm of sockets can
//     starve the lease.
//
// o is not changed. Pass it as the user wrote it: a client's Options method adds a Dialer with the
// old dial deadline. Behind Sentinel use [FailoverOptions], for a Redis Cluster [ClusterOptions].
func Options(o *redis.Options) *redis.Options {
	c := *o
	c.MaxRetries = -1
	c.ContextTimeoutEnabled = true

	c.DialTimeout = atMost(o.DialTimeout)
	c.ReadTimeout = atMost(o.ReadTimeout)
	c.WriteTimeout = atMost(o.WriteTimeout)
	c.PoolTimeout = atMost(o.PoolTimeout)
	c.DialerRetries = 1

	c.PoolSize = controlPool
	c.PipelinePoolSize = -1 // no second pool for pipelines
	c.MaxConcurrentDials, c.MaxActiveConns = 0, 0
	c.MinIdleConns, c.MaxIdleConns = 0, 0

	// Cached values are old, and maintenance mode allows ten seconds for a reply.
	c.ClientSideCache, c.ClientSideCacheConfig = nil, nil
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &c
}

// FailoverOptions is [Options] behind Sentinel. It also disables reads from replicas, whose data
// may be old.
func FailoverOptions(o *redis.FailoverOptions) *redis.FailoverOptions {
	s := Options(&redis.Options{
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout,
		WriteTimeout: o.WriteTimeout, PoolTimeout: o.PoolTimeout,
	})
	c := *o
	c.MaxRetries, c.DialerRetries = s.MaxRetries, s.DialerRetries
	c.ContextTimeoutEnabled = s.ContextTimeoutEnabled
	c.DialTimeout, c.ReadTimeout = s.DialTimeout, s.ReadTimeout
	c.WriteTimeout, c.PoolTimeout = s.WriteTimeout, s.PoolTimeout
	c.PoolSize, c.PipelinePoolSize = s.PoolSize, s.PipelinePoolSize
	c.MaxConcurrentDials, c.MaxActiveConns, c.MinIdleConns, c.MaxIdleConns = 0, 0, 0, 0
	c.RouteByLatency, c.RouteRandomly, c.ReplicaOnly = false, false, false
	return &c
}

// ClusterOptions is [Options] for a Redis Cluster, with a pool per node, and
//
//   - no redirects. go-redis treats a repeat after a lost reply as a redirect, so only 0 guarantees
//     that nothing is sent twice. A command to a slot's former node fails without effect.
//   - a reload of the slot map every half second, with at most 0.9 s per node, and as much for
//     COMMAND, which go-redis sends to a random node. A node that hangs would hide a dead
//     master's successor for a whole read deadline.
//   - all reads from masters.
//
// While the slot of a key moves, calls with that key fail.
func ClusterOptions(o *redis.ClusterOptions) *redis.ClusterOptions {
	s := Options(&redis.Options{
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout,
		WriteTimeout: o.WriteTimeout, PoolTimeout: o.PoolTimeout,
	})
	c := *o
	c.MaxRetries, c.ContextTimeoutEnabled = s.MaxRetries, s.ContextTimeoutEnabled
	c.DialerRetries = s.DialerRetries
	c.DialTimeout, c.ReadTimeout = s.DialTimeout, s.ReadTimeout
	c.WriteTimeout, c.PoolTimeout = s.WriteTimeout, s.PoolTimeout
	c.PoolSize, c.PipelinePoolSize = s.PoolSize, s.PipelinePoolSize
	c.MaxConcurrentDials, c.MaxActiveConns, c.MinIdleConns, c.MaxIdleConns = 0, 0, 0, 0
	c.MaintNotificationsConfig = s.MaintNotificationsConfig

	c.MaxRedirects, c.ClusterStateReloadInterval = -1, reload
	c.ReadOnly, c.RouteByLatency, c.RouteRandomly = false, false, false
	newClient := o.NewClient
	if newClient == nil {
		newClient = redis.NewClient
	}
	c.NewClient = func(node *redis.Options) *redis.Client {
		client := newClient(node)
		client.AddHook(quickLook{})
		return client
	}
	return &c
}

// quickLook bounds the calls that go-redis makes by itself, to any node: CLUSTER SLOTS and COMMAND.
// A client's first command waits for the latter.
type quickLook struct{}

func (quickLook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (quickLook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (quickLook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "cluster" || cmd.Name() == "command" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, callTimeout)
			defer cancel()
		}
		return next(ctx, cmd)
	}
}

// atMost caps a deadline at callTimeout. To go-redis, a deadline that is not positive is off.
func atMost(d time.Duration) time.Duration {
	if d > 0 && d < callTimeout {
		return d
	}
	return callTimeout
}

// CheckClient returns nil if the client talks to one server or a Redis Cluster, does not retry,
// honours contexts, caches nothing, and has deadlines, shorter than within if that is positive.
// Otherwise the error wraps [ErrUnsafeClient] and lists every unsafe option. A client behind
// Sentinel may still read from replicas: its options do not show that.
func CheckClient(c redis.UniversalClient, within time.Duration) error {
	switch c := c.(type) {
	case nil:
		return fmt.Errorf("%w: there is none", ErrUnsafeClient)
	case *redis.Client:
		if c == nil {
			return CheckClient(nil, within)
		}
		return unsafe(checkOptions(c.Options(), within), within, "Options")
	case *redis.ClusterClient:
		if c == nil {
			return CheckClient(nil, within)
		}
		return checkCluster(c.Options(), within)
	case *redis.Ring:
		return fmt.Errorf("%w: a ring spreads keys over servers that know nothing of each other", ErrUnsafeClient)
	default:
		return fmt.Errorf("%w: the options of a %T cannot be checked, hand in a *redis.Client", ErrUnsafeClient, c)
	}
}

func unsafe(errs []error, within time.Duration, maker string) error {
	if len(errs) == 0 {
		return nil
	}
	hint := ""
	if within > 0 {
		hint = " (lease." + maker + " makes a safe one)"
	}
	return fmt.Errorf("%w%s: %w", ErrUnsafeClient, hint, errors.Join(errs...))
}

// checkCluster sees the defaults of NewClusterClient applied: MaxRedirects -1 has become 0.
func checkCluster(o *redis.ClusterOptions, within time.Duration) error {
	errs := checkOptions(&redis.Options{
		MaxRetries: o.MaxRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, DialerRetryTimeout: o.DialerRetryTimeout,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolTimeout: cmp.Or(o.PoolTimeout, o.ReadTimeout+time.Second),
	}, within)
	if o.MaxRedirects > 0 {
		errs = append(errs, fmt.Errorf("MaxRedirects is %d, must be -1 (none): a command whose reply is lost "+
			"counts as one, and is sent again", o.MaxRedirects))
	}
	for _, routes := range []struct {
		name string
		set  bool
	}{
		{"RouteByLatency", o.RouteByLatency},
		{"RouteRandomly", o.RouteRandomly},
		{"ReadOnly", o.ReadOnly && !o.RouteByLatency && !o.RouteRandomly}, // those have set it
	} {
		if routes.set {
			errs = append(errs, fmt.Errorf("%s is true, must be false: what a replica holds may be old",
				routes.name))
		}
	}
	if o.ClusterSlots != nil {
		errs = append(errs, errors.New("ClusterSlots is set: that joins servers that know nothing of each other"))
	}
	if o.ClusterStateReloadInterval > reload {
		errs = append(errs, fmt.Errorf("ClusterStateReloadInterval is %s, must be at most %s",
			o.ClusterStateReloadInterval, reload))
	}
	return unsafe(errs, within, "ClusterOptions")
}

// checkOptions sees the defaults of NewClient applied: MaxRetries -1 has become 0, and so has a
// read or write deadline that is off.
func checkOptions(o *redis.Options, within time.Duration) (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if o.MaxRetries > 0 {
		wrong("MaxRetries is %d, must be -1 (none)", o.MaxRetries)
	}
	if !o.ContextTimeoutEnabled {
		wrong("ContextTimeoutEnabled is false, must be true")
	}
	if o.ClientSideCache != nil || o.ClientSideCacheConfig != nil {
		wrong("client-side caching is on, must be off")
	}
	// All dials, with the pauses between them, count as one wait.
	tries := time.Duration(max(o.DialerRetries, 1))
	dial := o.DialTimeout
	if dial > 0 {
		dial = tries*dial + (tries-1)*o.DialerRetryTimeout
	}
	want := "set"
	if within > 0 {
		want = "shorter than " + within.String()
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"DialTimeout (with DialerRetries)", dial},
		{"ReadTimeout", o.ReadTimeout},
		{"WriteTimeout", o.WriteTimeout},
		{"PoolTimeout", o.PoolTimeout},
	} {
		switch {
		case d.value <= 0:
			wrong("%s is off, must be %s", d.name, want)
		case within > 0 && d.value >= within:
			wrong("%s is %s, must be %s", d.name, d.value, want)
		}
	}
	return errs
}

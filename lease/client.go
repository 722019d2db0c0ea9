package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrUnsafeClient says that a client must not be used. The error that wraps it names every reason.
var ErrUnsafeClient = errors.New("lease: unsafe client")

const (
	// callTimeout is just below a second, so that the options suit every TTL of three seconds and
	// more.
	callTimeout = 900 * time.Millisecond
	// controlPool is enough for a renewal, a beat and a tick under way at once.
	controlPool = 4
)

// Options derives the options of a control client from those of the client that carries the load:
// the same server and credentials, but
//
//   - no retries. go-redis repeats a command whose reply was lost: a SETNX then finds its own value
//     and says "taken", and nobody leads for a TTL.
//   - contexts honoured. Without, a call of 200 ms takes as long as the read deadline allows.
//   - dial, read, write and pool deadlines of 0.9 s, or o's own where shorter.
//   - a pool of its own, of 4 connections, so that neither a sweep nor a storm of devices can
//     starve the lease.
//
// o is not changed. It must be as the user wrote it, not what a client's Options method returns:
// go-redis has then put a Dialer into it that keeps the old dial deadline. Behind Sentinel use
// [FailoverOptions].
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

	// Cached values are old, and a server under maintenance must not get ten seconds for a reply.
	c.ClientSideCache, c.ClientSideCacheConfig = nil, nil
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &c
}

// FailoverOptions is [Options] for a server behind Sentinel. It also has everything read from the
// primary: what a replica holds may be old.
//
// redis.UniversalOptions are handled by their methods Simple and Failover.
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

// atMost is a deadline no longer than callTimeout. go-redis switches one off that is not positive.
func atMost(d time.Duration) time.Duration {
	if d > 0 && d < callTimeout {
		return d
	}
	return callTimeout
}

// CheckClient returns nil if the client speaks to one server, does not retry, honours contexts,
// caches nothing, and has deadlines. If within is positive, all deadlines are shorter than that:
// leases, ticks and heartbeats must not come late, while the client that carries the load may take
// its time. Otherwise it returns an error that wraps [ErrUnsafeClient] and names every option that
// is not as it should be. It does not speak to Redis: whether a client behind Sentinel reads from
// replicas, for one, its options do not tell.
func CheckClient(c redis.UniversalClient, within time.Duration) error {
	switch c := c.(type) {
	case nil:
		return fmt.Errorf("%w: there is none", ErrUnsafeClient)
	case *redis.Client:
		if c == nil {
			return CheckClient(nil, within)
		}
		return checkOptions(c.Options(), within)
	case *redis.ClusterClient:
		return fmt.Errorf("%w: Redis Cluster is not supported yet "+
			"(nor is routing to replicas, which makes such a client)", ErrUnsafeClient)
	case *redis.Ring:
		return fmt.Errorf("%w: a ring spreads keys over servers that know nothing of each other", ErrUnsafeClient)
	default:
		return fmt.Errorf("%w: the options of a %T cannot be checked, hand in a *redis.Client", ErrUnsafeClient, c)
	}
}

// checkOptions judges options as NewClient has filled them in: there, no retries (-1) has become 0,
// and so has a read or write deadline switched off.
func checkOptions(o *redis.Options, within time.Duration) error {
	var errs []error
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
	// All tries to dial, and the pauses between them, are one wait.
	tries := time.Duration(max(o.DialerRetries, 1))
	dial := o.DialTimeout
	if dial > 0 {
		dial = tries*dial + (tries-1)*o.DialerRetryTimeout
	}
	want, hint := "set", ""
	if within > 0 {
		want, hint = "shorter than "+within.String(), " (lease.Options makes a safe one)"
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
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w%s: %w", ErrUnsafeClient, hint, errors.Join(errs...))
}

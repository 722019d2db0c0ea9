package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
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

// tuned are the fields, where a kind of options has them, that differ from the user's; nil is the
// zero value.
var tuned = map[string]any{
	"MaxRetries": -1, "DialerRetries": 1, "ContextTimeoutEnabled": true,
	"PoolSize": controlPool, "PipelinePoolSize": -1, // no second pool for pipelines
	"MaxConcurrentDials": nil, "MaxActiveConns": nil, "MinIdleConns": nil, "MaxIdleConns": nil,
	"RouteByLatency": nil, "RouteRandomly": nil, "ReplicaOnly": nil, "ReadOnly": nil,
	"MaxRedirects": -1, "ClusterStateReloadInterval": reload,
	// Cached values are old, and maintenance mode allows ten seconds for a reply.
	"ClientSideCache": nil, "ClientSideCacheConfig": nil,
	"MaintNotificationsConfig": &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
}

var deadlines = []string{"DialTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"}

func tune[O any](o O) *O {
	fields := reflect.ValueOf(&o).Elem()
	for name, value := range tuned {
		switch f := fields.FieldByName(name); {
		case !f.IsValid():
		case value == nil:
			f.SetZero()
		default:
			f.Set(reflect.ValueOf(value))
		}
	}
	for _, name := range deadlines {
		f := fields.FieldByName(name)
		if d := time.Duration(f.Int()); d <= 0 || d > callTimeout { // to go-redis, <= 0 is off
			f.SetInt(int64(callTimeout))
		}
	}
	return &o
}

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
func Options(o *redis.Options) *redis.Options { return tune(*o) }

// FailoverOptions is [Options] behind Sentinel. It also disables reads from replicas, whose data
// may be old.
func FailoverOptions(o *redis.FailoverOptions) *redis.FailoverOptions { return tune(*o) }

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
	c, newClient := tune(*o), o.NewClient // the caller may overwrite o with c
	if newClient == nil {
		newClient = redis.NewClient
	}
	c.NewClient = func(node *redis.Options) *redis.Client {
		client := newClient(node)
		client.AddHook(quickLook{})
		return client
	}
	return c
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

// CheckClient returns nil if the client talks to one server or a Redis Cluster, does not retry,
// honours contexts, caches nothing, and has deadlines, shorter than within if that is positive.
// Otherwise the error wraps [ErrUnsafeClient] and lists every unsafe option. A client behind
// Sentinel may still read from replicas: its options do not show that.
func CheckClient(c redis.UniversalClient, within time.Duration) error {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w: there is none", ErrUnsafeClient)
	}
	var errs []error
	maker := "Options"
	switch c := c.(type) {
	case *redis.Client:
		errs = checkOptions(c.Options(), within)
	case *redis.ClusterClient:
		errs, maker = checkCluster(c.Options(), within), "ClusterOptions"
	case *redis.Ring:
		errs = append(errs, errors.New("a ring spreads keys over servers that know nothing of each other"))
	default:
		errs = append(errs, fmt.Errorf("the options of a %T cannot be checked, hand in a *redis.Client", c))
	}
	switch err := errors.Join(errs...); {
	case err == nil:
		return nil
	case within > callTimeout: // otherwise its deadlines are too long as well
		return fmt.Errorf("%w (lease.%s makes a safe one): %w", ErrUnsafeClient, maker, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnsafeClient, err)
	}
}

// checkCluster sees the defaults of NewClusterClient applied: MaxRedirects -1 has become 0.
func checkCluster(o *redis.ClusterOptions, within time.Duration) []error {
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
	if o.ReadOnly { // also set by the others
		errs = append(errs, errors.New("ReadOnly, RouteByLatency or RouteRandomly is true, must be false: "+
			"what a replica holds may be old"))
	}
	if o.ClusterSlots != nil {
		errs = append(errs, errors.New("ClusterSlots is set: that joins servers that know nothing of each other"))
	}
	if o.ClusterStateReloadInterval > reload {
		errs = append(errs, fmt.Errorf("ClusterStateReloadInterval is %s, must be at most %s",
			o.ClusterStateReloadInterval, reload))
	}
	return errs
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
	values := []time.Duration{dial, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout}
	for i, name := range deadlines {
		if i == 0 {
			name += " (with DialerRetries)"
		}
		switch d := values[i]; {
		case d <= 0:
			wrong("%s is off, must be %s", name, want)
		case within > 0 && d >= within:
			wrong("%s is %s, must be %s", name, d, want)
		}
	}
	return errs
}

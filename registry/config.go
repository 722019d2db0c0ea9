package registry

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	// DefaultHeartbeatInterval replaces a zero Config.HeartbeatInterval.
	DefaultHeartbeatInterval = 30 * time.Second
	// DefaultHeartbeatTTL replaces a zero Config.HeartbeatTTL.
	DefaultHeartbeatTTL = 90 * time.Second

	defaultDrain = 10 * time.Second
	// leastInterval is the resolution of Redis' expiries.
	leastInterval = time.Millisecond
	// The witness ignores a GRACE of more than two days (internal/guard/settings.lua).
	mostTTL = 24 * time.Hour
)

// Config configures a Registry. Zero values select defaults.
type Config struct {
	// Client carries registrations, releases, heals and look-ups. Required: a *redis.Client with
	// MaxRetries -1 and ContextTimeoutEnabled, since a repeated write could land after its
	// correction.
	Client redis.UniversalClient
	// Control carries the heartbeat, so that a storm cannot starve it: a client made from
	// lease.Options (behind Sentinel lease.FailoverOptions). Required. While Client is not at the
	// same primary and database, nothing is registered, and beats fail with READONLY.
	Control redis.UniversalClient
	// Instance names this replica: at most 200 bytes of printable UTF-8, without spaces and "/". If
	// empty, it is UniqueInstance(). If it is fixed, the newest process of that name wins.
	Instance string
	// Unique means that no earlier process had this Instance: Run then does not look for a former
	// life. An empty Instance is unique.
	Unique bool
	// Layout names the keys, and is shared by all replicas and readers. On a Redis Cluster its
	// Prefix must have a hash tag.
	Layout Layout
	// HeartbeatInterval is the time between beats (default 30s). HeartbeatTTL is how long one lasts
	// (default 90s, at most 24h, at least three intervals: with two, one lost beat kills). Shorter
	// ones find the dead sooner, but a shorter stall makes this process look dead. All replicas
	// must agree.
	HeartbeatInterval, HeartbeatTTL time.Duration
	// Drain is how long Run keeps beating after its context ended, waiting for claims to be
	// released (default 10s).
	Drain time.Duration
	// OnReconciled, if set, is called when all that this replica holds is in Redis again, after
	// Redis may have lost entries, a call failed, or an entry was put back. Put back then what you
	// keep in Redis beside the entries, such as an index by user: it may be lost too. After a
	// second loss within one interval it is called when that is over. It must not block, and may be
	// called concurrently; partitions call it one by one.
	OnReconciled func()
	// NoReverseIndex saves the index's memory (61 bytes an entry). Only the full scan then sweeps a
	// dead owner.
	NoReverseIndex bool
	// Logger should have the attribute "instance", which New adds to the default, slog.Default().
	// With a nil Registerer, metrics are counted but not registered.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Namespace, if set, prefixes the metrics: <namespace>_registry_failures_total.
	Namespace string
}

func (c Config) withDefaults() Config {
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, DefaultHeartbeatInterval)
	c.HeartbeatTTL = cmp.Or(c.HeartbeatTTL, DefaultHeartbeatTTL)
	c.Drain = cmp.Or(c.Drain, defaultDrain)
	if c.Instance == "" {
		c.Instance, c.Unique = UniqueInstance(), true
	}
	c.Logger = cmp.Or(c.Logger, slog.Default().With("instance", c.Instance))
	return c
}

func (c Config) check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	err := lease.CheckClient(c.Client, 0)
	wrong(err != nil, "unfit Client: %w", err)
	err = lease.CheckClient(c.Control, c.HeartbeatInterval)
	wrong(err != nil, "unfit Control: %w", err)
	_, clusterData := c.Client.(*redis.ClusterClient)
	_, clusterControl := c.Control.(*redis.ClusterClient)
	wrong((clusterData || clusterControl) && !c.Layout.OneSlot(),
		"Layout.Prefix %q has no hash tag, such as {rollcall}:, which a Redis Cluster needs", c.Layout.Prefix)
	wrong(!c.Layout.ValidPrefix(), "bad Layout.Prefix %q: %s", c.Layout.Prefix, guard.PrefixRule)
	wrong(c.HeartbeatInterval < leastInterval, "HeartbeatInterval is %s, must be at least %s",
		c.HeartbeatInterval, leastInterval)
	wrong(c.HeartbeatTTL > mostTTL, "HeartbeatTTL is %s, must be at most %s", c.HeartbeatTTL, mostTTL)
	wrong(c.HeartbeatTTL/3 < c.HeartbeatInterval, // three times the longest interval would overflow
		"HeartbeatTTL is %s, must be at least three times HeartbeatInterval (%s)",
		c.HeartbeatTTL, c.HeartbeatInterval)
	wrong(c.Drain < 0, "negative Drain: %s", c.Drain)
	wrong(c.Instance != "" && !validInstance(c.Instance),
		"bad Instance %q: at most 200 bytes of printable characters, without '/' and spaces", c.Instance)
	return errors.Join(errs...)
}

func validInstance(id string) bool {
	bad := func(c rune) bool { return c == '/' || c == ' ' || !unicode.IsPrint(c) }
	return id != "" && len(id) <= 200 && utf8.ValidString(id) && !strings.ContainsFunc(id, bad)
}

// UniqueInstance returns the value that replaces an empty Config.Instance: the host's name and
// eight random hex digits.
func UniqueInstance() string {
	host, err := os.Hostname()
	if err != nil || !validInstance(host) || len(host) > 64 {
		host = "instance"
	}
	return fmt.Sprintf("%s-%08x", host, rand.Uint32())
}

package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	defaultInterval          = 60 * time.Second
	defaultScanCount         = 1000
	defaultDeleteBatch       = 500
	defaultExistsConcurrency = 8
	defaultLogBytes          = 10 << 20

	// longest is the longest setting; multiples of it still fit a duration.
	longest = 24 * time.Hour

	// callTimeout bounds each call of a sweep, so that a hanging Redis ends a pass, not a term.
	callTimeout = 5 * time.Second
)

const (
	// DefaultLeaseTTL replaces a zero Config.LeaseTTL.
	DefaultLeaseTTL = 15 * time.Second
	// DefaultRedisShare replaces a zero Config.RedisShare.
	DefaultRedisShare = 0.25
)

// LeastShare is the smallest Config.RedisShare. With less, a full scan of a million entries takes
// longer than the three intervals after which a leader resigns, and nothing is ever swept.
const LeastShare = 0.005

// A Registry is the janitor's own replica, a *registry.Registry.
type Registry interface {
	// Instance is this replica's id, under which it contends.
	Instance() string
	// Layout names the keys.
	Layout() guard.Layout
	// Timing is the timing of heartbeats.
	Timing() guard.Timing
	// HoldHeartbeat keeps the heartbeat until release is called, even if the registry's Run ends.
	HoldHeartbeat() (release func())
	// Newest is when this replica's newest heartbeat was written, as far as it knows: ms by the
	// server's clock, 0 if unknown. A server that has an older one is a former primary.
	Newest() int64
	// Evicted counts entries that this process deleted, by dead owner.
	Evicted(owner string, n int)
}

// Config configures a Janitor. A zero number or duration selects the default.
type Config struct {
	// Client is used by sweeps to read and delete; usually the registry's. The janitor closes no
	// client.
	Client redis.UniversalClient

	// Control is used for the lease and the witness' ticks, with options such as lease.Options
	// returns, so that a sweep cannot starve them; usually the registry's.
	Control redis.UniversalClient

	// Registry is this replica's own side. Nothing is deleted while its heartbeat is missing, so
	// its Run must run beside the janitor's.
	Registry Registry

	// Interval is how often the registry's full scan checks whether it can find something, and then
	// scans: the longest that an entry which the reverse index missed outlives its owner. A scan
	// that can find nothing is postponed until it costs 0.05 % of a core, at most 15 minutes.
	// Default 60 s.
	Interval time.Duration

	// LeaseTTL is how long the lease outlives a dead leader. Default 15 s.
	LeaseTTL time.Duration

	// ScanCount is the largest COUNT of a page; 20,000 would block other clients for 8 ms. Default
	// 1000.
	ScanCount int

	// DeleteBatch is the most items that one guarded script deletes, at most guard.MaxBatch.
	// Default 500.
	DeleteBatch int

	// ExistsConcurrency bounds concurrent liveness checks, each of a few owners. Default 8.
	ExistsConcurrency int

	// RedisShare is the largest share of Redis' time that all sweeps together may take in any
	// second, from LeastShare to 1, or less with several partitions. They take less, down to
	// a fifth, while others suffer. Default 0.25.
	RedisShare float64

	// LogBytes is the approximate size, by MEMORY USAGE, to which the leader trims the eviction log
	// after a pass that evicted something. At least 100 records stay. Default 10 MB; negative:
	// never trim.
	LogBytes int64

	// DryRun makes every pass judge and report but delete nothing. The quick way then reads a dead
	// owner's index once per Interval, or on request, and repeats its findings between.
	DryRun bool

	// Sweeps are run in addition to those of the registry's entries.
	Sweeps []Sweeper

	// Yield, if not nil, returns how long this replica lets others take the lease first; see
	// lease.Config.Yield.
	Yield func() time.Duration

	// StartSpan, if not nil, is called at the start of a "term", its "open", a "pass" in it and a
	// "batch" of a pass, for a tracer. The work, with its child spans, continues under the returned
	// context. end is called once, with further attributes, and an error if the work failed. The
	// attribute "quiet" marks a pass that is not worth attention. Neither function may block.
	StartSpan func(ctx context.Context, name string, attrs ...slog.Attr) (
		_ context.Context, end func(err error, attrs ...slog.Attr))

	// Logger should have the attribute "instance", which New adds to the default, slog.Default().
	Logger *slog.Logger

	// Registerer registers the metrics, unless it is nil. Namespace, if set, prefixes their names:
	// <namespace>_janitor_leader.
	Registerer prometheus.Registerer
	Namespace  string
}

func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	c.LeaseTTL = cmp.Or(c.LeaseTTL, DefaultLeaseTTL)
	c.ScanCount = cmp.Or(c.ScanCount, defaultScanCount)
	c.DeleteBatch = cmp.Or(c.DeleteBatch, defaultDeleteBatch)
	c.ExistsConcurrency = cmp.Or(c.ExistsConcurrency, defaultExistsConcurrency)
	c.RedisShare = cmp.Or(c.RedisShare, DefaultRedisShare)
	c.LogBytes = cmp.Or(c.LogBytes, int64(defaultLogBytes))
	if c.Logger == nil {
		c.Logger = slog.Default()
		if c.Registry != nil { // otherwise check refuses it
			c.Logger = c.Logger.With("instance", c.Registry.Instance())
		}
	}
	return c
}

func (c Config) check(sweeps []Sweeper) error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("janitor: "+format, args...))
		}
	}
	if err := lease.CheckClient(c.Client, 0); err != nil {
		errs = append(errs, fmt.Errorf("janitor: unfit Client: %w", err))
	}
	wrong(c.Registry == nil, "Registry is missing")
	wrong(c.Interval < 0, "Interval is %s, must be positive", c.Interval)
	wrong(c.Interval > longest, "Interval is %s, must be at most %s", c.Interval, longest)
	wrong(c.LeaseTTL > longest, "LeaseTTL is %s, must be at most %s", c.LeaseTTL, longest)
	wrong(c.ScanCount < 0, "ScanCount is %d, must be positive", c.ScanCount)
	wrong(c.DeleteBatch < 0 || c.DeleteBatch > guard.MaxBatch,
		"DeleteBatch is %d, must be 1 to %d", c.DeleteBatch, guard.MaxBatch)
	wrong(c.ExistsConcurrency < 0, "ExistsConcurrency is %d, must be positive", c.ExistsConcurrency)
	least := LeastShare
	if c.Registry != nil && c.Registry.Layout().Divided() { // it holds only part of the entries
		least = math.SmallestNonzeroFloat64
	}
	wrong(!(c.RedisShare >= least && c.RedisShare <= 1),
		"RedisShare is %v, must be from %v to 1", c.RedisShare, LeastShare)
	names := map[string]bool{}
	for _, s := range sweeps {
		if s == nil {
			wrong(true, "a sweep is nil")
			continue
		}
		wrong(s.Name() == "", "a sweep has no name")
		wrong(names[s.Name()], "two sweeps are named %q", s.Name())
		wrong(s.Interval() < 0, "sweep %q: interval is %s, must not be negative", s.Name(), s.Interval())
		names[s.Name()] = true
	}
	if c.Registry != nil {
		// A tick that hangs for its full timeout must leave time for another within the gap.
		gap := c.Registry.Timing().Gap()
		if err := lease.CheckClient(c.Control, gap/2); err != nil {
			errs = append(errs, fmt.Errorf("janitor: Control does not suit a GAP of %s: %w", gap, err))
		}
	}
	return errors.Join(errs...)
}

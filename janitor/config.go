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

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

const (
	defaultInterval          = 60 * time.Second
	defaultScanCount         = 1000
	defaultDeleteBatch       = 500
	defaultExistsConcurrency = 8
	defaultLogBytes          = 10 << 20

	// longest is the longest setting: what follows from it, in multiples, is still a duration.
	longest = 24 * time.Hour

	// callTimeout bounds each single call of a sweep, so that a Redis that hangs ends a pass, and not
	// only a term.
	callTimeout = 5 * time.Second
)

const (
	// DefaultLeaseTTL is what a zero Config.LeaseTTL means.
	DefaultLeaseTTL = 15 * time.Second
	// DefaultRedisShare is what a zero Config.RedisShare means.
	DefaultRedisShare = 0.25
)

// LeastShare is the least Config.RedisShare. With less, a full scan of a million entries takes
// longer than the three intervals after which a leader gives up, and nothing is ever swept.
const LeastShare = 0.005

// A Registry is what the janitor must know of its own replica, and what it sweeps first. A
// *registry.Registry is one.
type Registry interface {
	// Instance names this replica: it contends under that name.
	Instance() string
	// Layout names the keys.
	Layout() guard.Layout
	// Timing is what heartbeats keep to.
	Timing() guard.Timing
	// HoldHeartbeat keeps the heartbeat until release is called, also when the registry's Run ends.
	HoldHeartbeat() (release func())
	// Sweeps are the registry's own kinds of cleaning.
	Sweeps() []Sweeper
}

// Config configures a Janitor. Of a number or duration zero means the default.
type Config struct {
	// Client is what sweeps read and delete through, with the same options as the registry's, and
	// usually the same. Not closed here.
	Client redis.UniversalClient

	// Control is for the lease and the witness' ticks, with options as lease.Options makes them, so
	// that a sweep cannot starve them. Usually the one that Registry has. Not closed here.
	Control redis.UniversalClient

	// Registry is this replica's own side, a *registry.Registry. Its instance id names this contender;
	// its heartbeat is the self-check without which nothing is deleted, so its Run must run beside
	// this one's.
	Registry Registry

	// Interval is how often the registry's full scan asks whether it can find something, and then
	// scans: the longest that an entry outlives its owner if the reverse index missed it. A full scan
	// that can find nothing is put off until it costs 0.05 % of a core, at most for 15 minutes.
	// A full scan that has something to find costs Redis more the shorter this is. Default 60 s.
	Interval time.Duration

	// LeaseTTL is how long the lease outlives a leader that died. Default 15 s.
	LeaseTTL time.Duration

	// ScanCount is the most that one page of a scan asks for as COUNT; 20,000 would block other
	// clients for 8 ms. A term begins with half of it. Pages grow while one does not hold Redis for
	// longer than half a millisecond, and get smaller, down to 50, where they hold it for a whole one.
	// Default 1000.
	ScanCount int

	// DeleteBatch is the most items that one guarded script deletes. Batches change as pages do.
	// Default 500, at most guard.MaxBatch.
	DeleteBatch int

	// ExistsConcurrency bounds the liveness checks under way at once. Default 8.
	ExistsConcurrency int

	// RedisShare is the most of Redis' time that all sweeps together may take over any second,
	// LeastShare to 1; of one partition of several also less. They take less, down to a fifth of it,
	// while small calls take longer than usual or a living owner's heartbeat comes late. Default 0.25.
	RedisShare float64

	// LogBytes is what the leader trims the eviction log to after a pass that evicted something,
	// by MEMORY USAGE, approximately. Where that is refused it keeps as many records as would fit if
	// each had DeleteBatch items of 32 bytes; 100 at least, in any case. Default 10 MB; negative:
	// never.
	LogBytes int64

	// DryRun: every pass judges and reports, none deletes. The quick way then reads a dead owner's
	// index once an Interval, and its reports in between repeat what it found; a pass that is asked
	// for always reads it.
	DryRun bool

	// Sweeps are further kinds of cleaning, beside those of Registry.
	Sweeps []Sweeper

	// Contend, if not nil, says whether this replica is among the first that contend for the lease and
	// tick the witness, or a reserve; see lease.Config.Contend. A reserve reads the witness every
	// GAP/2, in one pipeline with the other janitors of Control, and ticks if nobody else did lately.
	Contend func() (after time.Duration, first bool)

	// StartSpan, if not nil, is told when something begins, for a tracer such as OpenTelemetry's: a
	// "term", its "open", a "pass" in it, a "batch" of a pass. attrs say what is known then. The
	// context that it returns is the one under which the work goes on, and so that of spans below it.
	// end is called once, with what is known then, and with an error if that failed. A pass of which
	// an operator need not know has the attribute "quiet". Neither may block.
	StartSpan func(ctx context.Context, name string, attrs ...slog.Attr) (
		_ context.Context, end func(err error, attrs ...slog.Attr))

	// Logger: give it the attribute "instance", as the default, slog.Default(), gets it here.
	Logger *slog.Logger

	// Registerer of the metrics; nil: none are registered.
	Registerer prometheus.Registerer
}

// withDefaults is the one place where zero becomes something.
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
		if c.Registry != nil { // else check refuses it
			c.Logger = c.Logger.With("instance", c.Registry.Instance())
		}
	}
	return c
}

// check names all that is wrong, in words. sweeps are those of Registry and of Sweeps.
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
	if c.Registry != nil && c.Registry.Layout().Divided() { // it has a part of the entries alone
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
		// A tick that hangs for as long as it may leaves time for another within the gap. lease.New
		// asks the same of the client for the lease's own durations.
		gap := c.Registry.Timing().Gap()
		if err := lease.CheckClient(c.Control, gap/2); err != nil {
			errs = append(errs, fmt.Errorf("janitor: Control does not suit a GAP of %s: %w", gap, err))
		}
	}
	return errors.Join(errs...)
}

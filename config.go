package rollcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/needs"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// Config configures a Replica. Exactly one of Redis, Sentinel and Cluster is required; zero values
// of all else select defaults. All replicas of a fleet must agree on what is about Redis, keys and
// times.
type Config struct {
	// Redis, Sentinel or Cluster names the server. The options are copied, and what would be unsafe
	// in the copy is set right: nothing is sent twice, contexts are honoured, deadlines suit
	// Interval and TTL, nothing is cached or read from replicas.
	Redis    *redis.Options
	Sentinel *redis.FailoverOptions
	Cluster  *redis.ClusterOptions

	// Prefix begins every key and channel: at most 100 printable ASCII characters without spaces and
	// *?[]\. On a Redis Cluster it needs a hash tag. Default none, on a Cluster "{rollcall}:".
	Prefix string
	// Partitions divide the registry over slots of a Cluster: a power of two, at most 1024. Default
	// 1, on a Cluster 16. Run ends with ErrPartitionsDiffer if the fleet has another number.
	Partitions int

	// Instance names this replica: at most 200 bytes of printable UTF-8, without spaces and "/". If
	// it is fixed, the newest process of that name wins. Default: the host's name and a random part.
	Instance string
	// Interval is the time between heartbeats (default 30 s). TTL is how long one lasts (default
	// three intervals, at most 24 h): a replica that is silent for longer loses its entries until it
	// is back.
	Interval, TTL time.Duration
	// Drain is how long Run waits for claims to be released, once its context has ended (default
	// 10 s).
	Drain time.Duration
	// OnReconciled, if not nil, is called when all that this replica holds is in Redis again, after
	// Redis may have lost entries. Put back then what you keep beside them, such as an index by
	// user. It runs in a goroutine of its own, never two at once, and Run does not wait for it.
	OnReconciled func()

	// Janitor configures this replica's part in sweeping.
	Janitor Janitor
	// Sweeps of your own run beside those of the registry, on the leader.
	Sweeps []janitor.Sweeper

	// Logger should have an attribute that names the replica, as "instance" does, which New adds to
	// the default, slog.Default().
	Logger *slog.Logger
	// Registerer registers the metrics, unless it is nil. Namespace, if set, prefixes their names.
	Registerer prometheus.Registerer
	Namespace  string
}

// Janitor configures how a replica contends for the lease and sweeps. Zero values select defaults.
type Janitor struct {
	// Off keeps this replica from contending. A fleet needs replicas that do.
	Off bool
	// ScanEvery is how often the leader checks whether a full scan can find something (60 s).
	ScanEvery time.Duration
	// LeaseTTL is how long the lease outlives a dead leader (15 s).
	LeaseTTL time.Duration
	// RedisShare is the largest share of Redis' time that sweeping takes in any second (0.25).
	RedisShare float64
	// LogBytes is the approximate size of the eviction log (10 MB); negative: it is never trimmed.
	LogBytes int64
	// DryRun makes passes judge and report, and delete nothing.
	DryRun bool
	// StartSpan is for a tracer: see janitor.Config.
	StartSpan func(ctx context.Context, name string, attrs ...slog.Attr) (
		_ context.Context, end func(err error, attrs ...slog.Attr))
}

const (
	clusterPrefix     = "{rollcall}:"
	clusterPartitions = 16
	// longestCall suits registrations and look-ups: a socket waits for them.
	longestCall = 3 * time.Second
	longestTTL  = 24 * time.Hour
)

func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, registry.DefaultHeartbeatInterval)
	c.TTL = cmp.Or(c.TTL, 3*c.Interval)
	if c.Cluster != nil {
		c.Prefix = cmp.Or(c.Prefix, clusterPrefix)
		c.Partitions = cmp.Or(c.Partitions, clusterPartitions)
	}
	c.Partitions = cmp.Or(c.Partitions, 1)
	return c
}

// check leaves to the packages below what they name as their callers do.
func (c Config) check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("rollcall: "+format, args...))
		}
	}
	named := 0
	for _, is := range []bool{c.Redis != nil, c.Sentinel != nil, c.Cluster != nil} {
		if is {
			named++
		}
	}
	wrong(named != 1, "%d of Redis, Sentinel and Cluster are set, must be one", named)
	wrong(c.Interval < time.Millisecond, "Interval is %s, must be at least 1ms", c.Interval)
	wrong(c.TTL/3 < c.Interval, "TTL is %s, must be at least three times Interval, which is %s", c.TTL, c.Interval)
	wrong(c.TTL > longestTTL, "TTL is %s, must be at most %s", c.TTL, longestTTL)
	n := c.Partitions
	wrong(n < 1 || n > guard.MostPartitions || n&(n-1) != 0,
		"Partitions is %d, must be a power of two, at most %d", n, guard.MostPartitions)
	keys := guard.Layout{Prefix: c.Prefix}
	wrong(!keys.ValidPrefix(), "Prefix is %q, must be %s", c.Prefix, guard.PrefixRule)
	wrong(c.Janitor.Off && len(c.Sweeps) > 0, "Sweeps are set, and would never run: Janitor.Off")
	wrong((n > 1 || c.Cluster != nil) && !keys.OneSlot(),
		"Prefix is %q, must have a hash tag, such as %s", c.Prefix, clusterPrefix)
	return errors.Join(errs...)
}

// clients returns two of the same server: one for the load, and one for heartbeats and the lease,
// which no load may starve. A call of the latter that hangs leaves time for another one, and each
// partition has connections of its own there.
func (c Config) clients() (load, control redis.UniversalClient) {
	within := min(c.Interval/2, (c.TTL-c.Interval)/5)
	switch {
	case c.Sentinel != nil:
		o := bounded(*c.Sentinel, within)
		mine := lease.FailoverOptions(o)
		mine.PoolSize *= c.Partitions
		control = redis.NewFailoverClient(mine)
		return redis.NewFailoverClient(roomy(lease.FailoverOptions(o), c.Sentinel)), control
	case c.Cluster != nil:
		o := bounded(*c.Cluster, within)
		control = redis.NewClusterClient(lease.ClusterOptions(o))
		return redis.NewClusterClient(roomy(lease.ClusterOptions(o), c.Cluster)), control
	default:
		o := bounded(*c.Redis, within)
		mine := lease.Options(o)
		mine.PoolSize *= c.Partitions
		control = redis.NewClient(mine)
		return redis.NewClient(roomy(lease.Options(o), c.Redis)), control
	}
}

var deadlines = []string{"DialTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"}

// bounded shortens the deadlines of options, that of a Dialer too: Client.Options adds one with the
// client's own.
func bounded[O any](o O, within time.Duration) *O {
	fields := reflect.ValueOf(&o).Elem()
	for _, name := range deadlines {
		shorten(fields.FieldByName(name), within)
	}
	dialer := fields.FieldByName("Dialer")
	if dial, _ := dialer.Interface().(func(context.Context, string, string) (net.Conn, error)); dial != nil {
		dialer.Set(reflect.ValueOf(func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			return dial(ctx, network, addr)
		}))
	}
	return &o
}

// roomy restores pool and patience in options of a control client, as they were given.
func roomy[O any](control, given *O) *O {
	to, from := reflect.ValueOf(control).Elem(), reflect.ValueOf(given).Elem()
	for _, name := range []string{
		"PoolSize", "PipelinePoolSize", "MaxConcurrentDials", "MaxActiveConns", "MinIdleConns", "MaxIdleConns",
	} {
		if f := to.FieldByName(name); f.IsValid() {
			f.Set(from.FieldByName(name))
		}
	}
	for _, name := range deadlines {
		to.FieldByName(name).Set(from.FieldByName(name))
		shorten(to.FieldByName(name), longestCall)
	}
	return control
}

// To go-redis, a deadline of 0 or less is a default or none.
func shorten(deadline reflect.Value, most time.Duration) {
	if d := time.Duration(deadline.Int()); d <= 0 || d > most {
		deadline.SetInt(int64(most))
	}
}

// ACL returns the rights that a replica with its janitor needs of Redis, and no more: the rules of
// `ACL SETUSER name on >password ...` for a fleet with this prefix in this database. A fleet that
// has more than one partition needs every key and channel of the prefix's hash tag instead.
func ACL(prefix string, db int) []string {
	var on []string
	commands := []string{"+hello"} // as SELECT, of the client
	for _, need := range needs.Replica(guard.Layout{Prefix: prefix}, keyless.TagOf(db), "*") {
		mark := "~"
		if strings.HasPrefix(need.Commands, "publish") {
			mark = "&"
		}
		if need.On != "" {
			on = append(on, mark+need.On)
		}
		for command := range strings.FieldsSeq(need.Commands) {
			commands = append(commands, "+"+command)
		}
	}
	if db > 0 {
		commands = append(commands, "+select")
	}
	slices.Sort(commands)
	return append(on, slices.Compact(commands)...)
}

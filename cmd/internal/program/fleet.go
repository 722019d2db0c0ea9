package program

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

// Fleet has the settings of a replica among others, and of its janitor.
type Fleet struct {
	Prefix                          string
	HeartbeatInterval, HeartbeatTTL time.Duration
	Every, LeaseTTL                 time.Duration // of passes
	RedisShare                      float64
	ScanCount, DeleteBatch, Exists  int
	DryRun                          bool
	Namespace                       string // of the registry's metrics
	// Partitions of the registry; 0: one, and this program has no sockets of its own.
	Partitions int
}

// Defaults are those of a program's rows.
type Defaults struct {
	Interval, TTL, Every, Prefix string
	// Further texts of the rows.
	Heartbeat, Prefixes, Passes string
}

// Table returns the rows, which begin with name and "_". They are stored in f.
func (f *Fleet) Table(name string, d Defaults) []cli.Setting {
	return []cli.Setting{
		{Name: "HEARTBEAT_INTERVAL", Default: d.Interval,
			Value:       cli.Duration(&f.HeartbeatInterval, 50*time.Millisecond, time.Hour),
			Meaning:     "Time between two heartbeats of a replica" + d.Heartbeat + ".",
			Consequence: "Also how soon everything is back after Redis lost it. While replicas differ, nothing is removed."},
		{Name: "HEARTBEAT_TTL", Default: d.TTL,
			Value:   cli.Duration(&f.HeartbeatTTL, 150*time.Millisecond, 24*time.Hour),
			Meaning: "How long a replica's heartbeat is valid" + d.Heartbeat + ". At least three intervals.",
			Consequence: "How long what the dead held stays, and how long a stall the living survive. **Never** " +
				"shorter than that of plain writers, which nobody can compare."},
		{Name: name + "_PREFIX", Default: d.Prefix, Value: cli.Prefix(&f.Prefix),
			Meaning: "What the names of the fleet's keys begin with.", Consequence: d.Prefixes},
		{Name: name + "_INTERVAL", Default: d.Every, Value: cli.Duration(&f.Every, 50*time.Millisecond, 24*time.Hour),
			Meaning: "Time between two full passes.", Consequence: d.Passes},
		{Name: name + "_INTERVAL_MS", Value: cli.Milliseconds(&f.Every, 50*time.Millisecond, 24*time.Hour),
			Meaning: "The same in milliseconds, in its place."},
		{Name: name + "_LEASE_TTL", Default: "15s",
			Value:       cli.Duration(&f.LeaseTTL, 300*time.Millisecond, 10*time.Minute),
			Meaning:     "How long the lease outlives a leader that died.",
			Consequence: "Shorter: another leads sooner, and the lease is lost to shorter hitches of Redis."},
		{Name: name + "_REDIS_SHARE", Default: "0.25", Value: cli.Share(&f.RedisShare, janitor.LeastShare),
			Meaning:     "Most of Redis' time that all passes together may take.",
			Consequence: "Down to a fifth of it while small calls take longer than usual. At least 0.005."},
		{Name: name + "_SCAN_COUNT", Default: "1000", Value: cli.Number(&f.ScanCount, 1, 20_000),
			Meaning:     "Most entries a page of a scan.",
			Consequence: "Pages begin with half of it, and shrink where one holds Redis for long."},
		{Name: name + "_DELETE_BATCH", Default: "500", Value: cli.Number(&f.DeleteBatch, 1, 1000),
			Meaning: "Most entries a guarded delete.", Consequence: "Batches change as pages do."},
		{Name: name + "_EXISTS_CONCURRENCY", Default: "8", Value: cli.Number(&f.Exists, 1, 1024),
			Meaning:     "Requests for liveness at once, of up to 500 owners each.",
			Consequence: "Matters with thousands of replicas."},
		{Name: name + "_DRY_RUN", Default: "false", Switch: true, Value: cli.Bool(&f.DryRun),
			Meaning:     "The leader judges and reports, and deletes nothing.",
			Consequence: "It holds only while *this* replica leads: set it on all."},
	}
}

// Metrics is the row of the namespace.
func (f *Fleet) Metrics(name string) cli.Setting {
	return cli.Setting{Name: name + "_METRICS_NAMESPACE", Value: cli.Text(&f.Namespace, namespace),
		Meaning: "What the names of the registry's metrics begin with. `teltonika` makes them ingest's, such as " +
			"`teltonika_registry_janitor_evicted_total`."}
}

func namespace(v string) error {
	if !regexp.MustCompile(`^([a-z][a-z0-9_]*)?$`).MatchString(v) {
		return errors.New("lower-case letters, digits and underscores")
	}
	return nil
}

// Layout names the keys.
func (f *Fleet) Layout() guard.Layout { return guard.Layout{Prefix: f.Prefix} }

// ControlDeadline leaves time for another call, after one that hangs, within the shortest period
// that depends on it: a heartbeat's interval, a third of the lease, half of the witness' GAP.
func (f *Fleet) ControlDeadline() time.Duration {
	gap := (f.HeartbeatTTL - f.HeartbeatInterval) / 2
	return min(f.HeartbeatInterval, f.LeaseTTL/3, gap/2) * 9 / 10
}

// Check adds faults of settings that are fine alone and unsafe together.
func (f *Fleet) Check(in *cli.Input, name string, b *Base) {
	if in.Understood("HEARTBEAT_TTL", "HEARTBEAT_INTERVAL") && f.HeartbeatTTL < 3*f.HeartbeatInterval {
		in.Fault("HEARTBEAT_TTL: expected at least three times HEARTBEAT_INTERVAL (%v), got %v: "+
			"a lost beat or two would make a living replica look dead", f.HeartbeatInterval, f.HeartbeatTTL)
	}
	in.NotBoth(name+"_INTERVAL", name+"_INTERVAL_MS")
	if err := f.tagged(name, b); err != nil && in.Understood(name+"_PREFIX") {
		in.Fault("%v", err)
	}
}

// tagged is called again when it is known whether the server belongs to a Cluster.
func (f *Fleet) tagged(name string, b *Base) error {
	if b.Redis.Cluster == nil || f.Layout().OneSlot() {
		return nil
	}
	return fmt.Errorf("%s_PREFIX: expected one with a hash tag, such as {%s}:, which a Redis Cluster needs, got %q",
		name, strings.ToLower(name), f.Prefix)
}

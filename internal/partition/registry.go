package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// ErrPartitionsDiffer ends Run if the fleet has another number of partitions than this replica.
var ErrPartitionsDiffer = errors.New("partition: the fleet has another number of partitions")

// Registry is one registry in partitions. Its methods are those of registry.Registry.
type Registry struct {
	parts   []*registry.Registry
	layout  guard.Layout
	control redis.UniversalClient
	log     *slog.Logger
	started chan struct{}
}

// NewRegistry takes a power of two, at most guard.MostPartitions. With more than one,
// c.Layout.Prefix must have a hash tag, and the metrics have the label "partition".
func NewRegistry(c registry.Config, partitions int) (*Registry, error) {
	switch {
	case !possible(partitions):
		return nil, fmt.Errorf("partition: %d partitions, must be a power of two from 1 to %d",
			partitions, guard.MostPartitions)
	case partitions > 1 && !c.Layout.OneSlot():
		return nil, fmt.Errorf("partition: Layout.Prefix %q has no hash tag, such as {rollcall}:, "+
			"which partitions need", c.Layout.Prefix)
	}
	if c.Instance == "" { // the same in all partitions
		c.Instance, c.Unique = registry.UniqueInstance(), true
	}
	r := &Registry{
		layout: c.Layout, control: c.Control, started: make(chan struct{}),
		log: cmp.Or(c.Logger, slog.Default().With("instance", c.Instance)),
	}
	for k := range partitions {
		of := c
		of.Layout = c.Layout.Partition(k, partitions)
		of.Registerer = labelled(c.Registerer, k, partitions)
		if partitions > 1 {
			of.Logger = r.log.With("partition", k)
		}
		part, err := registry.New(of)
		if err != nil {
			return nil, err
		}
		r.parts = append(r.parts, part)
	}
	return r, nil
}

func labelled(r prometheus.Registerer, k, partitions int) prometheus.Registerer {
	if partitions == 1 || r == nil {
		return r
	}
	return prometheus.WrapRegistererWith(prometheus.Labels{"partition": strconv.Itoa(k)}, r)
}

// Run runs each partition's Registry until one fails or ctx ends. It returns ErrPartitionsDiffer if
// the fleet has another number of partitions.
func (r *Registry) Run(ctx context.Context) error {
	var parts []func(context.Context) error
	for _, part := range r.parts {
		parts = append(parts, part.Run)
	}
	if r.layout.OneSlot() { // others are not divided, and have no key for the number
		parts = append(parts, r.agree)
	}
	var starts sync.WaitGroup
	starts.Go(func() {
		for _, part := range r.parts {
			<-part.Started() // always closed, at the latest when Run ends
		}
		close(r.started)
	})
	defer starts.Wait()
	return runAll(ctx, parts)
}

// runAll runs all parts until one ends or panics, or ctx ends, and returns the first error.
func runAll(ctx context.Context, parts []func(context.Context) error) error {
	life, end := context.WithCancel(ctx)
	defer end()
	p := pool.New().WithErrors().WithFirstError()
	for _, part := range parts {
		p.Go(func() error {
			defer end()
			return part(life)
		})
	}
	return p.Wait()
}

// agree keeps the number of partitions in Redis. It returns ErrPartitionsDiffer if the first answer
// differs. A later change is somebody's mistake, and must not end replicas that hold sockets.
func (r *Registry) agree(ctx context.Context) error {
	mine, agreed, told := strconv.Itoa(len(r.parts)), false, false
	for pause := time.Duration(0); wait.For(ctx, pause); {
		theirs, err := r.partitions(ctx, mine)
		if err != nil { // others log that Redis is down
			pause = r.Timing().Interval / 10
			continue
		}
		pause = r.Timing().Interval // after a loss, a new replica must not be first
		switch {
		case theirs == mine:
			agreed, told = true, false
		case !agreed:
			return fmt.Errorf("%w: %s has %q, this replica %s", ErrPartitionsDiffer,
				r.layout.Partitions(), theirs, mine)
		case !told:
			told = true
			r.log.Error("the number of partitions was overwritten: fix it, or no new replica can join",
				"key", r.layout.Partitions(), "is", theirs, "must_be", mine)
		}
	}
	return nil
}

func (r *Registry) partitions(ctx context.Context, mine string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timing().Interval)
	defer cancel()
	set := redis.SetArgs{Mode: "NX", Get: true}
	theirs, err := r.control.SetArgs(ctx, r.layout.Partitions(), mine, set).Result()
	if errors.Is(err, redis.Nil) { // there was none
		return mine, nil
	}
	return theirs, err
}

// Register registers a socket in the partition of its id.
func (r *Registry) Register(id string, s registry.Socket) *registry.Claim {
	return r.of(id).Register(id, s)
}

// Lookup looks an id up in its partition.
func (r *Registry) Lookup(ctx context.Context, id string) (registry.Owner, error) {
	return r.of(id).Lookup(ctx, id)
}

func (r *Registry) of(id string) *registry.Registry {
	return r.parts[guard.PartitionOf(id, len(r.parts))]
}

// Started is closed when it is closed for every partition.
func (r *Registry) Started() <-chan struct{} { return r.started }

// Instance returns this replica's id, the same in every partition.
func (r *Registry) Instance() string { return r.parts[0].Instance() }

// Layout returns the keys that partitions share, or with one partition all keys.
func (r *Registry) Layout() guard.Layout { return r.layout }

// Home returns the first partition's keys, which sweeps of other things use.
func (r *Registry) Home() guard.Layout { return r.parts[0].Layout() }

// Partitions returns the Registry of each partition.
func (r *Registry) Partitions() []*registry.Registry { return r.parts }

// Timing returns the heartbeats' timing.
func (r *Registry) Timing() guard.Timing { return r.parts[0].Timing() }

// Status covers all partitions: counts are sums, Boot is the first, LastBeat the oldest.
func (r *Registry) Status() registry.Status {
	all := r.parts[0].Status()
	for _, part := range r.parts[1:] {
		s := part.Status()
		all.Held += s.Held
		all.Pending += s.Pending
		all.Disputed += s.Disputed
		all.Registered += s.Registered
		all.Healed += s.Healed
		all.Draining = all.Draining || s.Draining
		all.Heard = all.Heard && s.Heard
		all.Refused = cmp.Or(all.Refused, s.Refused)
		if all.Boot != "" && s.Boot == "" {
			all.Boot = ""
		}
		all.LastBeat = earlier(all.LastBeat, s.LastBeat)
		for op, err := range s.Failing {
			all.Failing[op] = cmp.Or(all.Failing[op], err)
		}
	}
	return all
}

// earlier takes zero for never, before all.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

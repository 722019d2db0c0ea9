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

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// ErrPartitionsDiffer ends Run when the fleet has another number of partitions than this replica.
var ErrPartitionsDiffer = errors.New("partition: the fleet has another number of partitions")

// Registry is one replica's side of a registry in partitions. Its methods are those of
// registry.Registry, which see.
type Registry struct {
	parts   []*registry.Registry
	layout  guard.Layout
	control redis.UniversalClient
	log     *slog.Logger
	started chan struct{}
}

// NewRegistry returns a Registry of so many partitions, a power of two, at most
// guard.MostPartitions. With more than one, c.Layout.Prefix must have a hash tag, also on one
// server, and the metrics have the label "partition". It does not speak to Redis. Errors are of the
// configuration.
func NewRegistry(c registry.Config, partitions int) (*Registry, error) {
	switch {
	case !possible(partitions):
		return nil, fmt.Errorf("partition: %d partitions, must be a power of two from 1 to %d",
			partitions, guard.MostPartitions)
	case partitions > 1 && !c.Layout.OneSlot():
		return nil, fmt.Errorf("partition: Layout.Prefix %q has no hash tag, such as {rollcall}:, "+
			"which partitions need", c.Layout.Prefix)
	}
	if c.Instance == "" { // the same in all
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

// labelled has metrics of a partition told apart.
func labelled(r prometheus.Registerer, k, partitions int) prometheus.Registerer {
	if partitions == 1 || r == nil {
		return r
	}
	return prometheus.WrapRegistererWith(prometheus.Labels{"partition": strconv.Itoa(k)}, r)
}

// Run is registry.Registry.Run of each partition. The first that ends with an error ends all.
// ErrPartitionsDiffer: the fleet has another number of partitions. That is not found out where
// there is one partition and Layout.Prefix has no hash tag.
func (r *Registry) Run(ctx context.Context) error {
	life, end := context.WithCancel(ctx)
	defer end()
	p := pool.New().WithErrors().WithFirstError()
	for _, part := range r.parts {
		p.Go(func() error {
			err := part.Run(life)
			if err != nil {
				end()
			}
			return err
		})
	}
	var checks sync.WaitGroup
	if r.layout.OneSlot() { // others are not divided, and have no key for the number
		p.Go(func() error {
			err := r.agree(life)
			if err != nil {
				end()
			}
			return err
		})
	}
	checks.Go(func() {
		for _, part := range r.parts {
			<-part.Started() // in any case when its Run has ended
		}
		close(r.started)
	})
	defer checks.Wait()
	return p.Wait()
}

// agree has the number of partitions stand in Redis, from the start on and until ctx ends. It
// returns ErrPartitionsDiffer if the first answer is another one. One that is written later is
// somebody's mistake, and no reason to end replicas that hold devices.
func (r *Registry) agree(ctx context.Context) error {
	mine, agreed, told := strconv.Itoa(len(r.parts)), false, false
	for pause := time.Duration(0); wait.For(ctx, pause); {
		theirs, err := r.partitions(ctx, mine)
		if err != nil { // that Redis is away is told elsewhere
			pause = r.Timing().Interval / 10
			continue
		}
		pause = r.Timing().TTL
		switch {
		case theirs == mine:
			agreed, told = true, false
		case !agreed:
			return fmt.Errorf("%w: %s has %q, this replica %s", ErrPartitionsDiffer,
				r.layout.Partitions(), theirs, mine)
		case !told:
			told = true
			r.log.Error("the number of partitions was overwritten: mend it, or no new replica can join",
				"key", r.layout.Partitions(), "is", theirs, "must_be", mine)
		}
	}
	return nil
}

// partitions returns the number that stands in Redis, and writes mine if none does.
func (r *Registry) partitions(ctx context.Context, mine string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timing().Interval)
	defer cancel()
	key := r.layout.Partitions()
	theirs, err := r.control.Get(ctx, key).Result()
	if !errors.Is(err, redis.Nil) {
		return theirs, err
	}
	if err := r.control.SetNX(ctx, key, mine, 0).Err(); err != nil {
		return "", err
	}
	return r.control.Get(ctx, key).Result()
}

// Register is registry.Registry.Register in the device's partition.
func (r *Registry) Register(imei string) *registry.Claim { return r.of(imei).Register(imei) }

// Lookup is registry.Registry.Lookup in the device's partition.
func (r *Registry) Lookup(ctx context.Context, imei string) (registry.Owner, error) {
	return r.of(imei).Lookup(ctx, imei)
}

func (r *Registry) of(imei string) *registry.Registry {
	return r.parts[guard.PartitionOf(imei, len(r.parts))]
}

// Started is closed when every partition's is: see registry.Registry.Started.
func (r *Registry) Started() <-chan struct{} { return r.started }

// Instance returns this replica's instance id, the same in every partition.
func (r *Registry) Instance() string { return r.parts[0].Instance() }

// Layout returns the keys of what partitions share. Where there is one partition it names all keys.
func (r *Registry) Layout() guard.Layout { return r.layout }

// Home returns the keys of the first partition: what is swept with it, such as the commands of dead
// instances, has its keys there.
func (r *Registry) Home() guard.Layout { return r.parts[0].Layout() }

// Partitions returns each partition's side.
func (r *Registry) Partitions() []*registry.Registry { return r.parts }

// Timing is how often this instance beats, and how long its heartbeats last.
func (r *Registry) Timing() guard.Timing { return r.parts[0].Timing() }

// Status is about all partitions: counts are sums, Boot is that of the first, LastBeat is that of
// the partition whose last beat landed longest ago.
func (r *Registry) Status() registry.Status {
	all := r.parts[0].Status()
	for _, part := range r.parts[1:] {
		s := part.Status()
		all.Devices += s.Devices
		all.Pending += s.Pending
		all.Foreign += s.Foreign
		all.Healed += s.Healed
		all.Draining = all.Draining || s.Draining
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

// earlier is the earlier of two times; zero, never, is before all.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

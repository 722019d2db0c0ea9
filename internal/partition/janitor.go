package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/janitor"
)

// Janitor sweeps all partitions. Its methods are those of janitor.Janitor.
type Janitor struct {
	parts []*janitor.Janitor
	seats *seats // nil with one partition: who leads it does not matter
}

// NewJanitor returns a Janitor for all partitions of reg. c.Registry and c.Yield must be nil.
// c.Sweeps run in the first partition only, under whose layout their keys are.
func NewJanitor(c janitor.Config, reg *Registry) (*Janitor, error) {
	if c.Registry != nil || c.Yield != nil {
		return nil, errors.New("partition: Registry and Yield must be nil")
	}
	all := cmp.Or(c.RedisShare, janitor.DefaultRedisShare)
	if !(all >= janitor.LeastShare && all <= 1) {
		return nil, fmt.Errorf("partition: RedisShare is %v, must be from %v to 1", all, janitor.LeastShare)
	}
	j := &Janitor{}
	partitions := len(reg.parts)
	if partitions > 1 {
		j.seats = newSeats(c, reg, j.Leads)
		c.RedisShare = share(all, c.Client, partitions)
	}
	for k, part := range reg.parts {
		of := c
		of.Registry, of.Registerer = part, labelled(c.Registerer, k, partitions)
		if partitions > 1 {
			of.Yield = func() time.Duration { return j.seats.yield(k) }
			of.Logger = reg.log.With("partition", k)
			if k > 0 {
				of.Sweeps = nil
			}
		}
		one, err := janitor.New(of)
		if err != nil {
			return nil, err
		}
		j.parts = append(j.parts, one)
	}
	return j, nil
}

// Run runs each partition's Janitor until one fails or ctx ends.
func (j *Janitor) Run(ctx context.Context) error {
	var parts []func(context.Context) error
	for _, part := range j.parts {
		parts = append(parts, part.Run)
	}
	if j.seats != nil {
		parts = append(parts, func(ctx context.Context) error {
			j.seats.keep(ctx, j.resign)
			return nil
		})
	}
	return runAll(ctx, parts)
}

func (j *Janitor) resign(ctx context.Context, which []int) {
	var all sync.WaitGroup
	for _, k := range which {
		all.Go(func() { _ = j.parts[k].Resign(ctx) }) // it no longer leads, otherwise
	}
	all.Wait()
}

// Sweep runs a pass in each partition that this replica leads, and returns the sum of their
// reports, or a janitor.NotLeaderError if it leads none.
func (j *Janitor) Sweep(ctx context.Context, req janitor.Request) ([]janitor.Report, error) {
	if len(j.parts) == 1 {
		return j.parts[0].Sweep(ctx, req)
	}
	errs, reports := make([]error, len(j.parts)), make([][]janitor.Report, len(j.parts))
	p := pool.New()
	for k, part := range j.parts {
		p.Go(func() { reports[k], errs[k] = part.Sweep(ctx, req) })
	}
	p.Wait()
	if err := failed(errs); err != nil {
		return nil, err
	}
	return Sum(slices.Concat(reports...)), nil
}

// failed ignores that others lead some partitions, or that only the first one has a sweep.
func failed(errs []error) error {
	for _, err := range errs {
		_, elsewhere := errors.AsType[*janitor.NotLeaderError](err)
		_, unknown := errors.AsType[*janitor.UnknownSweepError](err)
		if err != nil && !elsewhere && !unknown {
			return err
		}
	}
	if slices.Contains(errs, nil) {
		return nil
	}
	return errs[0] // the first one has every sweep
}

// Pause holds the leaders of all partitions.
func (j *Janitor) Pause(ctx context.Context, p janitor.Pause) error { return j.parts[0].Pause(ctx, p) }

// Resume ends a pause.
func (j *Janitor) Resume(ctx context.Context) error { return j.parts[0].Resume(ctx) }

// Resign gives up all leases of this replica, or returns a janitor.NotLeaderError.
func (j *Janitor) Resign(ctx context.Context) error {
	p := pool.NewWithResults[error]()
	for _, part := range j.parts {
		p.Go(func() error { return part.Resign(ctx) })
	}
	errs := p.Wait()
	if i := slices.Index(errs, nil); i >= 0 {
		return nil
	}
	return errs[0]
}

// Leads returns the partitions that this replica leads.
func (j *Janitor) Leads() (which []int) {
	for k, part := range j.parts {
		if part.Leading() {
			which = append(which, k)
		}
	}
	return which
}

const leastMasters = 3

func share(all float64, client redis.UniversalClient, partitions int) float64 {
	masters := 1
	if _, ok := client.(*redis.ClusterClient); ok {
		masters = leastMasters
	}
	return min(all, all*float64(masters)/float64(partitions))
}

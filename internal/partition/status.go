package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// Status covers all partitions: counts are sums, Leading means at least one, Leader and Epoch are
// the first one's. Witness is that of the partition held longest, or of one whose last tick failed,
// with the checks that are off in any.
// Sweeps has one report per sweep, the sum with the worst outcome. On a leader only its own
// partitions count: others report the rest.
func (j *Janitor) Status() janitor.Status {
	parts := make([]janitor.Status, len(j.parts))
	for k, part := range j.parts {
		parts[k] = part.Status()
	}
	return statusOf(parts)
}

func statusOf(parts []janitor.Status) janitor.Status {
	all := parts[0]
	if len(parts) == 1 {
		return all
	}
	leads := slices.ContainsFunc(parts, func(s janitor.Status) bool { return s.Leading })
	if leads && !all.Leading {
		all.Sweeps = nil
	}
	for _, s := range parts[1:] {
		all.Leading = all.Leading || s.Leading
		all.Evicted += s.Evicted
		all.Unsettled += s.Unsettled
		all.Passes = append(all.Passes, s.Passes...)
		if s.Leading || !leads {
			all.Sweeps = append(all.Sweeps, s.Sweeps...)
		}
		all.Pace = cmp.Or(all.Pace, s.Pace)
		all.Paused = cmp.Or(all.Paused, s.Paused)
		evicted, off := all.Witness.Evicted+s.Witness.Evicted, slices.Concat(all.Witness.ChecksOff, s.Witness.ChecksOff)
		if worse(s.Witness, all.Witness) {
			all.Witness = s.Witness
		}
		slices.Sort(off)
		all.Witness.Evicted, all.Witness.ChecksOff = evicted, slices.Compact(off)
	}
	all.Sweeps = Sum(all.Sweeps)
	return all
}

// worse reports whether a allows fewer deletes than b. A partition that this replica does not
// observe never counts as worse.
func worse(a, b janitor.WitnessStatus) bool {
	switch {
	case a.LastTick.IsZero() || b.LastTick.IsZero():
		return b.LastTick.IsZero()
	case (a.Error == "") != (b.Error == ""):
		return a.Error != ""
	}
	return a.HeldFor > b.HeldFor
}

var outcomes = []janitor.Outcome{janitor.Done, janitor.Held, janitor.Lost, janitor.Failed}

// Sum returns one report per sweep: counts are sums, and the outcome, with its reason and error, is
// the worst. Started is the earliest, Seconds the longest.
func Sum(reports []janitor.Report) (all []janitor.Report) {
	for _, r := range reports {
		i := slices.IndexFunc(all, func(a janitor.Report) bool { return a.Sweep == r.Sweep })
		if i < 0 {
			r.Spared = maps.Clone(r.Spared)
			all = append(all, r)
			continue
		}
		a := &all[i]
		a.Scanned += r.Scanned
		a.Condemned += r.Condemned
		a.Evicted += r.Evicted
		for reason, n := range r.Spared {
			if a.Spared == nil {
				a.Spared = map[janitor.SkipReason]int{}
			}
			a.Spared[reason] += n
		}
		a.Started, a.Seconds = earlier(a.Started, r.Started), max(a.Seconds, r.Seconds)
		if slices.Index(outcomes, r.Outcome) > slices.Index(outcomes, a.Outcome) {
			a.Outcome, a.Reason, a.Error = r.Outcome, r.Reason, r.Error
		}
	}
	return all
}

// Count reads the number of partitions, for readers. Without a number in Redis, it is one. An
// impossible number is an error.
func Count(ctx context.Context, client redis.UniversalClient, l guard.Layout) (int, error) {
	text, err := client.Get(ctx, l.Partitions()).Result()
	if errors.Is(err, redis.Nil) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("partition: read the number of partitions: %w", err)
	}
	n, err := strconv.Atoi(text)
	if err != nil || !possible(n) {
		return 0, fmt.Errorf("partition: %s is %.20q, must be a power of two from 1 to %d",
			l.Partitions(), text, guard.MostPartitions)
	}
	return n, nil
}

func possible(n int) bool { return n >= 1 && n <= guard.MostPartitions && n&(n-1) == 0 }

// LookupMany looks ids up, partition by partition.
func (r *Registry) LookupMany(ctx context.Context, ids []string) (map[string]registry.Owner, error) {
	of := make(map[*registry.Registry][]string)
	for _, id := range ids {
		of[r.of(id)] = append(of[r.of(id)], id)
	}
	owners := make(map[string]registry.Owner, len(ids))
	for part, ids := range of {
		some, err := part.LookupMany(ctx, ids)
		if err != nil {
			return nil, err
		}
		maps.Copy(owners, some)
	}
	return owners, nil
}

// Owners reports an instance as alive if it has a heartbeat in any partition.
func (r *Registry) Owners(ctx context.Context) ([]registry.Owner, error) {
	live := make(map[string]bool)
	for _, part := range r.parts {
		owners, err := part.Owners(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range owners {
			live[o.Instance] = live[o.Instance] || o.Live
		}
	}
	var owners []registry.Owner
	for _, instance := range slices.Sorted(maps.Keys(live)) {
		owners = append(owners, registry.Owner{Instance: instance, Live: live[instance]})
	}
	return owners, nil
}

// Holdings walks an instance's ids, partition by partition.
func (r *Registry) Holdings(ctx context.Context, instance string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, part := range r.parts {
			for id, err := range part.Holdings(ctx, instance) {
				if !yield(id, err) || err != nil {
					return
				}
			}
		}
	}
}

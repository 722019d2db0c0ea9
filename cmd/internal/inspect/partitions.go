package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
)

// Partitions describes a registry that has several.
type Partitions struct {
	Count   int             `json:"count"`
	Leaders []Leads         `json:"leaders"`
	Unled   []int           `json:"unled,omitempty"`
	Unheard []int           `json:"unheard,omitempty"`
	Holds   []PartitionHold `json:"holds,omitempty"`
	Worst   int             `json:"worst"`   // of Witness and Hold
	Largest int             `json:"largest"` // by entries
	Most    int64           `json:"most_entries"`
	Unread  []int           `json:"unread,omitempty"`
}

// Leads lists an instance's partitions.
type Leads struct {
	Instance   string `json:"instance"`
	Address    string `json:"address,omitempty"`
	Partitions []int  `json:"partitions"`
}

// PartitionHold lists the partitions held for a reason.
type PartitionHold struct {
	Reason     string    `json:"reason"`
	Until      time.Time `json:"until,omitzero"`
	Partitions []int     `json:"partitions"`
}

// Leads describes what an instance leads.
func (s *Status) Leads(instance string) string {
	switch which := s.Partitions.Leads(instance); {
	case len(which) > 0:
		return "leads " + Numbers(which)
	case s.Partitions == nil && s.Leader != nil && s.Leader.Instance == instance:
		return "leads"
	}
	return ""
}

// Leads returns what an instance leads.
func (p *Partitions) Leads(instance string) []int {
	if p == nil {
		return nil
	}
	for _, l := range p.Leaders {
		if l.Instance == instance {
			return l.Partitions
		}
	}
	return nil
}

// Numbers formats partitions for people: 0-3, 7.
func Numbers(partitions []int) string {
	var texts []string
	for i := 0; i < len(partitions); {
		j := i
		for j+1 < len(partitions) && partitions[j+1] == partitions[j]+1 {
			j++
		}
		text := strconv.Itoa(partitions[i])
		if j > i {
			text += "-" + strconv.Itoa(partitions[j])
		}
		texts, i = append(texts, text), j+1
	}
	return strings.Join(texts, ", ")
}

func named(partitions []int) string {
	if len(partitions) == 1 {
		return "partition " + Numbers(partitions)
	}
	return "partitions " + Numbers(partitions)
}

// parts is r itself if the keys have no hash tag, or this user may not read the number of
// partitions.
func (r *Reader) parts(ctx context.Context) ([]*Reader, error) {
	if r.single || !r.keys.OneSlot() {
		return []*Reader{r}, nil
	}
	n, err := r.count(ctx)
	switch {
	case Refused(err):
		n = 1
	case err != nil:
		if known := r.divided.Load(); known != nil {
			return *known, nil
		}
		probed, ok := r.probe(ctx)
		if !ok {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		n = probed
	}
	if err == nil {
		foreign := n
		if n = r.really(ctx, n); n == foreign {
			foreign = 0
		}
		r.foreign.Store(int64(foreign))
	}
	if n == 1 {
		return []*Reader{r}, nil
	}
	if known := r.divided.Load(); known != nil && len(*known) == n {
		return *known, nil
	}
	parts := make([]*Reader, n)
	for k := range parts {
		parts[k] = &Reader{client: r.client, keys: r.keys.Partition(k, n), number: k, single: true}
	}
	r.divided.Store(&parts)
	return parts, nil
}

// really returns the fleet's number of partitions, where Redis has n. It is another one only on
// evidence that somebody overwrote it: the first partition of n has no witness, and that of the
// other number was heard lately. An old witness may be a former fleet's, and an unreadable one
// proves nothing.
func (r *Reader) really(ctx context.Context, n int) int {
	if known := r.divided.Load(); known != nil && len(*known) == n {
		return n
	}
	if found, err := r.client.Exists(ctx, r.keys.Partition(0, n).Witness()).Result(); err != nil || found > 0 {
		return n
	}
	now, err := r.now(ctx)
	if err != nil {
		return n
	}
	for other := 1; other <= guard.MostPartitions; other *= 2 {
		if other == n {
			continue
		}
		first := &Reader{client: r.client, keys: r.keys.Partition(0, other), single: true}
		if w, err := first.witness(ctx); err == nil && w.heard(now) {
			return other
		}
	}
	return n
}

// overwrittenNumber is of a divided fleet, whose key for that has another one.
type overwrittenNumber struct {
	key, is string
	parts   int
}

func (r *Reader) overwritten(parts int) *overwrittenNumber {
	n := r.foreign.Load()
	if n == 0 {
		return nil
	}
	is := strconv.FormatInt(n, 10)
	if n == 1 {
		is += " or missing"
	}
	return &overwrittenNumber{r.keys.Partitions(), is, parts}
}

func (r *Reader) count(ctx context.Context) (int, error) {
	if _, ok := r.client.(*redis.ClusterClient); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, reachTimeout)
		defer cancel()
	}
	return partition.Count(ctx, r.client, r.keys)
}

const atOnce = 16

func each[T any](
	ctx context.Context, parts []*Reader, ask func(ctx context.Context, part *Reader) (T, error),
) ([]T, error) {
	answers := make([]T, len(parts))
	if len(parts) == 1 {
		var err error
		answers[0], err = ask(ctx, parts[0])
		return answers, err
	}
	p := pool.New().WithMaxGoroutines(atOnce).WithContext(ctx).WithCancelOnError().WithFirstError()
	for i, part := range parts {
		p.Go(func(ctx context.Context) (err error) {
			if answers[i], err = ask(ctx, part); err != nil {
				return fmt.Errorf("partition %d: %w", part.number, err)
			}
			return nil
		})
	}
	return answers, p.Wait()
}

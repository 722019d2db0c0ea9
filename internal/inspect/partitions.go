package inspect

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/partition"
)

// Partitions is about the partitions of a registry that has several.
type Partitions struct {
	Count   int     `json:"count"`
	Leaders []Leads `json:"leaders"`         // who leads which, by instance
	Unled   []int   `json:"unled,omitempty"` // nobody leads these
	// Unheard are those in which nobody listens to Redis.
	Unheard []int           `json:"unheard,omitempty"`
	Holds   []PartitionHold `json:"holds,omitempty"` // by reason, but for a pause, which holds all
	Worst   int             `json:"worst"`           // the one that Witness and Hold are of
	Largest int             `json:"largest"`         // the one with the most entries
	Most    int64           `json:"most_entries"`    // of the largest
	// Looked is in how many the instances were looked at, if not in all: there are too many
	// heartbeats. Devices are then not known.
	Looked int `json:"looked,omitempty"`

	forever []int // their leases never expire
	passes  map[string][]janitor.Report
}

// Leads says which partitions an instance leads.
type Leads struct {
	Instance   string `json:"instance"`
	Address    string `json:"address,omitempty"` // of its HTTP; "": not known
	Partitions []int  `json:"partitions"`
}

// PartitionHold says which partitions are held for a reason.
type PartitionHold struct {
	Reason     string    `json:"reason"`
	Until      time.Time `json:"until,omitzero"` // when the last of these ends
	Partitions []int     `json:"partitions"`
}

// Leads are the partitions that an instance leads.
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

// leads tells whether an instance leads, all or a part of them.
func (s Status) leads(instance string) bool {
	return s.Partitions == nil && s.Leader != nil && s.Leader.Instance == instance ||
		len(s.Partitions.Leads(instance)) > 0
}

// led adds what a leader of some partitions says of itself.
func (s *Status) led(p Replica) {
	of := s.Partitions
	i := slices.IndexFunc(of.Leaders, func(l Leads) bool { return l.Instance == p.Instance })
	if i < 0 {
		return
	}
	of.Leaders[i].Address = p.Address
	if of.passes == nil {
		of.passes = map[string][]janitor.Report{}
	}
	of.passes[p.Instance] = p.Passes
	var all []janitor.Report
	for _, l := range of.Leaders {
		all = append(all, of.passes[l.Instance]...)
	}
	s.Passes = partition.Sum(all)
}

// Numbers writes partitions as people read them: 0-3, 7.
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

// named names some partitions in a sentence.
func named(partitions []int) string {
	if len(partitions) == 1 {
		return "partition " + Numbers(partitions)
	}
	return "partitions " + Numbers(partitions)
}

// parts is a Reader of each partition, by number. A fleet whose keys have no hash tag has one,
// which is r itself, and so has one whose number of partitions this user may not read.
func (r *Reader) parts(ctx context.Context) ([]*Reader, error) {
	if r.single || !r.keys.OneSlot() {
		return []*Reader{r}, nil
	}
	n, err := partition.Count(ctx, r.client, r.keys)
	switch {
	case Refused(err):
		n = 1
	case err != nil:
		return nil, fmt.Errorf("inspect: %w", err)
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

// part is a Reader of the partition of a device.
func (r *Reader) part(ctx context.Context, imei string) (*Reader, error) {
	parts, err := r.parts(ctx)
	if err != nil {
		return nil, err
	}
	return parts[guard.PartitionOf(imei, len(parts))], nil
}

// atOnce is how many partitions are asked at once.
const atOnce = 16

// each asks partitions, some at once, and returns the answers in their order. The first error ends
// all.
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

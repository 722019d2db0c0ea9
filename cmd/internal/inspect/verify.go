package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// Verification counts inconsistencies.
type Verification struct {
	Entries    int `json:"entries"` // as scanned
	Dead       int `json:"dead"`    // the owner has no heartbeat
	NotIndexed int `json:"not_indexed"`
	// members of an index whose entry names another owner, or does not exist
	NotEntries int `json:"not_entries"`
	// Unreadable entries can be judged by nobody: their owner is not an instance, or they are too
	// long. UnreadableEntries names the first of the former kind.
	Unreadable        int          `json:"unreadable"`
	UnreadableEntries []string     `json:"unreadable_entries,omitempty"`
	Owners            []OwnerCount `json:"owners"`
}

// OwnerCount has the counts of one owner.
type OwnerCount struct {
	Owner      string `json:"owner"`
	Alive      bool   `json:"alive"`
	Entries    int    `json:"entries"`
	NotIndexed int    `json:"not_indexed"`
	NotEntries int    `json:"not_entries"`
}

// add counts an owner's, of one partition.
func (v *Verification) add(o OwnerCount) {
	v.Entries, v.NotIndexed, v.NotEntries = v.Entries+o.Entries, v.NotIndexed+o.NotIndexed, v.NotEntries+o.NotEntries
	if !o.Alive {
		v.Dead += o.Entries
	}
	i := slices.IndexFunc(v.Owners, func(of OwnerCount) bool { return of.Owner == o.Owner })
	if i < 0 {
		v.Owners = append(v.Owners, o)
		return
	}
	of := &v.Owners[i]
	of.Alive, of.Entries = of.Alive && o.Alive, of.Entries+o.Entries
	of.NotIndexed, of.NotEntries = of.NotIndexed+o.NotIndexed, of.NotEntries+o.NotEntries
}

type verification struct {
	owners     map[string]*OwnerCount
	unreadable int
	named      []string
}

func newVerification() *verification { return &verification{owners: map[string]*OwnerCount{}} }

func (v *verification) of(owner string) *OwnerCount {
	o := v.owners[owner]
	if o == nil {
		o = &OwnerCount{Owner: owner}
		v.owners[owner] = o
	}
	return o
}

// Verify scans the whole registry and all indexes: about a microsecond of Redis' time per entry, in
// pages of a thousand. Recent changes may count as inconsistent, and scans may repeat entries: run
// it again before acting on small numbers. An owner counts as alive if it has a heartbeat in each
// partition that has something of it. With an [UnreadError], all else was counted.
func (r *Reader) Verify(ctx context.Context) (Verification, error) {
	_, to, err := r.reachParts(ctx)
	if err != nil {
		return Verification{}, err
	}
	found, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (*verification, error) {
		return part.verify(ctx)
	})
	if err != nil {
		return Verification{}, err
	}
	all := Verification{Owners: []OwnerCount{}}
	for _, v := range found {
		all.Entries, all.Unreadable = all.Entries+v.unreadable, all.Unreadable+v.unreadable
		all.UnreadableEntries = append(all.UnreadableEntries, v.named...)
		for _, o := range v.owners {
			all.add(*o)
		}
	}
	slices.SortFunc(all.Owners, func(a, b OwnerCount) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Owner, b.Owner))
	})
	return all, to.err()
}

func (r *Reader) verify(ctx context.Context) (*verification, error) {
	v := newVerification()
	err := pages(func(cursor uint64) (uint64, error) {
		page, err := guard.HScan(ctx, r.client, r.keys.Registry(), cursor, pageSize)
		if v.unreadable += page.Left; err == nil {
			err = r.compare(ctx, page.Items, v)
		}
		return page.Next, err
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: scan the registry: %w", err)
	}
	roster, _, err := r.roster(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range roster {
		v.of(id)
	}
	beats, err := r.heartbeats(ctx, slices.Collect(maps.Keys(v.owners)))
	if err != nil {
		return nil, err
	}
	for id, o := range v.owners {
		o.Alive = beats[id].Alive
		if err := r.compareIndex(ctx, o); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func pages(read func(cursor uint64) (next uint64, err error)) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var err error
		if cursor, err = read(cursor); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) compare(ctx context.Context, page []string, v *verification) error {
	if len(page) == 0 {
		return nil
	}
	p := r.client.Pipeline()
	type asked struct {
		owner  string
		member *redis.BoolSliceCmd
	}
	var all []asked
	for pair := range slices.Chunk(page, 2) {
		if !judgeable(pair[1]) {
			if v.unreadable++; len(v.named) < mostUnreadable {
				v.named = append(v.named, pair[0])
			}
			continue
		}
		all = append(all, asked{pair[1], p.SMIsMember(ctx, r.keys.Devices(pair[1]), pair[0])})
	}
	if len(all) == 0 {
		return nil
	}
	if err := exec(ctx, p, "the indexes"); err != nil {
		return err
	}
	for _, a := range all {
		o := v.of(a.owner)
		o.Entries++
		if !is(a.member) {
			o.NotIndexed++
		}
	}
	return nil
}

func (r *Reader) compareIndex(ctx context.Context, o *OwnerCount) error {
	err := pages(func(cursor uint64) (uint64, error) {
		page, next, err := r.client.SScan(ctx, r.keys.Devices(o.Owner), cursor, "", pageSize).Result()
		if wrongType(err) {
			return 0, nil
		}
		if err != nil || len(page) == 0 {
			return next, err
		}
		owners, err := r.client.HMGet(ctx, r.keys.Registry(), page...).Result()
		for _, owner := range owners {
			if owner != o.Owner {
				o.NotEntries++
			}
		}
		return next, err
	})
	if err != nil {
		return fmt.Errorf("inspect: scan the index of %q: %w", o.Owner, err)
	}
	return nil
}

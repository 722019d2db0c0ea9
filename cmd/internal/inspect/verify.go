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

type verification struct {
	owners     map[string]*OwnerCount
	unreadable int
	named      []string
}

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
// partition that has something of it; also are looked for wherever they are
// named. With an error that is [Partial], all else was counted.
func (r *Reader) Verify(ctx context.Context, also ...string) (Verification, error) {
	to, err := r.reach(ctx)
	if err != nil {
		return Verification{}, err
	}
	found, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (*verification, error) {
		return part.verify(ctx, also)
	})
	if err != nil {
		return Verification{}, err
	}
	all := Verification{Owners: []OwnerCount{}}
	owners := map[string]*OwnerCount{}
	for _, v := range found {
		all.Entries, all.Unreadable = all.Entries+v.unreadable, all.Unreadable+v.unreadable
		all.UnreadableEntries = append(all.UnreadableEntries, v.named...)
		for id, o := range v.owners {
			all.Entries, all.NotIndexed, all.NotEntries = all.Entries+o.Entries, all.NotIndexed+o.NotIndexed,
				all.NotEntries+o.NotEntries
			if !o.Alive {
				all.Dead += o.Entries
			}
			of := owners[id]
			if of == nil {
				owners[id] = o
				continue
			}
			of.Alive, of.Entries = of.Alive && o.Alive, of.Entries+o.Entries
			of.NotIndexed, of.NotEntries = of.NotIndexed+o.NotIndexed, of.NotEntries+o.NotEntries
		}
	}
	for _, o := range owners {
		all.Owners = append(all.Owners, *o)
	}
	slices.SortFunc(all.Owners, func(a, b OwnerCount) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Owner, b.Owner))
	})
	return all, to.err()
}

func (r *Reader) verify(ctx context.Context, also []string) (*verification, error) {
	v := &verification{owners: map[string]*OwnerCount{}}
	for page, err := range guard.Fields(ctx, r.client, r.keys.Registry(), guard.Paging{}) {
		if v.unreadable += page.Left; err == nil {
			err = r.compare(ctx, page.Items, v)
		}
		if err != nil {
			return nil, fmt.Errorf("inspect: scan the registry: %w", err)
		}
	}
	roster, _, err := r.roster(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range append(roster, also...) {
		v.of(id)
	}
	beats, err := r.heartbeats(ctx, slices.Collect(maps.Keys(v.owners)))
	if err != nil {
		return nil, err
	}
	for id, o := range v.owners {
		if o.Alive = beats[id].Alive; beats[id].badIndex && slices.Contains(also, id) {
			o.NotEntries++ // something of it is left
		}
		if err := r.compareIndex(ctx, o); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (r *Reader) compare(ctx context.Context, page []string, v *verification) error {
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
	for page, err := range guard.Members(ctx, r.client, r.keys.Devices(o.Owner), guard.Paging{}) {
		if wrongType(err) || err == nil && len(page.Items) == 0 {
			continue
		}
		var owners []any
		if err == nil {
			owners, err = r.client.HMGet(ctx, r.keys.Registry(), page.Items...).Result()
		}
		if err != nil {
			return fmt.Errorf("inspect: scan the index of %q: %w", o.Owner, err)
		}
		for _, owner := range owners {
			if owner != o.Owner {
				o.NotEntries++
			}
		}
	}
	return nil
}

// Held lists ids that an instance owns.
type Held struct {
	Instance string   `json:"instance"`
	IDs      []string `json:"ids"`
	// Next continues the list; "": it has ended.
	Next string `json:"next,omitempty"`
}

// List returns about most ids that an instance holds, in no order, from where an earlier list
// ended. It looks through the registry, and not the index.
func (r *Reader) List(ctx context.Context, instance, after string, most int) (Held, error) {
	h := Held{Instance: instance, IDs: []string{}}
	parts, err := r.parts(ctx)
	if err != nil {
		return h, err
	}
	var k int
	var cursor uint64
	_, _ = fmt.Sscanf(after, "%d-%d", &k, &cursor) // "": from the beginning
	for ; k >= 0 && k < len(parts); k++ {
		for first := true; first || cursor != 0; first = false {
			if len(h.IDs) >= most || ctx.Err() != nil {
				h.Next = fmt.Sprintf("%d-%d", k, cursor)
				return h, ctx.Err()
			}
			page, err := guard.HScan(ctx, parts[k].client, parts[k].keys.Registry(), cursor, pageSize)
			if err != nil {
				return h, fmt.Errorf("inspect: scan the registry: %w", err)
			}
			for i := 0; i+1 < len(page.Items); i += 2 {
				if page.Items[i+1] == instance {
					h.IDs = append(h.IDs, page.Items[i])
				}
			}
			cursor = page.Next
		}
	}
	return h, nil
}

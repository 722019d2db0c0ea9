package orphan

import (
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// pageOf is how many candidates are looked at together.
const pageOf = pipelined

// walk meets every candidate of a rule, in pages; some more than once. It stops at the first error.
func (r *rule) walk(ctx context.Context, c caller, servers *topology, page func([]*candidate) error) error {
	var found []*candidate
	add := func(some []*candidate) error {
		found = append(found, some...)
		if len(found) < pageOf {
			return nil
		}
		full := joined(found)
		found = nil
		return page(full)
	}
	if r.candidates == nil {
		if err := r.walkMembers(ctx, c, add); err != nil {
			return err
		}
	}
	for _, pattern := range r.patterns() {
		for _, s := range servers.masters {
			err := scan(ctx, c, s.client, pattern, func(keys []string) error {
				var some []*candidate
				for _, key := range keys {
					if each := r.ofKey(key); each != nil {
						some = append(some, each)
					}
				}
				return add(some)
			})
			if err != nil {
				return err
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return page(joined(found))
}

// joined makes one candidate of all the related keys of one parent that is not there.
func joined(page []*candidate) (all []*candidate) {
	parents := map[string]*candidate{}
	for _, c := range page {
		if !c.alone {
			all = append(all, c)
			continue
		}
		parent := parents[c.name()]
		if parent == nil {
			parents[c.name()] = c
			all = append(all, c)
			continue
		}
		parent.related = append(parent.related, c.related...)
	}
	return all
}

// scan reads the names of keys on one server.
func scan(
	ctx context.Context,
	c caller,
	on redis.UniversalClient,
	pattern string,
	page func([]string) error,
) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var keys []string
		err := c.Call(ctx, func(ctx context.Context) (err error) {
			keys, cursor, err = on.Scan(ctx, cursor, pattern, int64(c.PageSize())).Result()
			return err
		})
		if err == nil && len(keys) > 0 {
			err = page(keys)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rule) walkMembers(ctx context.Context, c caller, page func([]*candidate) error) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var members []string
		step := 2 // a member, and its score or value
		err := c.Call(ctx, func(ctx context.Context) (err error) {
			client, size := c.Client(), int64(c.PageSize())
			switch {
			case r.Members.ZSet != "":
				members, cursor, err = client.ZScan(ctx, r.container, cursor, "", size).Result()
			case r.Members.Hash != "":
				members, cursor, err = client.HScan(ctx, r.container, cursor, "", size).Result()
			default:
				members, cursor, err = client.SScan(ctx, r.container, cursor, "", size).Result()
				step = 1
			}
			return err
		})
		if err != nil {
			return err
		}
		var some []*candidate
		for i := 0; i < len(members); i += step {
			some = append(some, r.ofMember(members[i]))
		}
		if err := page(some); err != nil {
			return err
		}
	}
	return nil
}

// patterns are those of SCAN that find candidates and related keys: one, if their names begin
// alike. Each costs Redis a walk through all keys.
func (r *rule) patterns() (all []string) {
	if r.candidates == nil && len(r.exact)+len(r.wild) == 0 {
		return nil
	}
	var common string
	add := func(t *template) {
		if all = append(all, t.glob()); len(all) == 1 {
			common = t.prefix()
		}
		for !strings.HasPrefix(t.prefix(), common) {
			common = common[:len(common)-1]
		}
	}
	if r.candidates != nil {
		add(r.candidates)
	}
	for _, t := range r.exact {
		add(t)
	}
	for _, t := range r.wild {
		add(t)
	}
	if len(all) > 1 && len(common) >= 2 {
		return []string{escapeGlob(common) + "*"}
	}
	return all
}

// mostRelated is the most related keys that go with one candidate. What is left is found again
// without its parent.
const mostRelated = 1000

// findRelated finds the related keys that only a pattern knows, of these candidates.
func (r *rule) findRelated(ctx context.Context, c caller, servers *topology, of map[string]*candidate) error {
	for _, t := range r.wild {
		for _, s := range servers.masters {
			err := scan(ctx, c, s.client, t.glob(), func(keys []string) error {
				for _, key := range keys {
					found := r.ofKey(key)
					if found == nil || len(found.related) == 0 {
						continue
					}
					if parent := of[found.name()]; parent != nil && len(parent.related) < mostRelated {
						parent.related = append(parent.related, key)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	for _, parent := range of { // in one order, whatever that of SCAN is
		slices.Sort(parent.related)
	}
	return nil
}

package orphan

import (
	"context"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

const pageOf = pipelined

// walk meets every candidate of a rule, some more than once.
func (r *rule) walk(ctx context.Context, c caller, d *rider, page func([]*candidate) error) error {
	return r.walkAll(ctx, c, d, func(string) {}, page)
}

func (r *rule) walkAll(
	ctx context.Context, c caller, d *rider, met func(key string), page func([]*candidate) error,
) error {
	var found []*candidate
	add := func(some []*candidate) error {
		found = append(found, some...)
		for len(found) >= pageOf {
			full := found[:pageOf]
			found = slices.Clone(found[pageOf:])
			if err := page(joined(full)); err != nil {
				return err
			}
		}
		return nil
	}
	err := d.eachKey(ctx, c, func(keys []string) error {
		var some []*candidate
		var containers []string
		for _, key := range keys {
			met(key)
			if r.many() && r.holds(key) && !strings.Contains(key, " ") {
				containers = append(containers, key)
			}
			if each := r.ofKey(key); each != nil {
				some = append(some, each)
			}
		}
		types, err := typesOf(ctx, c, containers)
		if err != nil {
			return err
		}
		for _, key := range containers {
			if types[key] != r.Members.Kind() {
				continue
			}
			if err := r.walkMembers(ctx, c, key, add); err != nil {
				return err
			}
		}
		return add(some)
	})
	if err == nil && r.container != nil && !r.many() {
		err = r.walkMembers(ctx, c, rules.Literal(r.container.String()), add)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	return page(joined(found))
}

func (r *rule) templates() (all []*rules.Template) {
	if r.candidates != nil {
		all = append(all, r.candidates)
	}
	if r.many() {
		all = append(all, r.container)
	}
	return slices.Concat(all, r.exact, r.wild)
}

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

// many reports whether candidates are members of many keys. Those of another type, or with a space
// in their name, are somebody else's: in a mark the member would have no clear beginning.
func (r *rule) many() bool { return r.container != nil && len(r.container.Variables()) > 0 }

func (r *rule) walkMembers(ctx context.Context, c caller, key string, page func([]*candidate) error) error {
	most, err := r.membersAtOnce(ctx, c, key)
	if err != nil {
		return err
	}
	members := &members{rule: r, key: key, most: most, named: true}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var some []*candidate
		err := c.Call(ctx, func(ctx context.Context) (err error) {
			some, cursor, err = members.scan(ctx, c, cursor)
			return err
		})
		if err != nil {
			return err
		}
		if err := page(some); err != nil {
			return err
		}
	}
	return nil
}

type members struct {
	*rule
	key   string
	most  int64
	named bool // HSCAN NOVALUES: Redis 7.4
}

// membersAtOnce bounds the members in one answer, whose names and values can be of any size.
func (r *rule) membersAtOnce(ctx context.Context, c caller, key string) (int64, error) {
	id, size := identity{}, "SCARD"
	switch {
	case r.Members.ZSet != "":
		size = "ZCARD"
	case r.Members.Hash != "":
		size = "HLEN"
	}
	err := (&looking{rule: r, caller: c}).ask(ctx, []question{
		{args: []string{size, key}, told: func(answer *redis.Cmd) { id.size, _ = answer.Int64() }},
		{args: []string{"MEMORY", "USAGE", key, "SAMPLES", "50"}, told: func(answer *redis.Cmd) {
			id.memory, _ = answer.Int64()
		}},
	})
	return id.step(), err
}

func (m *members) scan(ctx context.Context, c caller, cursor uint64) (some []*candidate, next uint64, err error) {
	var found []string
	each, client, size := 2, c.Client(), min(m.most, int64(c.PageSize()))
	switch {
	case m.Members.ZSet != "":
		found, next, err = client.ZScan(ctx, m.key, cursor, "", size).Result()
	case m.Members.Set != "":
		each = 1
		found, next, err = client.SScan(ctx, m.key, cursor, "", size).Result()
	case m.named:
		each = 1
		found, next, err = client.HScanNoValues(ctx, m.key, cursor, "", size).Result()
		if err != nil && together.Answered(err) {
			m.named = false
			return m.scan(ctx, c, cursor)
		}
	default:
		found, next, err = client.HScan(ctx, m.key, cursor, "", size).Result()
	}
	for i := 0; i < len(found); i += each {
		some = append(some, m.ofMember(m.key, found[i]))
	}
	return some, next, err
}

// Bounds of the remembered names of related keys.
const (
	mostRelated = 10_000   // of one candidate: the others are found later, without their parent
	mostNames   = 32 << 20 // bytes, of all rules
	nameCost    = 48       // bytes beside its text
	unbounded   = 1 << 40
)

func (x *pass) roomForNames() int64 { return mostNames - x.set.names.Load() }

func (x *pass) holdNames(bytes int64) {
	x.nameBytes += bytes
	x.set.names.Add(bytes)
}

func (x *pass) findRelated(ctx context.Context, of map[string]*candidate) error {
	d := x.set.walks.join(x.servers, x.wild)
	err := d.eachKey(ctx, x.Pass, func(keys []string) error {
		for _, key := range keys {
			found := x.ofKey(key)
			if found == nil || !found.alone || len(found.related) == 0 {
				continue
			}
			if parent := of[found.name()]; parent != nil {
				x.holdNames(parent.addRelated(found.related, x.roomForNames()))
			}
		}
		return nil
	})
	for _, parent := range of {
		parent.tidy()
	}
	return err
}

// addRelated returns the bytes added. It stops once the room is used up.
func (c *candidate) addRelated(keys []string, room int64) (added int64) {
	before := c.weight
	for _, key := range keys {
		cost := int64(len(key) + nameCost)
		if c.weight+cost > before+room {
			c.more = true
			break
		}
		c.related, c.weight = append(c.related, key), c.weight+cost
	}
	if len(c.related) >= 2*mostRelated {
		c.tidy()
	}
	return c.weight - before
}

// tidy sorts the related keys, and drops duplicates and those beyond mostRelated.
func (c *candidate) tidy() {
	slices.Sort(c.related)
	c.related = slices.Compact(c.related)
	if len(c.related) > mostRelated {
		c.related, c.more = slices.Clone(c.related[:mostRelated]), true
	}
	c.weight = 0
	for _, key := range c.related {
		c.weight += int64(len(key) + nameCost)
	}
}

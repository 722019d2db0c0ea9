package orphan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// walk meets every candidate of a rule, some more than once, and every key that its rider is given.
func (r *rule) walk(
	ctx context.Context, c caller, d *rider, met func(key string), page func([]*candidate) error,
) error {
	var found []*candidate
	add := func(some []*candidate) error {
		var full [][]*candidate
		full, found = pagesOf(append(found, some...))
		for _, one := range full {
			if err := page(one); err != nil {
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
	return page(found)
}

// pageNames (bytes) is about how much the names of a page may have.
const pageNames = 1 << 20

// pagesOf cuts candidates into pages that are full, and the rest.
func pagesOf(all []*candidate) (full [][]*candidate, rest []*candidate) {
	from, bytes := 0, 0
	for i, c := range all {
		if bytes += len(c.key) + len(c.member); i+1-from == pageOf || bytes >= pageNames {
			full, from, bytes = append(full, all[from:i+1]), i+1, 0
		}
	}
	return full, slices.Clone(all[from:])
}

func typesOf(ctx context.Context, c caller, keys []string) (types map[string]string, err error) {
	types = make(map[string]string, len(keys))
	if len(keys) == 0 {
		return types, nil
	}
	err = c.Call(ctx, func(ctx context.Context) error {
		cmds, err := c.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys {
				pipe.Type(ctx, key)
			}
			return nil
		})
		for i, cmd := range cmds {
			types[keys[i]] = cmd.(*redis.StatusCmd).Val()
		}
		return err
	})
	return types, err
}

// mostCompact (bytes) is the largest compact encoding that is scanned: a scan returns one whole,
// whatever its COUNT.
const mostCompact = 256 << 10

// errCompact: the members of one key cannot be read in small calls.
var errCompact = errors.New("its encoding is one piece, too large to be read at once: lower " +
	"the server's limits of listpacks and intsets")

// checkCompact asks before the first page whether members can be read page by page.
func (r *rule) checkCompact(ctx context.Context, c caller, key string) error {
	return c.Call(ctx, func(ctx context.Context) error {
		is, err := c.Client().ObjectEncoding(ctx, key).Result()
		if err == redis.Nil || err == nil && is != "listpack" && is != "intset" && is != "ziplist" && is != "listpackex" {
			return nil
		}
		if err != nil && together.Answered(err) { // unknown: the default limits are small
			return nil
		}
		if err != nil {
			return err
		}
		bytes, err := c.Client().MemoryUsage(ctx, key, 0).Result()
		if err == nil && bytes > mostCompact {
			return fmt.Errorf("orphan: rule %q: %s: %w", r.Name, rules.Spell(key), errCompact)
		}
		if err != nil && !together.Answered(err) {
			return err
		}
		return nil
	})
}

func (r *rule) walkMembers(ctx context.Context, c caller, key string, page func([]*candidate) error) error {
	if err := r.checkCompact(ctx, c, key); err != nil {
		return err
	}
	members := &members{rule: r, key: key, named: true}
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
	pages proof.Pages
	named bool // HSCAN NOVALUES: Redis 7.4
}

func (m *members) scan(ctx context.Context, c caller, cursor uint64) (some []*candidate, next uint64, err error) {
	var found []string
	each, client, size := 2, c.Client(), m.pages.Next(c.PageSize())
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
	m.pages.Read(found)
	for i := 0; i < len(found); i += each {
		some = append(some, m.ofMember(m.key, found[i]))
	}
	return some, next, err
}

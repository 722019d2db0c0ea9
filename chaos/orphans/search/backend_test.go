package search

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan"
)

// candidate is one thing that may be an orphan.
type candidate struct {
	*rule
	user    string
	present bool
	related bool // its related key is there
	follows bool // the candidate has gone, and its related key goes along
	misfit  bool // it is not what the rule reads, so it stays
	content int
	version int // another one is another thing
	field   int // when its field expires, as a number that only grows; 0: never
	expires time.Time
	dump    string
	shows   map[string]bool // signs
	over    bool            // its document says so
	looks   []look
}

// look is one at a candidate's signs by a worker that may delete.
type look struct {
	at      time.Time
	alive   bool
	present bool
	version int
}

// probe is the command that asks for a sign of a candidate.
func (c *candidate) probe(sign string) string {
	switch i := c.place(); sign {
	case "also":
		return "EXISTS a" + i + ":" + c.user
	case "exists":
		return "EXISTS s" + i + ":" + c.user
	case "member":
		return "SISMEMBER on" + i + " " + c.user
	default:
		return "HEXISTS f" + i + " " + c.user
	}
}

func (c *candidate) key() string {
	if c.Members != nil {
		return "m" + c.place()
	}
	return "c" + c.place() + ":" + c.user + c.suffix
}

// keeps reports whether its related key stays: it could be somebody else's.
func (c *candidate) keeps() bool { return strings.Contains(c.user, ":") }

func (c *candidate) relative() string { return "x" + c.place() + ":" + c.user }
func (c *candidate) name() string     { return c.Name + "/" + c.user }

// alive is the truth. The rule may look at fewer signs than the backend has: what it is told is its
// truth.
func (c *candidate) alive() bool {
	if c.GoneIf != nil && !c.over || c.misfit || c.also != nil && c.shows["also"] {
		return true
	}
	for i, sign := range c.signs {
		if i < len(c.KeepIf) && c.shows[sign] {
			return true
		}
	}
	return c.young()
}

func (c *candidate) young() bool {
	return c.MinAge != nil && c.there() && c.MinAge.FromTTL-time.Until(c.expires) <= c.MinAge.Over
}

// there reports whether a candidate is there, as far as nobody has deleted it.
func (c *candidate) there() bool {
	return c.present && (c.expires.IsZero() || time.Now().Before(c.expires))
}

// expired reports whether it has gone by itself, or may have.
func (c *candidate) expired() bool {
	return !c.expires.IsZero() && time.Until(c.expires) < time.Second
}

// make writes a candidate as another thing than it was.
func (w *world) make(c *candidate) {
	w.change(func() {
		c.present, c.related, c.follows = true, c.Related != nil, false
		c.content++
		if c.kind != "set" {
			c.version++
		}
		c.expires = time.Time{}
		if c.ttl > 0 {
			left := c.ttl
			if w.chance(1, 4) {
				left = c.ttl / time.Duration(2+w.rng.IntN(4))
			}
			c.expires = time.Now().Add(left)
		}
	})
	w.write(c, func(ctx context.Context, p redis.Pipeliner) {
		c.set(ctx, p)
		if c.ttl > 0 {
			p.PExpire(ctx, c.key(), time.Until(c.expires))
		}
		if c.related {
			p.Set(ctx, c.relative(), c.content, 0)
		}
	})
}

// set writes what a candidate is. One that is another thing than the rule reads stays what it is.
func (c *candidate) set(ctx context.Context, p redis.Pipeliner) {
	c.field = 0
	switch kind := c.kind; {
	case kind == "zset":
		p.ZAdd(ctx, c.key(), redis.Z{Score: float64(c.content), Member: c.user})
	case kind == "set":
		p.SAdd(ctx, c.key(), c.user)
	case kind == "field":
		p.HSet(ctx, c.key(), c.user, c.content)
	case kind == "json" && c.misfit:
		p.Set(ctx, c.key(), fmt.Sprintf(`{"room":"","n":%d}`, c.content), 0)
	case kind == "json":
		p.Set(ctx, c.key(), fmt.Sprintf(`{"room":"r","n":%d}`, c.content), 0)
	case kind == "string", c.misfit:
		p.Set(ctx, c.key(), c.content, 0)
	case kind == "hash":
		p.HSet(ctx, c.key(), "v", c.content)
	case kind == "state":
		p.Del(ctx, c.key())
		p.HSet(ctx, c.key(), "v", c.content)
		if c.over {
			p.HSet(ctx, c.key(), "state", "over")
		} else if c.content%2 == 0 { // else it has none yet
			p.HSet(ctx, c.key(), "state", "open")
		}
	}
}

// write writes to a candidate, and remembers what it is.
func (w *world) write(c *candidate, f func(ctx context.Context, p redis.Pipeliner)) {
	var dump *redis.StringCmd
	w.do(func(ctx context.Context, p redis.Pipeliner) {
		f(ctx, p)
		dump = p.Dump(ctx, c.key())
	})
	c.dump = dump.Val()
}

// refresh moves the expiry of a field far away, where fields have one.
func (w *world) refresh(c *candidate) {
	if !w.fields || !c.there() || c.misfit || c.kind != "hash" && c.kind != "field" {
		return
	}
	name := c.user
	if c.kind == "hash" {
		name = "v"
	}
	w.change(func() {
		c.version++
		w.refreshed++
		c.field = w.refreshed
	})
	far := time.Date(2060, 1, 1, 0, 0, c.field, 0, time.UTC).UnixMilli()
	w.write(c, func(ctx context.Context, p redis.Pipeliner) {
		p.Do(ctx, "HPEXPIREAT", c.key(), far, "FIELDS", 1, name)
	})
}

// change changes the truth.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// remove is the client's own delete, which may forget what is related.
func (w *world) remove(c *candidate, all bool) {
	w.change(func() { c.present, c.related = false, c.related && !all })
	w.do(func(ctx context.Context, p redis.Pipeliner) {
		switch c.kind {
		case "zset":
			p.ZRem(ctx, c.key(), c.user)
		case "set":
			p.SRem(ctx, c.key(), c.user)
		case "field":
			p.HDel(ctx, c.key(), c.user)
		default:
			p.Del(ctx, c.key())
		}
		if all {
			p.Del(ctx, c.relative())
		}
	})
}

// show has a candidate show a sign, or show it no more.
func (w *world) show(c *candidate, sign string, is bool) {
	if sign == "also" && c.also == nil {
		return
	}
	w.change(func() { c.shows[sign] = is })
	if !c.lost || sign == "also" {
		w.do(func(ctx context.Context, p redis.Pipeliner) { c.write(ctx, p, sign) })
	}
}

func (c *candidate) write(ctx context.Context, p redis.Pipeliner, sign string) {
	switch i, is := c.place(), c.shows[sign]; {
	case sign == "also" && is:
		p.Set(ctx, "a"+i+":"+c.user, 1, 0)
	case sign == "also":
		p.Del(ctx, "a"+i+":"+c.user)
	case sign == "exists" && is:
		p.Set(ctx, "s"+i+":"+c.user, 1, 0)
	case sign == "exists":
		p.Del(ctx, "s"+i+":"+c.user)
	case sign == "member" && is:
		p.SAdd(ctx, "on"+i, c.user)
	case sign == "member":
		p.SRem(ctx, "on"+i, c.user)
	case is:
		p.HSet(ctx, "f"+i, c.user, 1)
	default:
		p.HDel(ctx, "f"+i, c.user)
	}
}

func (w *world) finish(c *candidate, over bool) {
	w.change(func() {
		c.over = over
		w.docs[c.Name+"-"+c.user] = orphan.Document{"status": map[bool]string{true: "finished", false: "ongoing"}[over]}
		if c.kind == "state" {
			c.version++
		}
	})
	if c.kind == "state" && c.there() {
		w.write(c, func(ctx context.Context, p redis.Pipeliner) {
			c.set(ctx, p)
			if c.ttl > 0 {
				p.PExpire(ctx, c.key(), time.Until(c.expires))
			}
		})
	}
}

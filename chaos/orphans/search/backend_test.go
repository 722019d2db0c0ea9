package search

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan"
)

// candidate is one thing that may be an orphan.
type candidate struct {
	*rule
	user    string
	present bool
	misfit  bool // it is not what the rule reads, so it stays
	content int
	version int // another one is another thing
	field   int // when its field expires, as a number that only grows; 0: never
	expires time.Time
	dump    string
	shows   map[string]bool // signs
	over    bool            // its document says so
	looks   []look
	gone    []thing // that a worker has deleted, one after the other
	// turned and made are when the truth about it and when it itself was last changed, as moments.
	turned, made int
	turnedAt     string // the key of that sign
}

// thing is what a candidate was. Times are the server's.
type thing struct {
	at, expires time.Time
	dump        string
	field       int
	over        bool
}

// thing is what it is now.
func (w *world) thing(c *candidate) thing {
	is := thing{at: w.clock.time(), dump: c.dump, field: c.field, over: c.over}
	if !c.expires.IsZero() {
		is.expires = w.clock.time().Add(time.Until(c.expires))
	}
	return is
}

// look is one at a candidate's signs by a worker that may delete.
type look struct {
	at      time.Time
	server  time.Time // by the servers' clock, which graces count by
	moment  int
	alive   bool
	present bool
	version int
}

// signKey is the key that has a sign.
func (c *candidate) signKey(sign string) string {
	switch sign {
	case "exists":
		return c.of("s", c.user)
	case "member":
		return "on" + c.place()
	case "list":
		return "l" + c.place()
	default:
		return "f" + c.place()
	}
}

// probe is the command that asks for a sign of a candidate.
func (c *candidate) probe(sign string) string {
	switch key := c.signKey(sign); sign {
	case "exists":
		return "EXISTS " + key
	case "member":
		return "SISMEMBER " + key + " " + c.signer()
	case "list":
		return "LISTED " + key + " " + c.signer()
	default:
		return "HEXISTS " + key + " " + c.signer()
	}
}

// nobody is an owner that a rule excludes.
const nobody = "nobody"

// signer is what signs call it: what it holds, if that is the text of its owner.
func (c *candidate) signer() string {
	if c.kind == "text" {
		return "o-" + c.user
	}
	return c.user
}

func (c *candidate) key() string {
	if c.Members != nil {
		return "m" + c.place()
	}
	return c.named(c.user)
}

func (c *candidate) name() string { return c.Name + "/" + c.user }

// alive is the truth. The rule may look at fewer signs than the backend has: what it is told is its
// truth.
func (c *candidate) alive() bool {
	if c.GoneIf != nil && !c.over || c.misfit && c.there() {
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
	whole := !w.sees(c.there)
	w.alter(c, "", func() {
		c.present, c.field = true, 0
		c.content++
		c.made = w.moment
		was := c.expires
		c.expires = time.Time{}
		if c.ttl > 0 && !c.lasts() {
			left := c.ttl
			if w.chance(1, 4) {
				left = c.ttl / time.Duration(2+w.rng.IntN(4))
			}
			c.expires = time.Now().Add(left)
		}
		if c.kind != "set" && (c.kind != "text" || !c.expires.Equal(was)) {
			c.version++
		}
	})
	w.write(c, func(ctx context.Context, p redis.Pipeliner) {
		c.set(ctx, p, whole)
		c.expire(ctx, p)
	})
}

// lasts reports whether it is over, and so has no expiry.
func (c *candidate) lasts() bool { return c.kind == "lasting" && c.over }

func (c *candidate) expire(ctx context.Context, p redis.Pipeliner) {
	if !c.expires.IsZero() {
		p.PExpire(ctx, c.key(), time.Until(c.expires))
	}
}

// bigOf is how many elements a large candidate has: too many to be compared whole.
const bigOf = 600

// set writes what a candidate is. One that is another thing than the rule reads stays what it is.
func (c *candidate) set(ctx context.Context, p redis.Pipeliner, whole bool) {
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
	case kind == "text" && c.misfit:
		text := ""
		if c.ttl > 0 {
			text = nobody
		}
		p.Set(ctx, c.key(), text, 0)
	case kind == "text":
		p.Set(ctx, c.key(), c.signer(), 0)
	case kind == "string", kind == "lasting", c.misfit:
		p.Set(ctx, c.key(), c.content, 0)
	case kind == "missing" && c.Read == "json":
		state := []string{`,"state":""`, `,"state":null`, `,"state":"open"`}[c.content%3]
		if c.over {
			state = ""
		}
		p.Set(ctx, c.key(), fmt.Sprintf(`{"n":%d%s}`, c.content, state), 0)
	case kind == "missing":
		p.Del(ctx, c.key())
		p.HSet(ctx, c.key(), "v", c.content)
		if !c.over {
			p.HSet(ctx, c.key(), "state", []string{"", "open"}[c.content%2])
		}
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
	case kind == "scores":
		var all []redis.Z
		for i := range bigOf { // only what is in the middle changes, and not its place
			all = append(all, redis.Z{Score: float64(i * 1000), Member: fmt.Sprint("m", i)})
		}
		all[bigOf/2].Score += float64(c.content % 1000)
		p.ZAdd(ctx, c.key(), all...)
	case kind == "stream":
		if whole {
			p.Del(ctx, c.key())
			for i := range bigOf {
				p.XAdd(ctx, &redis.XAddArgs{Stream: c.key(), ID: fmt.Sprint(i+1, "-1"), Values: []string{"n", fmt.Sprint(i)}})
			}
		}
		p.XGroupCreate(ctx, c.key(), fmt.Sprint("g", c.content), "0")
	}
}

// write writes to a candidate, and remembers what it is.
func (w *world) write(c *candidate, f func(ctx context.Context, p redis.Pipeliner)) {
	var dump *redis.StringCmd
	w.do(func(ctx context.Context, p redis.Pipeliner) {
		f(ctx, p)
		dump = p.Dump(ctx, c.key())
	})
	w.change(func() { c.dump = dump.Val() })
}

// refresh moves the expiry of a field far away, where fields have one.
func (w *world) refresh(c *candidate) {
	if !w.fields || !w.sees(c.there) || c.misfit || c.kind != "hash" && c.kind != "field" {
		return
	}
	name := c.user
	if c.kind == "hash" {
		name = "v"
	}
	w.alter(c, "", func() {
		c.version++
		c.made = w.moment
		w.refreshed++
		c.field = w.refreshed
	})
	w.write(c, func(ctx context.Context, p redis.Pipeliner) {
		p.Do(ctx, "HPEXPIREAT", c.key(), farAway(c.field).UnixMilli(), "FIELDS", 1, name)
	})
}

func farAway(n int) time.Time { return time.Date(2060, 1, 1, 0, 0, n, 0, time.UTC) }

// change changes the truth.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// sees reads what workers change as well.
func (w *world) sees(f func() bool) (is bool) {
	w.change(func() { is = f() })
	return is
}

// alter changes the truth about a candidate, by a sign in that key if there is one.
func (w *world) alter(c *candidate, key string, f func()) {
	w.change(func() {
		w.moment++
		c.turned, c.turnedAt = w.moment, key
		f()
	})
}

// remove is the client's own delete.
func (w *world) remove(c *candidate) {
	w.alter(c, "", func() { c.present = false })
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
	})
}

// show has a candidate show a sign, or show it no more.
func (w *world) show(c *candidate, sign string, is bool) {
	w.alter(c, c.signKey(sign), func() { c.shows[sign] = is })
	if !c.lost {
		w.do(func(ctx context.Context, p redis.Pipeliner) { c.write(ctx, p, sign) })
	}
}

func (c *candidate) write(ctx context.Context, p redis.Pipeliner, sign string) {
	switch key, is := c.signKey(sign), c.shows[sign]; {
	case sign == "exists":
		if p.Del(ctx, key); is {
			p.Set(ctx, key, 1, 0)
		}
	case sign == "member" && is:
		p.SAdd(ctx, key, c.signer())
	case sign == "member":
		p.SRem(ctx, key, c.signer())
	case sign == "list": // beside others, as in a queue
		p.LRem(ctx, key, 0, c.signer())
		if is {
			p.RPush(ctx, key, c.signer())
		}
	case is:
		p.HSet(ctx, key, c.signer(), 1)
	default:
		p.HDel(ctx, key, c.signer())
	}
}

// finish writes what the database, or the candidate itself, says of it: that it is over, or one of
// the things that do not say so.
func (w *world) finish(c *candidate, over bool) {
	doc := orphan.Document{"status": map[bool]string{true: "finished", false: "ongoing"}[over]}
	if c.ends {
		doc["ended"] = w.clock.time().Add(-2 * time.Hour)
		if !over && w.chance(2, 3) { // whoever wrote this meant no time
			doc["status"], doc["ended"] = "finished", []time.Time{{}, time.Unix(0, 0)}[w.rng.IntN(2)]
		}
	}
	w.alter(c, "", func() {
		if c.kind == "lasting" && c.over != over && c.there() {
			if c.expires = (time.Time{}); !over {
				c.expires = time.Now().Add(c.ttl)
			}
		}
		c.over = over // one that is over again is the same thing as before
		w.docs[c.Name+"-"+c.user] = doc
	})
	if c.tellsItself() && w.sees(c.there) {
		w.write(c, func(ctx context.Context, p redis.Pipeliner) {
			c.set(ctx, p, false)
			c.expire(ctx, p)
		})
	}
}

package search

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan"
)

// rule is a rule, and what the model has to know of it.
type rule struct {
	orphan.Rule
	kind   string // string, hash; zset, set, field: of members
	signs  []string
	ttl    time.Duration // of candidates, by most of their writers
	others orphan.Rule   // what it is edited to, and back
	lost   bool          // its reference is
	cands  []*candidate
}

// candidate is one thing that may be an orphan.
type candidate struct {
	*rule
	user    string
	present bool
	related bool // its related key is there
	content int
	version int // another one is another thing
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

var graces = []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 4 * time.Minute}

// addRule makes up a rule and its candidates.
func (w *world) addRule(i int) {
	r := &rule{kind: []string{"string", "string", "hash", "zset", "set", "field"}[w.rng.IntN(6)]}
	r.Name, r.Delete, r.Grace = fmt.Sprintf("r%d", i), true, graces[w.rng.IntN(len(graces))]
	container := fmt.Sprintf("m%d", i)
	switch r.kind {
	case "zset":
		r.Members = &orphan.Members{ZSet: container, As: "u"}
	case "set":
		r.Members = &orphan.Members{Set: container, As: "u"}
	case "field":
		r.Members = &orphan.Members{Hash: container, As: "u"}
	default:
		r.Keys = fmt.Sprintf("c%d:{u}", i)
	}
	for _, sign := range []string{"exists", "member", "field"} {
		if w.chance(1, 2) {
			r.signs = append(r.signs, sign)
		}
	}
	if r.kind != "set" && w.chance(1, 5) || len(r.signs) == 0 {
		r.signs = nil
		r.GoneIf = &orphan.Evidence{Mongo: &orphan.Mongo{
			Collection: "docs", ID: r.Name + "-{u}", All: []orphan.Condition{{Field: "status", In: []string{"finished"}}},
		}}
	}
	for _, sign := range r.signs {
		r.KeepIf = append(r.KeepIf, r.sign(sign))
	}
	w.furnish(r, i)
	n := 3 + w.rng.IntN(5)
	if w.chance(1, 5) {
		n = 25
	}
	for u := range n {
		c := &candidate{rule: r, user: fmt.Sprintf("u%d", u), shows: map[string]bool{}}
		r.cands, w.all = append(r.cands, c), append(w.all, c)
		for _, sign := range r.signs {
			w.probes[c.probe(sign)] = c
		}
		w.probes["DOC "+r.Name+"-"+c.user] = c
		w.make(c)
		for _, sign := range r.signs {
			w.show(c, sign, w.chance(4, 5))
		}
		w.finish(c, w.chance(1, 5))
	}
	w.rules, w.in[r.Name] = append(w.rules, r), true
	w.refer(r)
	w.say("rule %s: %s, signs %v, gone_if %v, grace %s, interval %s, ttl %s, age %+v, lost %v, bin %s, related %v, %d candidates",
		r.Name, r.kind, r.signs, r.GoneIf != nil, r.Grace, w.interval, r.ttl, r.MinAge, r.UnlessLost, r.Bin, r.Related, n)
}

// furnish gives a rule what it may have besides.
func (w *world) furnish(r *rule, i int) {
	if len(r.signs) > 0 && w.chance(1, 2) {
		r.UnlessLost = []orphan.Reference{{Exists: fmt.Sprintf("ref%d", i)}}
	}
	if w.chance(1, 3) {
		r.Related = []string{fmt.Sprintf("x%d:{u}", i)}
	}
	if w.chance(1, 2) {
		r.Bin = 12 * time.Hour
	}
	if r.Keys != "" && w.chance(1, 2) {
		r.ttl = time.Hour
		if w.chance(1, 2) {
			r.MinAge = &orphan.Age{FromTTL: r.ttl, Over: time.Duration(1+w.rng.IntN(10)) * time.Minute}
		}
	}
	r.others = r.Rule
	r.others.Grace = graces[w.rng.IntN(len(graces))]
	if len(r.KeepIf) > 1 && w.chance(1, 2) {
		r.others.KeepIf = r.KeepIf[:1]
	}
}

func (r *rule) place() string { return r.Name[1:] }

func (r *rule) sign(kind string) orphan.Sign {
	switch i := r.place(); kind {
	case "exists":
		return orphan.Sign{Exists: "s" + i + ":{u}"}
	case "member":
		return orphan.Sign{Member: &orphan.Member{Set: "on" + i, Of: "{u}"}}
	default:
		return orphan.Sign{Field: &orphan.Field{Hash: "f" + i, Field: "{u}"}}
	}
}

// probe is the command that asks for a sign of a candidate.
func (c *candidate) probe(sign string) string {
	switch i := c.place(); sign {
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
	return "c" + c.place() + ":" + c.user
}

func (c *candidate) relative() string { return "x" + c.place() + ":" + c.user }
func (c *candidate) name() string     { return c.Name + "/" + c.user }

// alive is the truth. The rule may look at fewer signs than the backend has: what it is told is its
// truth.
func (c *candidate) alive() bool {
	if c.GoneIf != nil && !c.over {
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
		c.present, c.related = true, c.Related != nil
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
	var dump *redis.StringCmd
	w.do(func(ctx context.Context, p redis.Pipeliner) {
		switch c.kind {
		case "string":
			p.Set(ctx, c.key(), c.content, 0)
		case "hash":
			p.HSet(ctx, c.key(), "v", c.content)
		case "zset":
			p.ZAdd(ctx, c.key(), redis.Z{Score: float64(c.content), Member: c.user})
		case "set":
			p.SAdd(ctx, c.key(), c.user)
		case "field":
			p.HSet(ctx, c.key(), c.user, c.content)
		}
		if c.ttl > 0 {
			p.PExpire(ctx, c.key(), time.Until(c.expires))
		}
		if c.related {
			p.Set(ctx, c.relative(), c.content, 0)
		}
		dump = p.Dump(ctx, c.key())
	})
	c.dump = dump.Val()
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
	w.change(func() { c.shows[sign] = is })
	if !c.lost {
		w.do(func(ctx context.Context, p redis.Pipeliner) { c.write(ctx, p, sign) })
	}
}

func (c *candidate) write(ctx context.Context, p redis.Pipeliner, sign string) {
	switch i, is := c.place(), c.shows[sign]; {
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
	})
}

// refer writes a rule's reference, and the signs that were lost with it.
func (w *world) refer(r *rule) {
	r.lost = false
	w.do(func(ctx context.Context, p redis.Pipeliner) {
		p.Set(ctx, "ref"+r.place(), 1, 0)
		for _, c := range r.cands {
			for _, sign := range r.signs {
				c.write(ctx, p, sign)
			}
		}
	})
}

// lose loses a rule's reference, and with it all signs.
func (w *world) lose(r *rule) {
	r.lost = true
	w.do(func(ctx context.Context, p redis.Pipeliner) {
		p.Del(ctx, "ref"+r.place(), "on"+r.place(), "f"+r.place())
		for _, c := range r.cands {
			p.Del(ctx, "s"+r.place()+":"+c.user)
		}
	})
}

// rulesNow are the rules that workers have now. One is never about anything.
func (w *world) rulesNow() []orphan.Rule {
	all := []orphan.Rule{{Name: "nothing", Keys: "zz:{u}", KeepIf: []orphan.Sign{{Exists: "zs:{u}"}}}}
	for _, r := range w.rules {
		if w.in[r.Name] {
			is := r.Rule
			is.KeepIf = slices.Clone(is.KeepIf)
			all = append(all, is)
		}
	}
	return all
}

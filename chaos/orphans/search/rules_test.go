package search

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// rule is a rule, and what the model has to know of it.
type rule struct {
	rules.Rule
	kind    string // one of kindsOfRules
	tagged  bool   // its keys have a slot for each candidate
	split   bool   // the names of its members have two parts
	ends    bool   // documents say when it was over
	signs   []string
	ttl     time.Duration // of candidates, by most of their writers
	others  rules.Rule    // what it is edited to, and back
	lost    bool          // its reference is
	suffix  string        // of the names of candidates
	cands   []*candidate
	reports bool // it deletes nothing
	fallen  *fall
}

// fall is when most of a rule's candidates lost their signs in one instant.
type fall struct {
	at  time.Time
	who []*candidate
}

// kindsOfRules are what candidates are: the last three are of members.
var kindsOfRules = []string{
	"string", "json", "text", "hash", "state", "missing", "lasting", "scores", "stream", "zset", "set", "field",
}

var graces = []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 4 * time.Minute}

// addRule makes up a rule and its candidates.
func (w *world) addRule(i int) {
	r := &rule{kind: kindsOfRules[w.rng.IntN(len(kindsOfRules))]}
	r.Name, r.Delete, r.Grace = fmt.Sprintf("r%d", i), true, graces[w.rng.IntN(len(graces))]
	container, as := fmt.Sprintf("m%d", i), "u"
	if slices.Contains([]string{"zset", "set", "field"}, r.kind) && w.chance(1, 2) {
		r.split, as, r.Not = true, "{u}:{part}", map[string][]string{"part": {"ping"}}
	}
	switch r.kind {
	case "zset":
		r.Members = &rules.Members{ZSet: container, As: as}
	case "set":
		r.Members = &rules.Members{Set: container, As: as}
	case "field":
		r.Members = &rules.Members{Hash: container, As: as}
	default:
		if r.tagged = w.chance(2, 3); !r.tagged {
			r.suffix = []string{"", ".k"}[w.rng.IntN(2)]
		}
		r.Keys = r.template("c") + r.suffix
	}
	for _, sign := range []string{"exists", "member", "list", "field"} {
		if w.chance(1, 2) {
			r.signs = append(r.signs, sign)
		}
	}
	switch r.kind {
	case "json":
		r.Read, r.Bind = "json", map[string]string{"room": ".room"}
	case "text":
		r.Read, r.Bind = "text", map[string]string{"owner": "."}
	case "hash":
		r.Read = []string{"", "hash"}[w.rng.IntN(2)]
	case "state":
		r.Read, r.signs = "hash", nil
		r.GoneIf = &rules.Evidence{Value: &rules.Value{Field: ".state", In: []string{"over", ""}}}
	case "missing":
		r.Read, r.GoneIf = []string{"json", "hash"}[w.rng.IntN(2)], &rules.Evidence{Missing: ".state"}
	case "lasting":
		r.GoneIf = &rules.Evidence{NoExpiry: true}
	}
	if r.GoneIf == nil && (r.kind != "set" && w.chance(1, 5) || len(r.signs) == 0) {
		r.signs = nil
		all := []rules.Condition{{Field: "status", In: []string{"finished"}}}
		if r.ends = w.chance(1, 2); r.ends {
			all = append(all, rules.Condition{Field: "ended", Before: time.Hour})
		}
		r.GoneIf = &rules.Evidence{Mongo: &rules.Mongo{Collection: "docs", ID: r.Name + "-" + r.variables(), All: all}}
	}
	if r.lacks() {
		r.Grace = max(r.Grace, time.Minute) // a shorter one is refused
		if w.chance(1, 2) {
			r.signs = nil
		}
	}
	for _, sign := range r.signs {
		r.KeepIf = append(r.KeepIf, r.sign(sign))
	}
	w.furnish(r, i)
	n := 3 + w.rng.IntN(5)
	switch {
	case r.kind == "scores" || r.kind == "stream":
		n = 3
	case w.chance(1, 5):
		n = 25
	case i > 0 && w.chance(1, 8): // with a backlog that stays
		n, r.reports = 70, true
		r.Delete, r.others.Delete = false, false
	}
	for u := range n {
		c := &candidate{rule: r, user: fmt.Sprintf("u%d", u), shows: map[string]bool{}}
		if u == 1 && r.Members != nil && w.chance(1, 2) {
			c.user = "u0:z"
		}
		c.misfit = u > 0 && r.Read != "" && w.chance(1, 6)
		if r.split {
			c.user = fmt.Sprintf("u%d:p%d", u, u%3)
			if c.misfit = u > 0 && w.chance(1, 4); c.misfit {
				c.user = fmt.Sprintf([]string{"u%d", "u%d:p:z", "u%d:ping"}[w.rng.IntN(3)], u)
			}
		}
		r.cands, w.all = append(r.cands, c), append(w.all, c)
		for _, sign := range r.signs {
			w.probes[c.probe(sign)] = c
		}
		w.probes["DOC "+r.Name+"-"+c.user] = c
		switch {
		case r.kind == "lasting":
			w.probes["PEXPIRETIME "+c.key()] = c
		case r.kind == "missing" && r.Read == "json":
			w.probes["READ "+c.key()] = c
		default:
			w.probes["FIELDS "+c.key()+" state"] = c
		}
		if r.Members == nil {
			w.owners[c.key()] = c
		}
		w.make(c)
		for _, sign := range r.signs {
			w.show(c, sign, !r.reports && w.chance(4, 5))
		}
		w.finish(c, w.chance(1, 5))
	}
	w.bystand(r)
	w.rules, w.in[r.Name] = append(w.rules, r), true
	w.refer(r)
	w.say("rule %s: %s, signs %v, gone_if %+v, grace %s, interval %s, ttl %s, age %+v, lost %v, bin %s, %d candidates",
		r.Name, r.kind, r.signs, r.GoneIf, r.Grace, w.interval, r.ttl, r.MinAge, r.UnlessLost, r.Bin, n)
}

// of is a key of one candidate.
func (r *rule) of(what, user string) string {
	if r.tagged {
		user = "{" + user + "}"
	}
	return what + r.place() + ":" + user
}

// template is such a key in a rule.
func (r *rule) template(what string) string {
	if r.tagged {
		return what + r.place() + ":{{{u}}}"
	}
	return what + r.place() + ":" + r.variables()
}

// variables are what a candidate is called in a rule.
func (r *rule) variables() string {
	if r.split {
		return "{u}:{part}"
	}
	return "{u}"
}

// owner is what signs call a candidate.
func (r *rule) owner() string {
	if r.kind == "text" {
		return "{owner}"
	}
	return r.variables()
}

// lacks reports whether the evidence is that something is not there.
func (r *rule) lacks() bool { return r.kind == "missing" || r.kind == "lasting" }

// tellsItself reports whether the candidates themselves say that they are over.
func (r *rule) tellsItself() bool { return r.kind == "state" || r.lacks() }

func (r *rule) named(user string) string { return r.of("c", user) + r.suffix }

// bystand writes keys whose names look nearly like those of candidates, and that are none.
func (w *world) bystand(r *rule) {
	if r.Keys == "" {
		return
	}
	keys := []string{r.named("u0:more"), r.named("ping")}
	r.Not = map[string][]string{"u": {"ping"}}
	if r.kind == "text" {
		r.Not["owner"] = []string{nobody}
	}
	if r.suffix != "" {
		keys = append(keys, r.named("u0.old"))
	}
	if w.chance(1, 2) {
		switch r.kind {
		case "scores":
			r.Type = "zset"
		case "stream":
			r.Type = "stream"
		case "hash", "state":
			r.Type = "hash"
		default:
			r.Type = "string"
			if r.Read == "hash" {
				r.Type = "hash"
			}
		}
		other := r.named("list")
		w.do(func(ctx context.Context, p redis.Pipeliner) { p.RPush(ctx, other, 1) })
		w.bystanders = append(w.bystanders, other)
	}
	r.others.Not, r.others.Type = r.Not, r.Type
	w.do(func(ctx context.Context, p redis.Pipeliner) {
		for _, key := range keys {
			switch {
			case r.kind == "hash", r.kind == "state":
				p.HSet(ctx, key, "state", "over")
			case r.kind == "missing" && r.Read == "hash":
				p.HSet(ctx, key, "v", 1)
			case r.kind == "scores":
				p.ZAdd(ctx, key, redis.Z{Member: "m"})
			case r.kind == "stream":
				p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"n", "1"}})
			default:
				p.Set(ctx, key, `{"room":"x"}`, 0)
			}
		}
	})
	w.bystanders = append(w.bystanders, keys...)
}

// furnish gives a rule what it may have besides.
func (w *world) furnish(r *rule, i int) {
	if len(r.signs) > 0 && w.chance(1, 2) {
		r.UnlessLost = []rules.Reference{{Exists: fmt.Sprintf("ref%d", i)}}
	}
	if w.chance(1, 2) || r.kind == "scores" || r.kind == "stream" { // too large to go without
		r.Bin = 12 * time.Hour
	}
	if r.kind == "lasting" || r.Keys != "" && r.kind != "stream" && w.chance(1, 2) {
		r.ttl = time.Hour
		if r.kind != "lasting" && w.chance(1, 2) {
			r.MinAge = &rules.Age{FromTTL: r.ttl, Over: time.Duration(1+w.rng.IntN(10)) * time.Minute}
		}
	}
	r.others = r.Rule
	if r.others.Grace = graces[w.rng.IntN(len(graces))]; r.lacks() {
		r.others.Grace = max(r.others.Grace, time.Minute)
	}
	if len(r.KeepIf) > 1 && w.chance(1, 2) {
		r.others.KeepIf = r.KeepIf[:1]
	}
}

func (r *rule) place() string { return r.Name[1:] }

func (r *rule) sign(kind string) rules.Sign {
	switch i := r.place(); kind {
	case "exists":
		return rules.Sign{Exists: r.template("s")}
	case "member":
		return rules.Sign{Member: &rules.Member{Set: "on" + i, Of: r.owner()}}
	case "list":
		return rules.Sign{Member: &rules.Member{List: "l" + i, Of: r.owner()}}
	default:
		return rules.Sign{Field: &rules.Field{Hash: "f" + i, Field: r.owner()}}
	}
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
		for _, place := range []string{"ref", "on", "l", "f"} {
			p.Del(ctx, place+r.place())
		}
		for _, c := range r.cands {
			p.Del(ctx, c.signKey("exists"))
		}
	})
}

// rulesNow are the rules that workers have now: one that is about nothing, if they have no other.
func (w *world) rulesNow() (all []rules.Rule) {
	for _, r := range w.rules {
		if w.in[r.Name] {
			is := r.Rule
			is.KeepIf = slices.Clone(is.KeepIf)
			all = append(all, is)
		}
	}
	if all == nil {
		all = []rules.Rule{{Name: "nothing", Keys: "zz:{u}", KeepIf: []rules.Sign{{Exists: "zs:{u}"}}}}
	}
	return all
}

package search

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
)

// step is something that happens after a while. seed is of the chances that it takes.
type step struct {
	after time.Duration
	what  string
	seed  uint64
}

func (s step) String() string { return fmt.Sprintf("after %s: %s", s.after, s.what) }

// kind is a kind of step.
type kind struct {
	what string
	n    int // how often it happens, beside the others
	do   func(w *world)
	on   int // places with so many masters at least
}

// kinds are all kinds of steps.
func kinds() []kind {
	return []kind{
		{"sign", 30, func(w *world) { w.flip(w.any(), w.chance(1, 2)) }, 0},
		{"silence", 20, func(w *world) { w.silence(w.any()) }, 0},
		{"back", 12, func(w *world) { w.flip(w.silent(), true) }, 0},
		{"touch", 8, func(w *world) { w.make(w.any()) }, 0},
		{"refresh", 6, func(w *world) { w.refresh(w.any()) }, 0},
		{"remove", 4, func(w *world) { w.remove(w.any()) }, 0},
		{"massacre", 2, func(w *world) {
			w.massacre(w.anyRule())
		}, 0},
		{"rule out or in", 4, func(w *world) {
			r := w.anyRule()
			w.in[r.Name] = !w.in[r.Name]
			w.again(w.chance(1, 3))
		}, 0},
		{"all rules in", 3, func(w *world) {
			for _, r := range w.rules {
				w.in[r.Name] = true
			}
			w.again(false)
		}, 0},
		{"rule edited", 3, func(w *world) { w.edit(w.anyRule()) }, 0},
		{"dry", 3, func(w *world) { w.dry = !w.dry; w.again(false) }, 0},
		{"pause", 3, func(w *world) {
			p := janitor.Pause{Who: "ann", Why: "tests", Until: time.Now().Add(w.upTo(8 * time.Minute)).Add(time.Second)}
			_ = w.workers[0].jan.Pause(context.Background(), p)
		}, 0},
		{"resume", 2, func(w *world) { _ = w.workers[0].jan.Resume(context.Background()) }, 0},
		{"resign", 3, func(w *world) { w.resign() }, 0},
		{"leader killed", 3, func(w *world) { w.again(true) }, 0},
		{"source", 3, func(w *world) { w.change(func() { w.away = !w.away }) }, 0},
		{"source emptied", 2, func(w *world) { w.change(func() { w.bare = true }) }, 0},
		{"source back", 4, func(w *world) { w.change(func() { w.away, w.bare = false, false }) }, 0},
		{"lease lost", 3, func(w *world) {
			w.do(func(ctx context.Context, p redis.Pipeliner) { p.Del(ctx, w.layout.Lease()) })
		}, 0},
		{"reference", 4, func(w *world) { w.reference(w.anyRule()) }, 0},
		{"references back", 3, func(w *world) {
			for _, r := range w.rules {
				w.refer(r)
			}
		}, 0},
		{"hold", 2, func(w *world) { w.hold() }, 0},
		{"nobody runs", 2, func(w *world) {
			w.end(w.chance(1, 2))
			w.sleep(w.upTo(20 * time.Minute))
			w.start()
		}, 0},
		{"restart", 1, func(w *world) { w.restart() }, 0},
		{"own key lost", 3, func(w *world) { w.forget(w.anyRule()) }, 0},
		{"in mid-pass", 10, func(w *world) { w.lay() }, 0},
		{"slot moves", 4, func(w *world) { w.moveSlot(false) }, 3},
		{"slot begins to move", 3, func(w *world) { w.moveSlot(true) }, 3},
		{"slot arrives", 4, func(w *world) { w.arrive() }, 3},
		{"failover", 2, func(w *world) { w.failOver() }, 3},
		{"master away", 2, func(w *world) { w.masterAway() }, 3},
		{"replica falls behind", 3, func(w *world) { w.separate() }, 3},
		{"promotion", 3, func(w *world) { w.promote() }, 3},
		{"clock", 2, func(w *world) { w.jump() }, 0},
		{"restore", 5, func(w *world) { w.restore() }, 0},
		{"pass asked for", 5, func(w *world) { w.ask() }, 0},
		{"look", 5, func(*world) {}, 0},
	}
}

// plan are the steps of a seed.
func (s *server) plan(seed uint64) (steps []step) {
	rng := rand.New(rand.NewPCG(seed, 4))
	sum := 0
	here := slices.DeleteFunc(kinds(), func(k kind) bool { return k.on > s.masters })
	for _, k := range here {
		sum += k.n
	}
	for range episodeSteps {
		x := rng.Float64()
		after := time.Duration(x * x * float64(time.Minute))
		if rng.IntN(12) == 0 {
			after = time.Duration(rng.Float64() * float64(15*time.Minute))
		}
		n := rng.IntN(sum)
		i := slices.IndexFunc(here, func(k kind) bool { n -= k.n; return n < 0 })
		steps = append(steps, step{after.Round(time.Millisecond), here[i].what, rng.Uint64()})
	}
	return steps
}

func (w *world) play(steps []step) {
	w.sleep(2 * time.Minute) // the witness has listened
	for _, s := range steps {
		w.sleep(s.after)
		w.turn.Lock()
		w.rng = rand.New(rand.NewPCG(s.seed, 5))
		w.say("%s", s.what)
		w.happen(s.what)
		w.turn.Unlock()
		w.Steps++
	}
	w.sleep(0) // a trap may be springing
	w.settle()
}

func (w *world) happen(what string) {
	all := kinds()
	all[slices.IndexFunc(all, func(k kind) bool { return k.what == what })].do(w)
}

// upTo is a random time, short more often than long.
func (w *world) upTo(d time.Duration) time.Duration {
	x := w.rng.Float64()
	return time.Duration(x * x * float64(d)).Round(time.Millisecond)
}

func (w *world) any() *candidate { return w.all[w.rng.IntN(len(w.all))] }
func (w *world) anyRule() *rule  { return w.rules[w.rng.IntN(len(w.rules))] }

// silent is a candidate that is dead and there, if there is one: its client comes back.
func (w *world) silent() *candidate {
	for range 20 {
		if c := w.any(); w.sees(func() bool { return c.there() && !c.alive() }) {
			return c
		}
	}
	return w.any()
}

// flip has a candidate show one of its signs, or show it no more.
func (w *world) flip(c *candidate, is bool) {
	if len(c.signs) == 0 || c.lacks() && w.chance(1, 2) {
		w.finish(c, !is)
		return
	}
	if is && !w.sees(c.there) && w.chance(1, 2) {
		w.make(c)
	}
	sign := c.signs[w.rng.IntN(len(c.signs))]
	w.say("  %s shows %s: %v", c.name(), sign, is)
	w.show(c, sign, is)
}

func (w *world) silence(c *candidate) {
	w.say("  %s is silent", c.name())
	for _, sign := range c.signs {
		w.show(c, sign, false)
	}
	w.finish(c, true)
}

// massacre has all of a rule's candidates fall silent.
func (w *world) massacre(r *rule) {
	f := &fall{at: time.Now()}
	w.change(func() {
		for _, c := range r.cands {
			if c.livedFor(2 * w.interval) {
				f.who = append(f.who, c)
			}
		}
	})
	for _, c := range r.cands {
		w.silence(c)
	}
	w.change(func() { r.fallen = f })
}

// livedFor reports whether a candidate lives, and did so in all looks of that time.
func (c *candidate) livedFor(d time.Duration) bool {
	seen := false
	for _, l := range c.looks {
		if time.Since(l.at) < d {
			seen = true
			if !l.alive || !l.present || l.version != c.version {
				return false
			}
		}
	}
	return seen && c.there() && c.alive() && !c.misfit
}

// cut is an end of all evidence. One that is unnoticed shows in no key until a guard has asked.
type cut struct {
	at        time.Time
	unnoticed bool
}

func (w *world) cutOff(unnoticed bool) {
	w.change(func() { w.cutAll = append(w.cutAll, cut{time.Now(), unnoticed}) })
}

// restart has a server end, and come back with all that it had.
func (w *world) restart() {
	if w.apart >= 0 || w.moving != nil {
		return
	}
	shard := w.rng.IntN(len(w.s.pairs))
	w.outside(func() { w.s.again(shard) })
	w.cutOff(false)
}

// again replaces all workers.
func (w *world) again(killed bool) {
	w.end(killed)
	w.start()
	w.start()
}

func (w *world) edit(r *rule) {
	w.change(func() { r.Rule, r.others = r.others, r.Rule })
	w.again(w.chance(1, 3))
}

func (w *world) leader() *worker {
	holder := w.eye.Get(context.Background(), w.layout.Lease()).Val()
	for _, k := range w.workers {
		if strings.HasPrefix(holder, k.id+"/") {
			return k
		}
	}
	return nil
}

func (w *world) resign() {
	if k := w.leader(); k != nil {
		_ = k.jan.Resign(context.Background())
	}
}

func (w *world) reference(r *rule) {
	switch {
	case w.apart >= 0: // a promotion would bring it back, and not the signs
	case r.lost:
		w.say("  that of %s is back", r.Name)
		w.refer(r)
	case r.UnlessLost != nil:
		w.say("  that of %s is lost", r.Name)
		w.lose(r)
	}
}

// forget loses something that the workers keep about a rule.
func (w *world) forget(r *rule) {
	what := []string{"marks", "state", "intents", "passes"}[w.rng.IntN(4)]
	w.say("  %s of %s", what, r.Name)
	if what == "passes" { // of all rules
		w.do(func(ctx context.Context, p redis.Pipeliner) { p.Del(ctx, w.layout.Prefix+"orphan:passes") })
		return
	}
	w.do(func(ctx context.Context, p redis.Pipeliner) { p.Del(ctx, w.layout.Prefix+"orphan:"+what+":"+r.Name) })
	w.change(func() { w.atLeast = w.atLeast || what == "intents" })
}

// hold has the witness hold: something happened to the server.
func (w *world) hold() {
	what := [][2]string{{"replication", "another"}, {"evicted_keys", "999999"}, {"refused", "999999"}, {"last", "1"}}[w.rng.IntN(4)]
	w.say("  %s is %s", what[0], what[1])
	w.do(func(ctx context.Context, p redis.Pipeliner) {
		if p.HSet(ctx, w.layout.Witness(), what[0], what[1]); what[0] == "replication" { // it vouches for the server
			p.HSet(ctx, w.layout.Witness(), "server", "another")
		}
	})
	w.cutOff(true)
}

// jump sets the server's clock.
func (w *world) jump() {
	by := 3*time.Second + w.upTo(10*time.Minute)
	if w.chance(1, 2) {
		by = -by
	}
	j := jump{at: time.Now()}
	if k := w.leader(); k != nil {
		j.leader = k.id
	}
	w.say("  by %s", by)
	w.clock.set(by)
	w.change(func() {
		w.jumps = append(w.jumps, j)
		for _, c := range w.all { // the expiries are times of the server
			if !c.expires.IsZero() {
				c.expires = c.expires.Add(-by)
			}
		}
		if by < 0 || by > 31*time.Second {
			w.cutAll = append(w.cutAll, cut{at: time.Now()})
		}
	})
}

// ask asks for a full pass.
func (w *world) ask() {
	if k := w.leader(); k != nil {
		w.turn.Unlock() // a trap springs within the pass
		defer w.turn.Lock()
		_, _ = k.jan.Sweep(context.Background(), janitor.Request{})
	}
}

// restore puts something back.
func (w *world) restore() {
	ctx := context.Background()
	if w.moving != nil { // a thing and its place in the bin may be apart
		return
	}
	bins := orphan.Bins{Client: w.rdb, Layout: w.layout}
	list, err := bins.List(ctx, "")
	if err != nil {
		panic(finding("list: " + err.Error()))
	}
	if len(list) == 0 {
		return
	}
	is, err := bins.Restore(ctx, list[w.rng.IntN(len(list))].ID)
	if err != nil {
		panic(finding("restore: " + err.Error()))
	}
	w.say("  %s %s: %s", is[0].Key, is[0].Member, is[0].Fate)
	if is[0].Fate == orphan.Back {
		w.restored(is[0])
	}
}

// restored compares what was restored with what it was.
func (w *world) restored(is orphan.Restored) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moment++
	for _, c := range w.all {
		if is.Key != c.key() || c.Members != nil && is.Member != c.user {
			continue
		}
		w.Count(restored, 1)
		w.back(c, is)
	}
}

// expiry is when a key expires, by the servers' clock; zero: never. It does not depend on how long
// the oracle takes to look.
func (w *world) expiry(key string) time.Time {
	at := w.eye.PExpireTime(context.Background(), key).Val()
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	m := w.clock.masters[portOf(w.s.master(w.s.shard(key)).Addr())]
	if at < 0 || m == nil {
		return time.Time{}
	}
	return time.UnixMilli(at.Milliseconds()).Add(m.offset)
}

// back compares what a candidate is now with what it was when it was deleted: then, or before.
func (w *world) back(c *candidate, is orphan.Restored) {
	if len(c.gone) == 0 {
		w.found("%s was restored, and never deleted", c.name())
		return
	}
	was := slices.MinFunc(c.gone, func(a, b thing) int {
		return cmp.Compare(a.at.Sub(is.Removed).Abs(), b.at.Sub(is.Removed).Abs())
	})
	c.present, c.turned, c.turnedAt = true, w.moment, ""
	c.version++
	c.made, c.dump, c.field = w.moment, was.dump, was.field
	if c.tellsItself() {
		c.over = was.over
	}
	if c.expires = (time.Time{}); !was.expires.IsZero() {
		c.expires = time.Now().Add(was.expires.Sub(w.clock.time()))
	}
	ctx := context.Background()
	if c.kind == "field" && c.field > 0 {
		at, err := w.eye.HExpireTime(ctx, c.key(), c.user).Result()
		if want := farAway(c.field).Unix(); err != nil || at[0] != want {
			w.found("%s was restored without its expiry: %v, not %d (%v)", c.name(), at, want, err)
		}
	}
	if c.Members == nil {
		if dump := w.eye.Dump(ctx, c.key()).Val(); dump != c.dump {
			w.found("%s was restored as something else", c.name())
		}
		at, want := w.expiry(c.key()), time.Time{}
		if !c.expires.IsZero() {
			want = w.clock.time().Add(time.Until(c.expires))
		}
		if c.ttl > 0 && at.Sub(want).Abs() > time.Second {
			w.found("%s was restored to expire at %s, not %s", c.name(), at, want)
		}
	}
}

package search

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
)

// slack is what looks and the oracle may differ by.
const slack = 6 * time.Second

// saw hears of each command of a worker that was answered.
func (w *world) saw(k *worker, cmd redis.Cmder) {
	args := cmd.Args()
	if name := strings.ToLower(cmd.Name()); name == "eval" || name == "evalsha" {
		if removed(cmd) || movedAway(cmd) {
			w.compare(k)
		}
		return
	}
	if len(args) < 2 || len(args) > 3 || k.dry || cmd.Err() != nil {
		return
	}
	text := fmt.Sprint(args[0])
	for _, a := range args[1:] {
		text += " " + fmt.Sprint(a)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.probes[text]; c != nil {
		w.looked(k, c)
	}
}

// looked notes a look, where mu is held.
func (w *world) looked(k *worker, c *candidate) {
	if !k.dry {
		c.looks = append(c.looks, look{time.Now(), c.alive(), c.there(), c.version})
	}
}

// removed reports whether a script is one that has deleted something.
func removed(cmd redis.Cmder) bool {
	args := cmd.Args()
	n, _ := args[2].(int)
	if len(args) < 4+n || n < 9 || !strings.Contains(fmt.Sprint(args[3+5]), "orphan:marks:") {
		return false
	}
	c, ok := cmd.(*redis.Cmd)
	if !ok {
		return false
	}
	answer, _ := c.Val().([]any)
	return len(answer) > 1 && answer[0] == "DONE"
}

// movedAway reports whether a script is one that has moved something away, on a Cluster.
func movedAway(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 5 || !strings.HasPrefix(fmt.Sprint(args[4]), "orphan:bin:") {
		return false
	}
	c, ok := cmd.(*redis.Cmd)
	return ok && c.Val() == int64(1)
}

// compare finds out what has gone, and judges it.
func (w *world) compare(k *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there, relatives := w.there()
	w.bystanding()
	for i, c := range w.all {
		c.present = c.there() && (there[i] || !c.expired())
		switch {
		case c.present && !there[i]:
			w.removed++
			w.note("%s deletes %s", k.id, c.name())
			w.judge(k, c, false)
			left := relatives[i] && c.related
			if left && !c.keeps() && w.cluster == nil {
				w.found("%s went, and left %s", c.name(), c.relative())
			}
			c.present, c.related, c.follows = false, left, left && !c.keeps()
		case !c.present && c.related && !relatives[i] && c.follows:
			w.note("%s follows", c.relative())
			c.related, c.follows = false, false
		case !c.present && c.related && !relatives[i]:
			w.removed++
			w.note("%s deletes %s, which has no parent", k.id, c.relative())
			if c.keeps() {
				w.found("%s went, and could be somebody else's", c.relative())
			}
			w.judge(k, c, true)
			c.related = false
		case c.present && c.related && !relatives[i]:
			w.found("%s went, and its parent is there", c.relative())
		}
	}
}

// there returns of each candidate whether it is there, and its related key.
func (w *world) there() (candidates, relatives []bool) {
	ctx := context.Background()
	var cmds, related []func() bool
	_, _ = w.clock.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range w.all {
			cmds = append(cmds, c.ask(ctx, p))
			is := p.Exists(ctx, c.relative())
			related = append(related, func() bool { return is.Val() > 0 })
		}
		return nil
	})
	for i := range cmds {
		candidates, relatives = append(candidates, cmds[i]()), append(relatives, related[i]())
	}
	return candidates, relatives
}

// bystanding asks whether all is there that is no candidate.
func (w *world) bystanding() {
	ctx := context.Background()
	for _, key := range w.bystanders {
		if w.clock.db.Exists(ctx, key).Val() == 0 {
			w.found("%s was deleted, and is no candidate", key)
		}
	}
}

func (c *candidate) ask(ctx context.Context, p redis.Pipeliner) func() bool {
	switch c.kind {
	case "zset":
		is := p.ZScore(ctx, c.key(), c.user)
		return func() bool { return is.Err() == nil }
	case "set":
		is := p.SIsMember(ctx, c.key(), c.user)
		return is.Val
	case "field":
		is := p.HExists(ctx, c.key(), c.user)
		return is.Val
	}
	is := p.Exists(ctx, c.key())
	return func() bool { return is.Val() > 0 }
}

// judge asks whether a candidate could go. lone: its related key went, which had no parent.
func (w *world) judge(k *worker, c *candidate, lone bool) {
	if c.alive() {
		w.found("%s was deleted, and lives", c.name())
		return
	}
	if k.dry || c.reports {
		w.found("%s was deleted in a dry run, or by a rule that only reports", c.name())
		return
	}
	grace := c.Grace
	if c.also != nil && !lone {
		grace = max(grace, c.also.Grace)
	}
	if c.MinAge != nil && !lone {
		grace = max(grace, c.MinAge.Over)
	}
	apart := min(w.interval, max(grace, time.Second))
	if lone {
		apart = w.interval
	}
	since := w.validSince(k, c)
	now, last := time.Now(), time.Now()
	for _, l := range slices.Backward(c.looks) {
		if now.Sub(last) >= grace-2*time.Second {
			return
		}
		switch {
		case last.Sub(l.at) > apart+max(apart, time.Second)+slack:
			w.found("%s was deleted, and nobody looked from %s to %s", c.name(), clockOf(l.at), clockOf(last))
		case l.at.Before(since):
			w.found("%s was deleted, and what was seen before %s does not count", c.name(), clockOf(since))
		case l.alive:
			w.found("%s was deleted, and lived in the look at %s", c.name(), clockOf(l.at))
		case l.present == lone || l.version != c.version:
			w.found("%s was deleted, and was another thing in the look at %s", c.name(), clockOf(l.at))
		}
		last = l.at
	}
	if now.Sub(last) < grace-2*time.Second {
		w.found("%s was deleted, and the first look was at %s", c.name(), clockOf(last))
	}
}

func clockOf(at time.Time) string { return at.Format("15:04:05.000") }

// validSince is when the evidence last began anew for all.
func (w *world) validSince(k *worker, c *candidate) time.Time {
	since := w.cut[c.Name]
	if w.cutAll.After(since) {
		since = w.cutAll
	}
	for _, j := range w.jumps {
		if j.leader == k.id && j.at.After(since) {
			since = j.at
		}
	}
	return since
}

// tells reports whether a rule can judge a related key without its parent: the parent's container
// exists, and the rule asks for no age and reads nothing of it.
func (w *world) tells(c *candidate) bool {
	return c.MinAge == nil && c.kind != "json" && c.kind != "state" && !c.keeps() && (c.Members == nil || w.clock.db.Exists(context.Background(), c.key()).Val() > 0)
}

// fell asks whether a pass that has looked at all candidates has held the rule, most of which fell
// silent at once.
func (w *world) fell(k *worker, result orphan.Result) {
	for _, r := range w.rules {
		if r.Name != result.Rule || r.fallen == nil || !result.Full || k.dry || result.Started.Before(r.fallen.at) {
			continue
		}
		silent, alive := 0, 0
		for _, c := range r.fallen.who {
			if c.there() && !c.alive() {
				silent++
			}
		}
		for _, c := range r.cands {
			if c.there() && c.alive() && !c.misfit {
				alive++
			}
		}
		if result.Outcome == janitor.Done && silent >= 20 && silent > alive {
			w.found("%d of %s fell silent at once beside %d that live, and the pass was not held", silent, r.Name, alive)
		}
		if result.Outcome == janitor.Done || result.Reason == "mass_failure" {
			r.fallen = nil
		}
	}
}

// settle is the end of an episode: all is quiet, what is dead goes, what lives stays.
func (w *world) settle() {
	for _, r := range w.rules {
		if r.lost {
			w.refer(r)
		}
		w.in[r.Name] = true
	}
	w.change(func() { w.away = false })
	w.end(false)
	w.dry = false
	w.start()
	w.start()
	if err := w.workers[0].jan.Resume(context.Background()); err != nil {
		panic(finding(err.Error()))
	}
	w.say("all is quiet")
	w.sleep(90 * time.Minute)
	w.mu.Lock()
	defer w.mu.Unlock()
	there, relatives := w.there()
	for i, c := range w.all {
		if c.expired() {
			continue
		}
		if (there[i] || relatives[i] && w.tells(c)) && !c.alive() && !c.reports {
			w.found("%s stays, and is dead (itself %v, related %v)", c.name(), there[i], relatives[i])
		}
		if !there[i] && c.present {
			w.found("%s is missing", c.name())
		}
	}
	total, err := w.clock.db.HGet(context.Background(), w.layout.Witness(), "evicted_total").Int()
	if err != nil && err != redis.Nil || total != w.removed {
		w.found("%d candidates went, and the witness counts %d", w.removed, total)
	}
	if w.wrong != "" {
		panic(w.wrong)
	}
}

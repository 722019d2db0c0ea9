package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
)

// slack is what looks and the oracle may differ by.
const slack = 6 * time.Second

// saw hears of each command of a worker that was answered.
func (w *world) saw(k *worker, cmd redis.Cmder) {
	args := cmd.Args()
	if name := strings.ToLower(cmd.Name()); name == "eval" || name == "evalsha" {
		if movedAway(cmd) {
			key := fmt.Sprint(args[3])
			if c := w.owners[key]; c != nil {
				w.compare(k, []*candidate{c})
			} else {
				w.compare(k, w.all)
			}
		}
		if said, ok := cmd.(*redis.Cmd); ok {
			answers, _ := said.Slice()
			for words := args[min(4, len(args)):]; len(answers) > 0 && len(words) > 0; answers = answers[1:] {
				n, err := strconv.Atoi(fmt.Sprint(words[0]))
				if err != nil || n >= len(words) {
					return
				}
				if text, _ := answers[0].(string); !strings.HasPrefix(text, "-") {
					w.asked(k, words[1:n+1])
				}
				words = words[n+1:]
			}
		}
		return
	}
	if cmd.Name() == "getrange" { // its bound is no part of what it asks
		args = append([]any{"READ"}, args[1])
	}
	if cmd.Err() == nil {
		w.asked(k, args)
	}
}

// asked hears of a command, or a question of same.lua, that was answered.
func (w *world) asked(k *worker, args []any) {
	if len(args) < 2 || len(args) > 3 || k.dry {
		return
	}
	text := strings.TrimSpace(fmt.Sprintln(args...))
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.probes[text]; c != nil {
		w.looked(k, c)
	}
}

// looked notes a look, where mu is held.
func (w *world) looked(k *worker, c *candidate) {
	if !k.dry {
		w.moment++
		c.looks = append(c.looks, look{time.Now(), w.clock.time(), w.moment, c.alive(), c.there(), c.version})
	}
}

// movedAway reports whether a script is one that has moved something away.
func movedAway(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 5 || !strings.HasPrefix(fmt.Sprint(args[4]), "orphan:bin:") {
		return false
	}
	c, ok := cmd.(*redis.Cmd)
	return ok && c.Val() == int64(1)
}

// compare finds out what has gone of some candidates, and judges it.
func (w *world) compare(k *worker, of []*candidate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of = slices.DeleteFunc(slices.Clone(of), func(c *candidate) bool { return w.s.shard(c.key()) == w.down })
	there := w.there(of)
	w.bystanding()
	for i, c := range of {
		c.present = c.there() && (there[i] || !c.expired())
		if !c.present || there[i] {
			continue
		}
		w.removed++
		w.moment++
		w.note("%s deletes %s", k.id, c.name())
		w.judge(k, c)
		c.gone = append(c.gone, w.thing(c))
		c.present = false
	}
}

// there returns of each candidate whether it is there.
func (w *world) there(of []*candidate) (candidates []bool) {
	ctx := context.Background()
	var cmds []func() bool
	_, err := w.eye.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range of {
			cmds = append(cmds, c.ask(ctx, p))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		w.found("the oracle cannot see: %v", err)
	}
	for _, is := range cmds {
		candidates = append(candidates, is())
	}
	return candidates
}

// bystanding asks whether all is there that is no candidate.
func (w *world) bystanding() {
	ctx := context.Background()
	if len(w.bystanders) == 0 || w.down >= 0 {
		return
	}
	var all []*redis.IntCmd
	_, err := w.eye.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range w.bystanders {
			all = append(all, p.Exists(ctx, key))
		}
		return nil
	})
	for i, is := range all {
		if err == nil && is.Val() == 0 {
			w.found("%s was deleted, and is no candidate", w.bystanders[i])
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

// judge asks whether a candidate could go.
func (w *world) judge(k *worker, c *candidate) {
	if c.alive() && !w.excused(c) {
		w.found("%s was deleted, and lives", c.name())
		return
	}
	if k.dry || c.reports {
		w.found("%s was deleted in a dry run, or by a rule that only reports", c.name())
		return
	}
	grace := c.grace()
	apart := min(w.interval, max(grace, time.Second))
	since := w.validSince(k, c)
	now, last := w.clock.time(), look{at: time.Now(), server: w.clock.time()}
	for _, l := range slices.Backward(c.looks) {
		if now.Sub(last.server) >= grace-2*time.Second {
			return
		}
		switch {
		case last.at.Sub(l.at) > apart+max(apart, time.Second)+slack:
			w.found("%s was deleted, and nobody looked from %s to %s", c.name(), clockOf(l.at), clockOf(last.at))
		case l.at.Before(since):
			w.found("%s was deleted, and what was seen before %s does not count", c.name(), clockOf(since))
		case l.alive:
			w.found("%s was deleted, and lived in the look at %s", c.name(), clockOf(l.at))
		case !l.present || l.version != c.version && !c.large():
			w.found("%s was deleted, and was another thing in the look at %s", c.name(), clockOf(l.at))
		}
		last = l
	}
	if now.Sub(last.server) < grace-2*time.Second {
		w.found("%s was deleted, and the first look was at %s", c.name(), clockOf(last.at))
	}
}

// large reports whether the script that deletes does not compare all of it.
func (c *candidate) large() bool { return c.kind == "scores" || c.kind == "stream" }

// excused reports whether it has come back to life where nobody asks again behind the last look: in
// the database, or in another slot of a Cluster.
func (w *world) excused(c *candidate) bool {
	if len(c.looks) == 0 || c.turned < c.looks[len(c.looks)-1].moment {
		return false
	}
	return c.GoneIf != nil && c.GoneIf.Mongo != nil || w.cluster && c.turnedAt != "" && slot.Of(c.turnedAt) != slot.Of(c.key())
}

func clockOf(at time.Time) string { return at.Format("15:04:05.000") }

// validSince is when the evidence last began anew for all.
func (w *world) validSince(k *worker, c *candidate) time.Time {
	since := w.cut[c.Name]
	for _, cut := range w.cutAll {
		// What is intended may still go for a moment: on a Cluster, or if no guard knows of the cut yet.
		if cut.at.After(since) && !((w.cluster || cut.unnoticed) && time.Since(cut.at) <= 2*time.Second) {
			since = cut.at
		}
	}
	for _, j := range w.jumps {
		if j.leader == k.id && j.at.After(since) {
			since = j.at
		}
	}
	return since
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
	w.disarm()
	w.arrive()
	w.promote()
	for _, r := range w.rules {
		if r.lost {
			w.refer(r)
		}
		w.in[r.Name] = true
	}
	w.change(func() { w.away, w.bare = false, false })
	w.end(false)
	w.dry = false
	for _, r := range w.rules { // one at least is dead
		for _, c := range r.cands {
			if !c.misfit && !r.reports {
				w.make(c)
				w.silence(c)
				break
			}
		}
	}
	w.start()
	w.start()
	if err := w.workers[0].jan.Resume(context.Background()); err != nil {
		panic(finding(err.Error()))
	}
	w.say("all is quiet")
	quiet, longest := time.Now(), time.Duration(0)
	for _, c := range w.all {
		longest = max(longest, w.within(c))
	}
	for again := true; again; { // some come of age only later
		w.sleep(longest)
		again = w.rest(quiet)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	total, err := w.eye.HGet(context.Background(), w.layout.Witness(), "evicted_total").Int()
	if err != nil && err != redis.Nil || total > w.removed || total < w.removed && !w.atLeast {
		w.found("%d candidates went, and the witness counts %d (%v)", w.removed, total, err)
	}
	if w.wrong != "" {
		panic(w.wrong)
	}
}

// within is how long a dead candidate may stay when all is quiet: until somebody leads and the
// witness has listened, until the breaker lets go, until a full pass comes, and for its grace.
func (w *world) within(c *candidate) time.Duration {
	grace := c.grace()
	apart := min(w.interval, max(grace, time.Second, w.interval/50))
	return 2*time.Minute + max(grace, time.Minute) + apart + w.interval + grace + apart + slack
}

// grace is the longest time for which it has to be condemned.
func (c *candidate) grace() time.Duration {
	grace := c.Grace
	if c.MinAge != nil {
		grace = max(grace, c.MinAge.Over)
	}
	return grace
}

// rest asks whether all that is dead for long enough has gone, and all else is there. It reports
// whether something else is dead by now.
func (w *world) rest(quiet time.Time) (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := w.there(w.all)
	for i, c := range w.all {
		if c.expired() {
			continue
		}
		since := quiet
		if c.MinAge != nil {
			if of := c.expires.Add(c.MinAge.Over - c.MinAge.FromTTL); of.After(since) {
				since = of
			}
		}
		late := time.Since(since) >= w.within(c)
		switch stays := there[i] && !c.alive() && !c.reports; {
		case stays && !late:
			again = true
		case stays:
			w.found("%s stays for %s, and is dead", c.name(), time.Since(since))
		}
		if !there[i] && c.present {
			w.found("%s is missing", c.name())
		}
	}
	return again
}

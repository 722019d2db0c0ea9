package search

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/slot"
)

// trap is something that happens between two commands of a pass.
type trap struct {
	left     int  // commands until then
	atDelete bool // the next script that deletes waits for it
	do       func()
}

// inMidPass are the steps that may happen there.
var inMidPass = []string{"sign", "silence", "back", "back", "touch", "refresh", "remove", "reference", "hold", "source"}

// lay lays a trap, and asks for a pass.
func (w *world) lay() {
	all := inMidPass
	if w.s.masters > 1 {
		all = append([]string{"slot moves", "slot begins to move", "slot arrives", "failover"}, all...)
	}
	what, seed := all[w.rng.IntN(len(all))], w.rng.Uint64()
	t := &trap{left: w.rng.IntN(60), atDelete: w.chance(1, 2), do: func() {
		w.rng = rand.New(rand.NewPCG(seed, 6))
		w.say("in mid-pass: %s", what)
		w.happen(what)
		w.change(func() { w.moment++; w.sprung = w.moment })
	}}
	w.say("  %s, behind %d commands, before a delete %v", what, t.left, t.atDelete)
	w.traps.Lock()
	w.trap = t
	w.traps.Unlock()
	w.ask()
}

// before is called before commands of a worker are sent.
func (w *world) before(cmds []redis.Cmder) (behind func()) {
	if w.far > 0 && moves(cmds[0]) {
		time.Sleep(w.far)
	}
	w.spring(cmds[0])
	w.busy.RLock()
	return w.busy.RUnlock
}

// spring springs the trap if it is time.
func (w *world) spring(cmd redis.Cmder) {
	w.traps.Lock()
	defer w.traps.Unlock()
	t := w.trap
	if t == nil {
		return
	}
	if t.left--; t.left > 0 && !t.atDelete || t.atDelete && !deletes(cmd) && !moves(cmd) || !w.busy.TryLock() {
		return
	}
	defer w.busy.Unlock()
	w.trap = nil
	t.do()
}

// deletes reports whether a command is the script that deletes, or notes what is intended.
func deletes(cmd redis.Cmder) bool {
	args := cmd.Args()
	return strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") && len(args) > 8 && strings.Contains(fmt.Sprint(args[8]), "orphan:marks:")
}

// moves reports whether a command is the script that moves something away on a Cluster.
func moves(cmd redis.Cmder) bool {
	args := cmd.Args()
	return strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") && len(args) > 4 && strings.HasPrefix(fmt.Sprint(args[4]), "orphan:bin:")
}

// moveSlot moves the slot of a candidate, or of a sign, to another master; or begins to.
func (w *world) moveSlot(begin bool) {
	c := w.any()
	key := []string{c.key(), c.key(), c.signKey("exists"), c.signKey("member")}[w.rng.IntN(4)]
	if w.moving != nil || w.down >= 0 || begin && c.family > 0 || slot.Of(key) == slot.Of(w.layout.Log()) {
		return
	}
	to := w.rng.IntN(len(w.s.pairs))
	w.say("  that of %s, to %d", key, to)
	w.outside(func() {
		finish := w.s.move(key, to, begin)
		if begin {
			w.moving = finish
		} else {
			finish()
		}
	})
	w.cutOff()
}

// arrive ends the move of a slot.
func (w *world) arrive() {
	if w.moving == nil {
		return
	}
	finish := w.moving
	w.moving = nil
	w.outside(finish)
	w.cutOff()
}

// failOver has a replica lead that has all that its master had.
func (w *world) failOver() {
	if w.apart >= 0 || w.moving != nil || w.down >= 0 {
		return
	}
	shard := w.rng.IntN(len(w.s.pairs))
	w.say("  of shard %d", shard)
	w.outside(func() { w.s.kill(shard); w.s.failOver(shard) })
	w.survey()
	w.cutOff()
}

// masterAway is a master that is dead for a while, before its replica leads.
func (w *world) masterAway() {
	if w.apart >= 0 || w.moving != nil {
		return
	}
	w.traps.Lock()
	w.trap = nil
	w.traps.Unlock()
	shard := w.rng.IntN(len(w.s.pairs))
	w.say("  of shard %d", shard)
	w.outside(func() { w.s.kill(shard) })
	w.change(func() { w.down = shard })
	w.survey()
	w.sleep(w.upTo(3 * time.Minute))
	w.outside(func() { w.s.failOver(shard) })
	w.change(func() { w.down = -1 })
	w.survey()
	w.cutOff()
}

// separate keeps from a replica what its master writes from now on.
func (w *world) separate() {
	if w.apart >= 0 || w.moving != nil {
		return
	}
	for _, r := range w.rules {
		if r.lost {
			w.refer(r)
		}
	}
	w.apart = w.rng.IntN(len(w.s.pairs))
	w.say("  of shard %d", w.apart)
	w.outside(func() { w.s.separate(w.apart) })
}

// promote has the replica lead that is behind. The truth is then what it has.
func (w *world) promote() {
	if w.apart < 0 || w.moving != nil {
		return
	}
	w.say("  of shard %d", w.apart)
	w.outside(func() { w.s.failOver(w.apart) })
	w.apart = -1
	w.survey()
	for port := range w.clock.masters {
		if err := w.clock.reach(context.Background(), ":"+port); err != nil {
			panic(finding("promotion: " + err.Error()))
		}
	}
	w.change(func() {
		w.moment++
		w.atLeast = true
		for _, c := range w.all {
			w.readBack(c)
		}
		for _, r := range w.rules {
			r.fallen = nil
		}
	})
	w.cutOff()
}

// readBack takes for the truth about a candidate what the servers have.
func (w *world) readBack(c *candidate) {
	ctx := context.Background()
	there, kin := w.there([]*candidate{c})
	was := *c
	c.turned, c.turnedAt = w.moment, ""
	c.present, c.kin = there[0], kin[0]
	c.follows = !c.present && c.kin > 0 && w.left(c)
	if dump := w.eye.Dump(ctx, c.key()).Val(); dump != c.dump {
		c.dump, c.made = dump, w.moment
		c.version++
	}
	if left := w.eye.PTTL(ctx, c.key()).Val(); c.Members == nil && left > 0 {
		c.expires = time.Now().Add(left)
	}
	switch c.kind {
	case "state":
		c.over = w.eye.HGet(ctx, c.key(), "state").Val() == "over"
	case "field":
		if at, err := w.eye.HExpireTime(ctx, c.key(), c.user).Result(); err == nil && len(at) == 1 && at[0] > 0 {
			c.field = int(at[0] - farAway(0).Unix())
		} else {
			c.field = 0
		}
	}
	for sign := range c.shows {
		switch key := c.signKey(sign); sign {
		case "member":
			c.shows[sign] = w.eye.SIsMember(ctx, key, c.user).Val()
		case "field":
			c.shows[sign] = w.eye.HExists(ctx, key, c.user).Val()
		default:
			c.shows[sign] = w.eye.Exists(ctx, key).Val() > 0
		}
	}
	if was.present != c.present || was.kin != c.kin || was.over != c.over {
		w.note("  %s: there %v, was %v; %d related, were %d", c.name(), c.present, was.present, c.kin, was.kin)
	}
}

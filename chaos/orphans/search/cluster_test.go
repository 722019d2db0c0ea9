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
	before string // commands that this is the name of; see called
	left   int    // so many of them come first
	do     func()
}

// inMidPass are the steps that may happen there, and the places that have them.
var inMidPass = []struct {
	what string
	on   int
}{
	{"sign", 0}, {"silence", 0}, {"back", 0}, {"back", 0}, {"touch", 0}, {"refresh", 0}, {"remove", 0},
	{"reference", 0}, {"own key lost", 0}, {"hold", 0}, {"source", 0}, {leaderDies, 0}, {leaderDies, 0},
	{"slot moves", 3}, {"slot begins to move", 3}, {"slot arrives", 3}, {"failover", 3}, {"promotion", 3},
}

// leaderDies is a step that happens in mid-pass alone: between two passes it is "leader killed".
const leaderDies = "leader dies"

// lay lays a trap, and asks for a pass.
func (w *world) lay() {
	step := inMidPass[w.rng.IntN(len(inMidPass))]
	for step.on > w.s.masters {
		step = inMidPass[w.rng.IntN(len(inMidPass))]
	}
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 6))
	t := &trap{before: anyCommand, left: w.rng.IntN(60), do: func() {
		was := w.rng
		w.rng = rng
		w.say("in mid-pass: %s", step.what)
		if step.what != leaderDies {
			w.happen(step.what)
		} else if k := w.leader(); k != nil {
			k.line.cut()
		}
		w.change(func() { w.moment++; w.Count(sprung, 1) })
		w.rng = was
	}}
	if w.chance(2, 3) {
		t.before, t.left = []string{intending, movingAway, settling}[w.rng.IntN(3)], w.rng.IntN(3)
	}
	w.say("  %s, before %s, behind %d of those", step.what, t.before, t.left)
	w.traps.Lock()
	w.trap = t
	w.traps.Unlock()
	w.ask()
}

// disarm takes the trap away.
func (w *world) disarm() {
	w.traps.Lock()
	defer w.traps.Unlock()
	w.trap = nil
}

// before is called before commands of a worker are sent.
func (w *world) before(cmds []redis.Cmder) (behind func()) {
	if w.far > 0 && w.called(cmds[0]) == movingAway {
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
	if t == nil || t.before != anyCommand && t.before != w.called(cmd) {
		return
	}
	if t.left--; t.left >= 0 || !w.turn.TryLock() {
		return
	}
	defer w.turn.Unlock()
	if !w.busy.TryLock() {
		return
	}
	defer w.busy.Unlock()
	w.trap = nil
	t.do()
}

// Names of commands.
const (
	anyCommand = "a command"
	intending  = "an intent"
	movingAway = "a move away"
	settling   = "a settlement"
)

// called is the name of a script by which something goes.
func (w *world) called(cmd redis.Cmder) string {
	key := func(n int) string {
		if args := cmd.Args(); len(args) > 2+n {
			return fmt.Sprint(args[2+n])
		}
		return ""
	}
	switch is := strings.ToLower(cmd.Name()); {
	case is != "eval" && is != "evalsha":
	case strings.HasPrefix(key(2), "orphan:bin:"):
		return movingAway
	case strings.Contains(key(6), "orphan:intents:"):
		return settling
	case strings.Contains(key(6), "orphan:marks:"):
		return intending
	}
	return anyCommand
}

// moveSlot moves the slot of a candidate, or of a sign, to another master; or begins to. A replica
// that is behind would keep what has left its master.
func (w *world) moveSlot(begin bool) {
	c := w.any()
	key := []string{c.key(), c.key(), c.signKey("exists"), c.signKey("member")}[w.rng.IntN(4)]
	if w.moving != nil || w.apart >= 0 || slot.Of(key) == slot.Of(w.layout.Log()) {
		return
	}
	to := (w.s.shard(key) + 1 + w.rng.IntN(len(w.s.pairs)-1)) % len(w.s.pairs)
	w.say("  that of %s, to %d", key, to)
	w.reachAll()
	w.outside(func() { w.moving = w.s.move(key, to) })
	w.cutOff(false)
	if !begin {
		w.arrive()
	}
}

// arrive ends the move of a slot.
func (w *world) arrive() {
	if w.moving == nil {
		return
	}
	finish := w.moving
	w.moving = nil
	w.reachAll()
	w.outside(finish)
	w.cutOff(false)
	w.change(func() { w.Count(slotsMoved, 1) })
}

// reachAll moves all masters to the present time: what goes from one to another takes its expiry
// along.
func (w *world) reachAll() {
	for i := range w.s.pairs {
		if err := w.clock.reach(context.Background(), w.s.master(i).Addr()); err != nil {
			w.change(func() { w.found("the clock of shard %d: %v", i, err) })
		}
	}
}

// failOver has a replica lead that has all that its master had.
func (w *world) failOver() {
	if w.apart >= 0 || w.moving != nil {
		return
	}
	shard := w.rng.IntN(len(w.s.pairs))
	w.say("  of shard %d", shard)
	w.outside(func() { w.s.kill(shard); w.s.failOver(shard) })
	w.survey()
	w.cutOff(false)
	w.change(func() { w.Count(failovers, 1) })
}

// masterAway is a master that is dead for a while, before its replica leads.
func (w *world) masterAway() {
	if w.apart >= 0 || w.moving != nil {
		return
	}
	w.disarm()
	shard := w.rng.IntN(len(w.s.pairs))
	w.say("  of shard %d", shard)
	w.outside(func() { w.s.kill(shard) })
	w.change(func() { w.down = shard })
	w.survey()
	w.sleep(w.upTo(3 * time.Minute))
	w.outside(func() { w.s.failOver(shard) })
	w.change(func() { w.down = -1; w.Count(failovers, 1) })
	w.survey()
	w.cutOff(false)
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
	w.reachAll()
	w.change(func() {
		w.moment++
		w.atLeast = true
		w.Count(promoted, 1)
		for _, c := range w.all {
			w.readBack(c)
		}
		for _, r := range w.rules {
			r.fallen = nil
		}
	})
	w.cutOff(false)
}

// readBack takes for the truth about a candidate what the servers have.
func (w *world) readBack(c *candidate) {
	ctx := context.Background()
	was := *c
	c.turned, c.turnedAt = w.moment, ""
	c.present = w.there([]*candidate{c})[0]
	if dump := w.eye.Dump(ctx, c.key()).Val(); dump != c.dump {
		c.dump, c.made = dump, w.moment
		c.version++
	}
	at := w.expiry(c.key())
	if c.Members == nil && !at.IsZero() {
		c.expires = time.Now().Add(at.Sub(w.clock.time()))
	}
	switch c.kind {
	case "state":
		c.over = w.eye.HGet(ctx, c.key(), "state").Val() == "over"
	case "missing":
		if c.Read == "hash" {
			c.over = c.present && !w.eye.HExists(ctx, c.key(), "state").Val()
		} else {
			c.over = c.present && !strings.Contains(w.eye.Get(ctx, c.key()).Val(), "state")
		}
	case "lasting":
		if c.over = c.present && at.IsZero(); c.over {
			c.expires = time.Time{}
		}
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
			c.shows[sign] = w.eye.SIsMember(ctx, key, c.signer()).Val()
		case "list":
			c.shows[sign] = w.eye.LPos(ctx, key, c.signer(), redis.LPosArgs{}).Err() == nil
		case "field":
			c.shows[sign] = w.eye.HExists(ctx, key, c.signer()).Val()
		default:
			c.shows[sign] = w.eye.Exists(ctx, key).Val() > 0
		}
	}
	if was.present != c.present || was.over != c.over {
		w.note("  %s: there %v, was %v", c.name(), c.present, was.present)
	}
}

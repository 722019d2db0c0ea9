package search

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// trap is something that happens between two commands of a pass.
type trap struct {
	left     int  // commands until then
	atDelete bool // the next script that deletes waits for it
	do       func()
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

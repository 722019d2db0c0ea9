package orphans

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// one is some key of a map; "" if there is none.
func one[V any](r *rand.Rand, of map[string]V, fits func(V) bool) string {
	var names []string
	for name, v := range of {
		if fits == nil || fits(v) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return names[r.IntN(len(names))]
}

// most is how much may be dead at a time before the backend leaks no more of itself. If more than
// half of a kind died while nothing may go, the rule would be held for a minute: rightly, and for
// too long.
const most = 6

// act does one thing at random: users come and go, also those whose keys are orphans by now.
func (b *backend) act() {
	b.mu.Lock()
	defer b.mu.Unlock()
	room, bot := one(b.rand, b.rooms, has), one(b.rand, b.bots, nil)
	// Who sits in a room that is delisted, or has no channel, stays there: few do.
	user := one(b.rand, b.seats, func(room string) bool { return b.rooms[room] != nil && !b.quiet[room] })
	waiting := one(b.rand, b.waits, nil)
	again := func(prefix string) string { // not of what a row looks at
		name, ok := strings.CutPrefix(one(b.rand, b.dead, nil), prefix)
		if ok && (strings.HasPrefix(name, "user") || strings.HasPrefix(name, "bot")) {
			return name
		}
		return ""
	}
	switch b.rand.IntN(8) {
	case 0: // a reservation is written anew, of an orphan also
		if name := again("queue:reservation:"); name != "" {
			b.seat(name, room, old)
		} else if user != "" {
			b.seat(user, room, old)
		}
	case 1: // so is a place in the queue
		if name := again(queue + " "); name != "" {
			b.wait(name)
		} else {
			b.wait(waiting)
		}
	case 2: // a bot crashes, and runs again under its old name
		if name := again("bots:state:"); name != "" {
			b.start(name)
		} else if len(b.dead) < most && len(b.bots) > 4 {
			b.crash(bot)
		}
	case 3:
		b.play(bot)
	case 4: // a user leaves the queue in good order
		if len(b.waits) > 3 {
			delete(b.waits, waiting)
			b.step("-user:"+waiting, func(ctx context.Context, p redis.Pipeliner) {
				p.ZRem(ctx, queue, waiting)
				p.Del(ctx, "queue:joinedAt:"+waiting)
			})
		} else {
			b.wait(b.name("user"))
		}
	case 5: // a match runs
		if len(b.docs) < 40 {
			b.match("ongoing", 0)
		}
	case 6: // a room comes, and another goes in good order
		if len(b.rooms) < 8 {
			b.seat(b.name("user"), b.open(true, true), old)
		} else if len(b.dead) < most && !b.quiet[room] {
			b.close(room)
		}
	case 7:
		if len(b.dead) < most {
			b.stuck(b.name("user"))
		}
	}
}

// run has the backend act until ctx ends.
func (b *backend) run(ctx context.Context) {
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.act()
		if n%10 == 0 {
			b.heal()
			b.forget()
		}
	}
}

// again makes some things live anew that were dead.
func (b *backend) again() {
	for range 20 {
		b.act()
	}
}

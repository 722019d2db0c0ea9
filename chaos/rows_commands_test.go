package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// commandRows are about commands to devices that hop while replicas end.
var commandRows = []row{
	{31, "CommandsWhileReplicasFail", false, 32, nil, commandsWhileReplicasFail},
	{31, "CommandsWaitForDevices", false, 32, nil, commandsWaitForDevices},
}

// commandsWhileReplicasFail: whatever happens to the replica that has a command, its device
// executes it at most once, and it has one outcome. The judge knows what devices did (C9).
func commandsWhileReplicasFail(w *environment) {
	met := w.opens()
	w.Listened()
	w.Executed()
	o := w.orders(0, w.gives)
	defer o.stop()
	more := func() { o.more(200) }

	for range 4 {
		more()
		back := w.Follower() // back at once: it finds what its former life had begun
		w.Kill(back)
		w.Start(back.ID)
		met.hit(1)
	}
	more()
	dead := w.Leader() // nobody comes back: others answer in its place
	w.Kill(dead)
	harness.Eventually(w, "the dead one's commands are answered", func() bool { return w.Exists(w.Context(), outbound(w.Layout, dead.ID)).Val() == 0 })
	w.Start(dead.ID)
	met.hit(1)
	more()
	for _, r := range w.Replicas() { // what it knows of Redis' answers is not what happened
		r.Proxy.LoseReply(concludes, 5)
		r.Proxy.LoseReplySilently(takes, 2)
	}
	more()
	cont := w.Stop(w.Follower())
	harness.Lasting(harness.Interval)
	cont()
	met.hit(1)
	more()
	ends := w.Follower()
	require.Zero(w, w.Terminate(ends), ends.Log())
	w.Start(ends.ID)
	met.hit(1)
	more()

	o.settle("answered", "not_connected", "timeout", "expired", "instance_lost")
}

// orders are commands that four backends give while the devices move and obey.
type orders struct {
	*environment
	given             atomic.Int64
	devices, backends conc.WaitGroup
	stay, enough      context.CancelFunc
}

// orders begins to give commands. Devices stay away now and then, for up to away: see obeys.
func (w *environment) orders(
	away time.Duration, give func(ctx context.Context, backend int, given *atomic.Int64),
) *orders {
	o := &orders{environment: w}
	var moving, giving context.Context
	moving, o.stay = context.WithCancel(w.Context())
	giving, o.enough = context.WithCancel(w.Context())
	for i := range w.Fleet.Len() {
		o.devices.Go(func() { w.obeys(moving, i, away) })
	}
	for n := range 4 {
		o.backends.Go(func() { give(giving, n, &o.given) })
	}
	return o
}

func (o *orders) stop() {
	o.enough()
	o.stay()
}

// more waits for so many more commands, while things are as they are.
func (o *orders) more(n int64) {
	until := o.given.Load() + n
	harness.Eventually(o, "commands are given", func() bool { return o.given.Load() >= until })
}

// settle waits until every command has its outcome, and has the run judged. Each of these statuses
// must occur.
func (o *orders) settle(statuses ...string) {
	o.enough()
	o.backends.Wait()
	harness.Eventually(o, "every command has its outcome", func() bool {
		left := o.XLen(o.Context(), queue(o.Layout)).Val()
		for _, key := range o.Keys(o.Context(), outbound(o.Layout, "*")).Val() {
			left += o.XLen(o.Context(), key).Val()
		}
		return left == 0
	})
	o.stay()
	o.devices.Wait()
	o.ends()
	v := o.judge()
	of := make(map[string]int)
	for _, m := range o.XRange(o.Context(), responses(o.Layout), "-", "+").Val() {
		of[m.Values["status"].(string)]++
	}
	o.Logf("%d given, %d executed: %v", o.given.Load(), len(o.Facts(nil).Executed), of)
	for _, s := range statuses {
		require.Positive(o, of[s], "no command is %s: this run proves nothing", s)
	}
	require.Zero(o, v.WrongDeletes())
}

func outbound(l registry.Layout, instance string) string {
	return l.Prefix + "commands:outbound:" + instance
}

func responses(l registry.Layout) string { return l.Prefix + "commands:responses" }

// concludes and takes tell the scripts of those names, by their keys.
func concludes(r proxy.Request) bool {
	keys, _ := r.Script()
	return len(keys) == 3 && keys[2] == responses(harness.KeyNames)
}

func takes(r proxy.Request) bool {
	keys, _ := r.Script()
	return len(keys) == 3 && strings.HasPrefix(keys[1], outbound(harness.KeyNames, "")) && keys[2] == harness.KeyNames.Registry()
}

// answering is a device that was told something.
type answering struct {
	ctx context.Context
	*sim.Device
	rnd *rand.Rand
	c   sim.Command
	say sim.Say
}

// manners are how devices answer: real ones have each of them. Mostly they have the last.
var manners = []struct {
	good    bool
	answers func(answering) error
}{
	{answers: func(answering) error { return nil }},
	{answers: func(a answering) error { a.waits(3000); return a.done() }},
	{answers: func(a answering) error { return errors.Join(a.done(), a.more()) }},
	{answers: func(a answering) error { a.waits(300); return errors.Join(a.done(), a.more()) }},
	// What it sends of itself passes for the answer, if that is awaited in the same codec; then the
	// answer must not be taken for another's.
	{answers: func(a answering) error { err := a.ofItself(); a.waits(300); return errors.Join(err, a.done()) }},
	// It is no sign that a late answer will not come.
	{answers: func(a answering) error {
		a.waits(3000)
		err := a.ofItself()
		a.waits(300)
		return errors.Join(err, a.done())
	}},
	{good: true, answers: func(a answering) error { return a.done() }},
}

// waits for less than so many milliseconds.
func (a answering) waits(most int) { wait.For(a.ctx, time.Duration(a.rnd.IntN(most))*time.Millisecond) }

func (a answering) done() error { return a.say(a.c.Codec, a.Executes(a.c, "did "+a.c.Text)) }

// more is another frame of the same answer. A device writes that at once; if this process was too
// slow for that, there is none.
func (a answering) more() error {
	begun := time.Now()
	if a.waits(300); time.Since(begun) > time.Second {
		return nil
	}
	return a.say(a.c.Codec, a.Executes(a.c, "and more of "+a.c.Text))
}

func (a answering) ofItself() error { return a.say(a.c.Codec, a.Executes(a.c, judge.OfItself)) }

// obeys has device i move, report, and do what it is told. On a socket on which a command went
// unanswered, or on which more came than an answer, all later answers are ambiguous, and nothing
// could be judged: the device leaves it. Every other time it stays away, for up to away.
func (w *environment) obeys(ctx context.Context, i int, away time.Duration) {
	rnd := rand.New(rand.NewPCG(w.Seed, uint64(i)))
	d := w.Fleet.Device(i)
	for ctx.Err() == nil {
		w.hops(ctx, i, rnd)
		listening, leave := context.WithTimeout(ctx, time.Duration(rnd.IntN(400))*time.Millisecond)
		doubtful := false
		err := d.Follow(listening, func(c sim.Command, say sim.Say) error {
			w.Fleet.MayClose(i) // until the next report has shown that the answer was in time
			w.Executed(judge.Execution{IMEI: d.IMEI(), Command: c.Text})
			manner := manners[min(rnd.IntN(4*len(manners)), len(manners)-1)]
			doubtful = doubtful || !manner.good
			return manner.answers(answering{ctx, d, rnd, c, say})
		})
		leave()
		pause := 10 * time.Millisecond
		if away > 0 && rnd.IntN(2) == 0 {
			pause += rand.N(away)
			doubtful = true
		}
		if w.Gate.RLock(); doubtful || err != nil {
			w.Fleet.LetGo(i, true)
		}
		w.Gate.RUnlock()
		wait.For(ctx, pause)
	}
}

// hops has device i report, and move to another place now and then.
func (w *environment) hops(ctx context.Context, i int, rnd *rand.Rand) {
	w.Gate.RLock()
	defer w.Gate.RUnlock()
	fleet := w.Replicas()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), harness.ActWithin)
	defer cancel()
	if w.Fleet.At(i) == "" || rnd.IntN(3) == 0 {
		if w.Fleet.Connect(ctx, i, fleet[rnd.IntN(len(fleet))]) != nil {
			return
		}
	}
	if rnd.IntN(4) > 0 {
		w.Fleet.DropStale(i)
	}
	_ = w.Fleet.Send(ctx, i) // of a socket that is closed the device lets go
}

// gives gives commands as a backend does: to whom the registry names, or named a little while ago.
func (w *environment) gives(ctx context.Context, backend int, given *atomic.Int64) {
	rnd := rand.New(rand.NewPCG(w.Seed, uint64(1000+backend)))
	last := make(map[string]string)
	for n := 0; wait.For(ctx, time.Duration(rnd.IntN(30))*time.Millisecond); n++ {
		imei := w.Fleet.IMEI(rnd.IntN(w.Fleet.Len()))
		owner := last[imei]
		if owner == "" || rnd.IntN(4) > 0 {
			owner = w.HGet(ctx, w.Registry(), imei).Val()
		}
		if last[imei] = owner; owner == "" {
			continue
		}
		id := fmt.Sprintf("order-%d-%d", backend, n)
		add := &redis.XAddArgs{Stream: outbound(w.Layout, owner), Values: []any{
			"id", id, "imei", imei, "text", id, "codec", 12 + rnd.IntN(2)*2, "expires", time.Now().Add(time.Duration(rnd.IntN(3000)) * time.Millisecond).UnixMilli(),
		}}
		if w.XAdd(ctx, add).Err() != nil {
			continue // the end
		}
		if rnd.IntN(10) == 0 { // its reply was lost, as far as the backend knows
			_ = w.XAdd(ctx, add).Err()
		}
		given.Add(1)
	}
}

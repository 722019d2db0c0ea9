package search

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing/synctest"
	"time"
)

// step is one random event: what happens, to whom, and how long the fleet then goes on. A plan is a
// list of them, so that steps can be left out when one that found something is made shorter.
type step struct {
	what    int
	a, b    uint32
	lasting time.Duration
}

// event is a kind of step, and how likely it is.
type event struct {
	weight int
	name   string
	do     func(f *fleet, a, b int)
}

var events = []event{
	{24, "a device moves", (*fleet).move},
	{6, "a socket closes", (*fleet).closes},
	{8, "a line fails", (*fleet).failLine},
	{10, "a line works again", (*fleet).mendLine},
	{5, "most lines fail", (*fleet).failMost},
	{3, "all lines work again", (*fleet).mendAll},
	{6, "a process is killed", (*fleet).killOne},
	{3, "many processes are killed", (*fleet).killMany},
	{8, "a process starts", (*fleet).startOne},
	{4, "a process stops", (*fleet).stopOne},
	{4, "the server turns clients away", (*fleet).refuse},
	{4, "the server lets clients in", (*fleet).letIn},
	{6, "sweeping is paused, or goes on", (*fleet).pause},
	{1, "a dry run begins or ends", (*fleet).dryRun},
	{4, "power loss", (*fleet).powerLoss},
	{3, "the server restarts", (*fleet).restart},
	{1, "the server loses everything", (*fleet).loseAll},
	{3, "somebody deletes a key", (*fleet).hand},
	{4, "waves", (*fleet).waves},
	{3, "a deployment", (*fleet).deploy},
	{3, "the server turns some replicas away", (*fleet).refuseSome},
	{3, "a stranger is turned away", (*fleet).stranger},
	{3, "heartbeats are evicted", (*fleet).evict},
	{3, "the name moves to another server", (*fleet).failOver},
	{3, "all is quiet", (*fleet).settle},
	{0, "somebody writes into a key", (*fleet).poison}, // last: poisonedPlan has it
}

const wholePlan = 40 // steps, and at the end all is quiet

// plan makes up the steps of a seed. ROLLCALL_EVENTS names the only ones that may happen, with
// commas.
func plan(seed uint64) (steps []step) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var weights []int
	all := 0
	for _, e := range events {
		if only := os.Getenv("ROLLCALL_EVENTS"); only != "" && !slices.Contains(strings.Split(only, ","), e.name) {
			e.weight = 0
		}
		weights = append(weights, e.weight)
		all += e.weight
	}
	for range wholePlan {
		s := step{a: rng.Uint32() >> 1, b: rng.Uint32() >> 1}
		for roll := rng.IntN(all); roll >= weights[s.what]; s.what++ {
			roll -= weights[s.what]
		}
		x := rng.Float64()
		s.lasting = time.Duration(x * x * float64(12*time.Second)).Round(time.Millisecond)
		steps = append(steps, s)
	}
	return steps
}

// play plays steps, and lets all be quiet at the end.
func (f *fleet) play(steps []step) {
	for _, s := range steps {
		f.Steps++
		synctest.Wait() // nobody is in the middle of a handshake
		events[s.what].do(f, int(s.a), int(s.b))
		f.pass(s.lasting)
	}
	f.settle(1, 0)
}

func (f *fleet) any(n int) *replica { return f.replicas[n%len(f.replicas)] }

func (f *fleet) move(a, b int) {
	up := f.serving()
	if len(up) == 0 {
		return
	}
	d := f.devices[a%len(f.devices)]
	r := up[b%len(up)]
	if b%7 == 0 { // the device has gone, and may be elsewhere
		f.open(d, r)
		f.say("a handshake of %s is read late at %s", d.imei, r.id)
		return
	}
	old := d.socket
	if old != nil && old.at != r.life && b%3 == 0 {
		f.hangUp(old) // the replica sees that it left
	}
	f.connect(d, r)
	f.say("%s connects at %s", d.imei, r.id)
}

func (f *fleet) closes(a, _ int) {
	if s := f.devices[a%len(f.devices)].socket; s != nil {
		f.hangUp(s)
	}
}

func (f *fleet) failLine(a, b int) { f.fail(b, f.any(a)) }

// fail is one event, for all of them.
func (f *fleet) fail(how int, all ...*replica) {
	all = slices.DeleteFunc(all, func(r *replica) bool { return r.line.now() != works })
	f.hits(all)
	for _, r := range all {
		is := []state{cut, cut, hangs, deaf}[how%4]
		f.say("%s's line: %v", r.id, is)
		r.line.become(is)
	}
}

func (f *fleet) mendLine(a, _ int) {
	for i := range f.replicas {
		if r := f.any(a + i); r.life.running && r.line.now() != works {
			f.say("%s's line works again", r.id)
			r.line.become(works)
			return
		}
	}
}

func (f *fleet) failMost(a, b int) {
	kept := f.any(a)
	if b%2 == 0 {
		for i := range f.replicas { // a leader, if one can be had
			if r := f.any(a + i); f.leads(r) {
				kept = r
				break
			}
		}
	}
	var all []*replica
	for i, r := range f.replicas {
		if r != kept && (a>>8+i)%8 > 0 && !(r.idle && a%2 == 0) {
			all = append(all, r)
		}
	}
	f.fail(b/8, all...)
	f.pass(time.Duration(b%30) * time.Second)
}

// waves: all are back when the first have fallen silent, and soon most are off again.
func (f *fleet) waves(a, b int) {
	for range 2 + b/8%3 {
		f.failMost(a, b&1)
		f.pass(time.Duration(8+a%12) * time.Second)
		f.mendAll(0, 0)
		f.pass(time.Duration(1+b%12) * time.Second)
	}
}

// deploy replaces replicas: new ones come, the old ones leave in good order, and half of the time
// most of the new ones are cut off.
func (f *fleet) deploy(a, b int) {
	var fresh []*replica
	for i, old := range f.running() {
		if (a>>(i%24))&3 == 0 || old.fixed {
			continue
		}
		r := &replica{name: fmt.Sprint("n", len(f.processes)), sweeps: old.sweeps, idle: old.idle}
		f.replicas, fresh = append(f.replicas, r), append(fresh, r)
		f.start(r)
		f.pass(time.Second / 2)
		defer f.pass(0)
		for _, d := range f.devices {
			if d.socket != nil && d.socket.at == old.life {
				f.connect(d, r)
			}
		}
		f.replicas = slices.DeleteFunc(f.replicas, func(r *replica) bool { return r == old })
		if b%4 > 0 {
			f.leave(old)
		} else {
			f.kill(false, old)
		}
	}
	f.forgetUnled()
	f.pass(time.Duration(b/4%10) * time.Second)
	if b%2 == 0 {
		f.fail(0, fresh[:(len(fresh)*3+3)/4]...)
		f.pass(time.Duration(10+b/64%12) * time.Second)
	}
}

// refuseSome: their password or their rights are changed. Those that have connections lose them.
func (f *fleet) refuseSome(a, b int) {
	var all []*replica
	for i, r := range f.running() {
		if (a>>(i%24))&1 == 0 {
			all = append(all, r)
		}
	}
	f.hits(all)
	how := []refusal{noLogin, noAuth, noPerm}[b%3]
	for _, r := range all {
		f.say("the server turns %s away: %v", r.id, how)
		r.line.refuse(how)
		r.line.reset("")
	}
	f.pass(time.Duration(b/3%60) * time.Second)
	if b%2 == 0 {
		f.letIn(0, 0)
	}
}

func (f *fleet) stranger(a, _ int) {
	f.strange = time.Now().Add(time.Duration(a%300) * time.Second)
	f.say("a stranger is turned away until %s", f.strange.Format("15:04:05"))
}

func (f *fleet) evict(a, b int) {
	f.evicting = time.Now().Add(time.Duration(1+a%60) * time.Second)
	f.say("heartbeats are evicted until %s", f.evicting.Format("15:04:05"))
	f.pass(time.Duration(b%60) * time.Second)
}

// meddle is what the server and strangers do, once a second.
func (f *fleet) meddle() {
	now := time.Now()
	if now.Before(f.strange) && now.Unix()%7 == 0 {
		f.s.set(func() { f.s.turned[[]refusal{noLogin, noAuth, noPerm}[now.Unix()%3]]++ })
	}
	if now.Before(f.evicting) {
		key := f.part(int(now.Unix()) % f.partitions).Heartbeat(f.any(int(now.Unix() / 7 % 1000)).id)
		if f.s.Exists(key) {
			f.say("%s is evicted", key)
			f.s.Del(key)
			f.s.set(func() { f.s.evicts++ })
		}
	}
}

// failOver: the name leads to another server, which has all but a few of the last writes. The
// former one takes writes for as long as somebody is connected to it.
func (f *fleet) failOver(a, b int) {
	if !f.s.reachable() {
		return
	}
	was, is := f.s, newServer(f.t)
	was.copyTo(is)
	is.run, is.mute = fmt.Sprint("run", len(f.servers)+1), was.mute
	f.unseen = f.unseen || was.mute
	for i, d := range f.devices {
		if (a>>(i%24))&7 == 0 {
			is.HDel(f.partOf(d.imei).Registry(), d.imei)
		}
	}
	f.serve(is)
	for i, r := range f.running() {
		if a%2 == 0 {
			i = 0 // all the same
		}
		client := []string{"", "", "control", "data"}[(b>>(2*(i%12)))&3]
		f.say("the name leads to another server; connections of %s reset: %q", r.id, client)
		r.line.reset(client)
	}
	f.pass(time.Duration(b%30) * time.Second)
}

// leads reports whether a replica leads a partition.
func (f *fleet) leads(r *replica) bool {
	for k := range f.partitions {
		token, _ := f.s.Get(f.part(k).Lease())
		if len(token) > len(r.id) && token[:len(r.id)+1] == r.id+"/" {
			return true
		}
	}
	return false
}

func (f *fleet) mendAll(_, _ int) {
	f.say("all lines work")
	for _, r := range f.replicas {
		if r.life.running && r.line.now() != works {
			r.line.become(works)
		}
	}
}

func (f *fleet) killOne(a, b int) {
	up := f.running()
	if len(up) == 0 {
		return
	}
	victim := up[a%len(up)]
	for i := range up { // half of the time one that leads
		if r := up[(a+i)%len(up)]; b&2 == 0 && f.leads(r) {
			victim = r
			break
		}
	}
	f.kill(b%2 == 0, victim)
	f.forgetUnled()
}

func (f *fleet) killMany(a, b int) {
	var all []*replica
	for i, r := range f.running() {
		if (a>>(i%24))&1 == 0 {
			all = append(all, r)
		}
	}
	f.kill(b%2 == 0, all...)
	f.forgetUnled()
}

// forgetUnled begins anew to count for how long nobody leads: the bound is from a death on.
func (f *fleet) forgetUnled() { clear(f.unled) }

func (f *fleet) startOne(a, b int) {
	for i := range f.replicas {
		if r := f.any(a + i); !f.isUp(r) {
			f.start(r)
			return
		}
	}
	if r := f.any(a); r.fixed && b%3 == 0 { // two processes of one instance id for a while
		l := r.life
		f.disconnect(l, false)
		f.mu.Lock()
		l.running = false
		f.mu.Unlock()
		f.start(r)
		if b%2 == 0 {
			l.line.kill(true)
		}
		l.stop()
	}
}

func (f *fleet) isUp(r *replica) bool {
	select {
	case <-r.ended:
		return false
	default:
		return r.life.running
	}
}

func (f *fleet) stopOne(a, _ int) {
	if up := f.running(); len(up) > 1 {
		f.leave(up[a%len(up)])
		f.forgetUnled()
	}
}

// refuse has the server turn new connections away, and breaks those of some.
func (f *fleet) refuse(a, b int) {
	how := []refusal{full, full, noLogin, noAuth}[b%4]
	f.s.set(func() { f.s.refuses = how })
	f.say("the server turns clients away: %v", how)
	for i, r := range f.replicas {
		if (a>>(i%24))&3 == 0 && r.life.running {
			f.say("%s's connections are reset", r.id)
			r.line.reset("")
		}
	}
	f.pass(time.Duration(b%25) * time.Second)
}

func (f *fleet) letIn(_, _ int) {
	f.s.set(func() { f.s.refuses = welcome })
	for _, r := range f.replicas {
		r.line.refuse(welcome)
	}
	f.say("the server lets everybody in")
}

func (f *fleet) pause(_, _ int) {
	if f.paused = !f.paused; f.paused {
		_ = f.s.Set(f.layout.Paused(), "by hand")
	} else {
		f.s.Del(f.layout.Paused())
	}
	f.say("paused: %v", f.paused)
}

func (f *fleet) dryRun(_, _ int) {
	f.dry = !f.dry
	f.say("dry run: %v, by a rolling restart", f.dry)
	for _, r := range f.running() {
		if r.sweeps {
			f.leave(r)
			f.start(r)
			f.pass(time.Second)
		}
	}
	f.forgetUnled()
}

// powerLoss takes everything away at once. The replicas are back first, the server after a while.
func (f *fleet) powerLoss(_, b int) {
	f.say("power loss")
	f.down()
	f.kill(false, f.running()...)
	f.pass(time.Duration(b%4) * time.Second)
	for _, r := range f.replicas {
		f.start(r)
	}
	f.pass(time.Duration(b/4%20) * time.Second)
	f.backUp(b/80%6 > 0)
}

func (f *fleet) restart(_, b int) {
	f.down()
	f.pass(time.Duration(b%20) * time.Second)
	f.backUp(true)
}

func (f *fleet) loseAll(_, b int) {
	f.down()
	f.pass(time.Duration(b%20) * time.Second)
	f.backUp(false)
}

func (f *fleet) down() {
	f.say("the server goes away")
	f.s.set(func() { f.s.up = false })
	for _, r := range f.replicas {
		r.line.reset("")
	}
}

func (f *fleet) backUp(keeps bool) {
	f.s.restart(keeps)
	if !keeps {
		f.paused = false
	}
	f.say("the server is back, with its data: %v", keeps)
}

// hand deletes a key.
func (f *fleet) hand(a, b int) {
	p := f.part(a % f.partitions)
	id := f.any(b).id
	key := []string{
		p.Registry(), p.Roster(), p.Devices(id), p.Heartbeat(id), p.Lease(), p.Witness(), p.Log(),
	}[b/16%7]
	f.say("somebody deletes %s", key)
	f.s.Del(key)
	f.byHand = true
}

// Within which time the registry is the truth when all is quiet. A single entry is put back within
// ten intervals, one over a dead owner's when the guard would call that dead. What is dead goes
// after GRACE, twice if a mass failure was suspected, when a full scan is due. No entry at all,
// unless somebody deleted it, is a loss of which the owner has a sign.
const (
	missingWithin  = 3 * interval
	routableWithin = 12*interval + grace + 2*sweepEvery
	goneWithin     = ledWithin + ttl + 3*grace + 3*sweepEvery
	scanWithin     = 16 * time.Minute // that nobody need remember an owner
)

func (s state) String() string { return [...]string{"works", "is cut", "hangs", "is deaf"}[s] }

func (r refusal) String() string {
	return [...]string{"none", "it is full", "no login", "no password", "no rights", "unnoticed"}[r]
}

func (s step) String() string {
	return fmt.Sprintf("%s (%d, %d), then %s", events[s.what].name, s.a, s.b, s.lasting)
}

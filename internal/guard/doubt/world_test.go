package doubt_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	. "github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

// All times are ms. A step is a second.
const (
	sec      = int64(1000)
	retry    = 3 * sec
	scanEach = 60 * sec
	lease    = 18 * sec
	never    = -1 << 40
)

// common are the settings of the fleet: the defaults.
var common = Own{Interval: 30 * sec, TTL: 90 * sec}

var gap = (common.TTL - common.Interval) / 2

// owner is the truth about one process.
type owner struct {
	name             string
	own              Own
	alive, left      bool
	plain            bool // heartbeat and entries, but no record
	holds            bool
	idle             int64 // since when it says that it holds none; 0: it does not
	holding, able    int64 // since when it holds sockets, and can reach Redis
	off              int64 // when it last could not, and had not left
	cut, mended      int64 // it cannot reach Redis in between
	refused, told    int64 // Redis refuses it until; when it last did
	next, beat, ends int64 // next try, last landed beat, end of that by the server's clock
	started          int64 // again, under its id
	unread           int64 // a beat that was evicted before anybody could read it
	died, fell       int64 // fell: when its silence was as long as its TTL; 0: it is not
	hit              *hit  // that has had it off since
	promise          promise
	reported         bool
}

// hit is one cut or kill of several at once.
type hit struct {
	at   int64
	base []*owner // they held, and could beat
	most bool     // more than half of those were hit
}

// world is a fleet on one Redis, in virtual time.
type world struct {
	rng       *rand.Rand
	hard      bool
	mixed     bool // owners have other settings than the fleet
	rule      rule
	t         int64
	skew      int64 // of the server's clock
	setBack   int64 // until when keys live longer, because that was set back
	owners    []*owner
	by        map[string]*owner
	heartbeat map[string]int64 // when it expires
	records   Fleet
	roster    map[string]bool
	entries   map[string]bool
	pending   []batch

	since, ticked, turned  int64 // the witness
	noInfo, refuses        bool  // refusals cannot be read; there was one since the last tick
	run, seenRun           int
	down, deaf, full, lead int64 // no Redis, no tick, no memory, no leader until
	evicts, strangers      int64 // until
	each                   int64 // between two wrong passwords of a stranger
	read, scan             int64 // last reading of this leader; next full scan
	wasDown                bool

	trouble, refusal int64 // truth: the last trouble of Redis or the leader; the last refusal
	unsure           int64 // the last time at which the records were lost
	gone             []int64
	found, log       []string
	first            int // line of the log
	count            map[string]int
	number           int
}

// rule is the package's code, or what a mutant makes of it.
type rule struct {
	together func(f Fleet, id string, now, since int64) bool
	verdict  func(r Record, now, since, refused int64, most bool) Doubt
	proves   func(r Record, now int64, own Own, is State) Record
	seen     func(r Record, now, left int64, own Own, blind bool) Record
	spent    func(f Fleet, now, since int64) []string
}

var asIs = rule{
	together: Fleet.Together, verdict: Record.Verdict, proves: Record.Proves, seen: Record.Seen, spent: Fleet.Spent,
}

// batch is what a leader read of a silent owner. The guard is asked for it up to 2 s later.
type batch struct {
	id     string
	record Record
	most   bool
	asked  int64
}

func newWorld(seed uint64, r rule) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 7)), rule: r, t: 1e10, by: map[string]*owner{}, heartbeat: map[string]int64{},
		records: Fleet{}, roster: map[string]bool{}, entries: map[string]bool{}, count: map[string]int{},
		turned: never, refusal: never, unsure: never, setBack: never,
	}
	w.trouble, w.ticked = w.t, w.t
	return w
}

func (w *world) server() int64 { return w.t + w.skew }

func (w *world) some(n, of int) bool { return w.rng.IntN(of) < n }

func (w *world) upTo(d int64) int64 { return w.rng.Int64N(d + 1) }

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%9.3f ", float64(w.t-1e10)/1000)+fmt.Sprintf(format, args...))
}

func (o *owner) grace() int64 { return o.own.TTL + 2*sec }

func (w *world) add(holds, plain bool) *owner {
	w.number++
	o := &owner{
		name: fmt.Sprint("o", w.number), own: common, alive: true, holds: holds, plain: plain, holding: w.t, able: w.t,
	}
	if w.mixed && !plain && w.some(1, 3) {
		o.own = []Own{{10 * sec, 30 * sec}, {15 * sec, 90 * sec}, {60 * sec, 180 * sec}}[w.rng.IntN(3)]
	}
	w.owners, w.by[o.name] = append(w.owners, o), o
	w.try(o)
	o.next = w.t + 1 + w.upTo(o.own.Interval) // beats are out of step
	return o
}

// can reports whether an owner can reach Redis.
func (w *world) can(o *owner) bool {
	return o.alive && w.t >= w.down && (w.t < o.cut || w.t >= o.mended) && w.t >= o.refused
}

// try is a beat, if it lands.
func (w *world) try(o *owner) {
	o.next = w.t + retry
	if !w.can(o) {
		if w.t < o.refused && w.t >= w.down && (w.t < o.cut || w.t >= o.mended) {
			o.told, w.refusal, w.refuses = w.t, w.t, true
		}
		return
	}
	s := w.server()
	w.heartbeat[o.name] = s + o.own.TTL
	w.write(o, s) // both, also when memory is full
	o.beat, o.ends, o.fell, o.promise = w.t, s+o.own.TTL, 0, promise{}
	if w.t >= o.cut { // else it will be
		o.hit = nil
	}
	o.next = w.t + o.own.Interval - 100 + w.upTo(200)
}

func (w *world) write(o *owner, s int64) {
	if o.plain {
		if o.holds {
			w.entries[o.name] = true
		}
		return
	}
	is := Idle
	if o.holds {
		is = Holds
	}
	w.records[o.name] = w.rule.proves(w.records[o.name], s, o.own, is)
	w.roster[o.name] = true
	if o.holds {
		w.entries[o.name], o.idle = true, 0
		return
	}
	delete(w.entries, o.name)
	if o.idle == 0 {
		o.idle = w.t
	}
}

func (w *world) leave(o *owner) {
	if !w.can(o) || w.t < w.full || w.heartbeat[o.name] == 0 || o.plain {
		return
	}
	o.alive, o.left, o.died = false, true, w.t
	w.records[o.name] = w.rule.proves(w.records[o.name], w.server(), o.own, Bye)
	delete(w.heartbeat, o.name)
	if !w.some(1, 6) { // else it leaves entries behind
		delete(w.entries, o.name)
		delete(w.roster, o.name)
	}
}

func (w *world) advance(d int64) {
	for end := w.t + d; w.t < end; {
		w.second()
	}
}

func (w *world) second() {
	w.t += sec - w.t%sec
	end := w.t
	if w.t >= w.down && w.wasDown {
		w.run++
	}
	w.wasDown = w.t < w.down
	w.chance()
	for _, o := range w.owners {
		if can := w.can(o); !can {
			o.able = never
			if !o.left {
				o.off = w.t
			}
		} else if o.able == never {
			o.able = end
		}
		if o.alive && o.next <= end {
			w.t = max(o.next, end-sec+1)
			w.try(o)
			w.t = end
			if w.hard && w.t < w.evicts && o.beat > end-sec && w.some(1, 30) {
				delete(w.heartbeat, o.name)
				o.unread = o.beat
			}
		}
		if h := w.heartbeat[o.name]; h > 0 && h <= w.server() {
			delete(w.heartbeat, o.name)
		}
		if o.fell == 0 && (o.ends <= w.server() || w.t-o.beat >= o.own.TTL) {
			o.fell = w.t
			o.promise = w.promised(o)
		}
	}
	if w.t < w.down || w.t < w.full || w.t < w.deaf || w.t < w.lead {
		w.trouble = max(w.trouble, w.t)
	}
	if w.t < w.down || w.t < w.full || w.t < w.deaf {
		return
	}
	w.tick()
	if w.t >= w.lead {
		w.reading()
	}
	w.late()
}

// chance is what volatile keys and strangers' passwords do.
func (w *world) chance() {
	if w.t < w.down {
		return
	}
	if w.t < w.evicts && w.some(1, 3) {
		delete(w.heartbeat, w.owners[w.rng.IntN(len(w.owners))].name)
	}
	if w.t < w.strangers && w.t%w.each < sec {
		w.refusal, w.refuses = w.t, true
	}
}

// tick is the witness.
func (w *world) tick() {
	s := w.server()
	if w.ticked > s || s-w.ticked > gap || w.since > s || w.run != w.seenRun {
		w.since, w.trouble = s, max(w.trouble, w.t)
	}
	if w.refuses && !w.noInfo {
		w.turned = s
	}
	w.turned = min(w.turned, s)
	w.ticked, w.seenRun, w.refuses = s, w.run, false
}

// reading is a leader's, each second; what it finds, the guard is asked for a little later.
func (w *world) reading() {
	s := w.server()
	blind := w.t-w.read > retry
	w.read = w.t
	keep := func(id string) {
		w.records[id] = w.rule.seen(w.records[id], s, max(0, w.heartbeat[id]-s), common, blind)
	}
	scan := w.t >= w.scan
	var dead []string
	for _, id := range slices.Sorted(maps.Keys(w.records)) {
		keep(id)
		r := w.records[id]
		if r.State == Plain && w.heartbeat[id] == 0 && w.entries[id] && w.t >= w.scan-scanEach/2 {
			scan = scan || w.rule.verdict(r, s, w.since, w.turned, w.rule.together(w.records, id, s, w.since)) == None
		}
	}
	ids := w.roster
	if scan && s-w.since >= common.TTL+2*sec {
		w.scan = w.t + scanEach
		ids = maps.Clone(w.roster)
		maps.Copy(ids, w.entries)
	}
	for id := range ids {
		if w.records[id] == (Record{}) {
			keep(id)
		}
		if w.heartbeat[id] == 0 {
			dead = append(dead, id)
		}
	}
	slices.Sort(dead)
	for _, id := range dead {
		w.pending = append(w.pending, batch{
			id, w.records[id], w.rule.together(w.records, id, s, w.since), w.t + sec*w.rng.Int64N(3),
		})
	}
	for _, id := range w.rule.spent(w.records, s, w.since) {
		if !w.roster[id] && !w.entries[id] {
			delete(w.records, id)
		}
	}
	w.takes(s)
	w.pending = slices.DeleteFunc(w.pending, func(b batch) bool {
		if b.asked <= w.t {
			w.guard(b, s)
		}
		return b.asked <= w.t
	})
}

// guard decides about what a leader has read.
func (w *world) guard(b batch, s int64) {
	if w.heartbeat[b.id] > 0 || w.records[b.id] != b.record {
		return
	}
	why := w.rule.verdict(b.record, s, w.since, w.turned, b.most)
	w.count[string(why)]++
	if why != None {
		return
	}
	had := w.entries[b.id]
	delete(w.entries, b.id)
	delete(w.roster, b.id)
	if had {
		w.swept(w.by[b.id])
	}
}

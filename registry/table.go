package registry

import (
	"container/list"
	"time"

	"github.com/rollcall-redis/rollcall/registry/internal/digest"
)

const (
	// fresh is how long a handshake or frame is sufficient evidence to overwrite a foreign entry.
	fresh = time.Second
	// checkEvery is the shortest time between two checks that frames cause.
	checkEvery = time.Second
	// defaultSpare is how many more unheld than held devices are remembered while writes fail.
	defaultSpare = 10_000
	// shards is the number of beats that check every claim once. Devices registered together share
	// a shard and are checked in that order: their entries lie side by side in Redis' memory, which
	// halves the cost.
	shards = 10
)

// A state is what this replica wants for one IMEI, and what it believes that Redis holds.
//
//	            Register                the writer tries            Redis agrees
//	(nothing) ───────────► unwritten ─────────────────► unconfirmed ─────────────► standing
//	                                                     ▲    ▲  │                  │    │
//	                              registering ───────────┘    └──│── lost ◄─────────┘    │
//	                               ▲ Register, Redis may         └───── names another ───┤
//	                               │ know it already                                     ▼
//	       a frame after that     a frame acknowledged      seen again                foreign
//	proven ◄───────── acknowledged ◄───────── foreign ◄───────── contested ◄── a call failed
//
//	(held) ── Release ─► releasing ── Redis agrees ─► released ── nothing late can land ─► forgotten
//
// The writer takes the entry of a proven device back: it is next standing, or foreign again.
type state uint8

const (
	forgotten state = iota // in no table any more: results of running calls do not count

	// Held: a socket here has a claim.
	unwritten    // Redis was never asked to write it
	registering  // its registration waits for the writer
	unconfirmed  // to be restored if absent: Redis was asked to write it, or lost it
	standing     // the entry names this instance
	contested    // the entry named another instance, but a call has failed since: see it again first
	foreign      // the entry names another instance
	acknowledged // since then, a frame of the device was acknowledged
	proven       // and another frame arrived: the device really is here

	// Not held.
	releasing // to be removed from Redis
	released  // removed, but a write of unknown fate may still land

	states
)

func (s state) held() bool     { return unwritten <= s && s <= proven }
func (s state) untried() bool  { return s == unwritten || s == registering }
func (s state) disputed() bool { return contested <= s && s <= proven }
func (s state) agreed() bool   { return s == standing || s == released } // Redis agrees

func (s state) afterFailure() state {
	switch {
	case s == standing:
		return unconfirmed
	case s == released:
		return releasing
	case s.disputed():
		return contested
	}
	return s
}

type device struct {
	imei    string
	state   state  // changed only by table.set
	claim   *Claim // the newest one; nil: not held
	dispute *dispute
	late    time.Time // until then a write of unknown fate may land
	checked time.Time // when the entry was last read

	indexed bool
	wrote   uint64 // table.batches when indexed was last set
	scanned uint64 // the last index scan that found it

	in           *list.List // the writer's queue that it waits in, or nil
	at           *list.Element
	shard, place int
}

// A table is this replica's knowledge of its devices. It does no I/O and has no clock; its queues,
// asks and displaced collect work. Registry.mu guards it.
type table struct {
	id            string
	interval, ttl time.Duration
	spare         int
	wake          chan struct{} // one slot: wakes the writer

	devices map[string]*device
	shards  [shards][]*device // each is checked in one go
	made    int

	urgent, checks list.List // devices to write, and to check
	batches        uint64    // started and ended: odd while one is being written
	away           bool
	again          map[*device]struct{} // devices that retry queues again
	talk           chan struct{}        // one slot: asks or heard is not empty
	asks           map[string][]*Claim  // by instance: claims to ask it about
	heard          map[string][]string  // by instance: IMEIs to confirm to it
	displaced      []displacement
	outliveAt      time.Time // when the next heal over dead instances may be tried

	count     [states]int   // devices by state; count[forgotten] is unused
	stand     digest.Digest // of the standing devices
	vouched   vouched
	indexed   int       // devices believed to be in the index
	lateUntil time.Time // the latest late of all devices
	// Until then, each beat searches for what forgotten devices or a late write may leave in Redis.
	// Zero: nothing to search for.
	searchUntil time.Time
	over        bool // nothing will be written any more; see close
}

func newTable(id string, interval, ttl time.Duration) table {
	return table{
		id: id, interval: interval, ttl: ttl, spare: defaultSpare, wake: make(chan struct{}, 1),
		talk:    make(chan struct{}, 1),
		devices: map[string]*device{}, again: map[*device]struct{}{},
		asks: map[string][]*Claim{}, heard: map[string][]string{},
	}
}

func (t *table) held() int { return len(t.devices) - t.left() }

func (t *table) left() int { return t.count[releasing] + t.count[released] }

func (t *table) disputed() int {
	return t.count[contested] + t.count[foreign] + t.count[acknowledged] + t.count[proven]
}

func (t *table) pending() int { return len(t.devices) - t.count[standing] - t.count[released] }

func (t *table) healed() bool {
	return t.count[unconfirmed]+t.count[contested]+t.count[proven] == 0
}

// restored reports that no write is under way, none failed last, and Redis has what is held.
func (t *table) restored() bool { return t.batches%2 == 0 && !t.away && t.healed() }

// idle reports that nothing urgent is queued or being written, and every write was answered.
func (t *table) idle() bool {
	return t.urgent.Len() == 0 && t.batches%2 == 0 && t.count[releasing] == 0
}

func (t *table) register(c *Claim, imei string) (older *Claim) {
	d := t.devices[imei]
	if t.over {
		return t.refuse(c, d)
	}
	if d == nil {
		d = t.add(imei, unwritten)
	}
	older, d.claim, c.d = d.claim, c, d
	if older != nil {
		closeOnce(older.done)
	}
	if d.state != unwritten {
		t.set(d, registering)
	}
	t.enqueue(d, true)
	return older
}

// close forgets devices that are not held, and those held as soon as they are released.
func (t *table) close() {
	t.over = true
	for _, d := range t.devices {
		if d.claim == nil {
			t.forget(d)
		}
	}
}

func (t *table) refuse(c *Claim, d *device) (older *Claim) {
	c.d = &device{}
	close(c.done)
	if d == nil {
		return nil
	}
	older = d.claim
	t.release(older, time.Time{})
	return older
}

func (t *table) release(c *Claim, now time.Time) {
	closeOnce(c.done)
	d := c.d
	if d.claim != c {
		return
	}
	d.claim = nil
	if d.state == unwritten || t.over { // nothing to remove, or nobody to do it
		t.forget(d)
		return
	}
	t.set(d, releasing)
	if t.away && t.left() > t.held()+t.spare {
		t.forget(d)
		t.searchUntil = now.Add(t.ttl)
		return
	}
	t.enqueue(d, true)
}

// frameReceived has a device's entry checked, or completes the proof that the device is here.
func (t *table) frameReceived(c *Claim, now time.Time) {
	d := c.d
	if d.claim != c {
		return
	}
	c.heard = now
	switch {
	case d.state == acknowledged || d.state == proven:
		t.set(d, proven)
		t.enqueue(d, true)
	case !d.state.agreed(): // retry checks it until Redis agrees
	case now.Sub(d.checked) < checkEvery:
		t.again[d] = struct{}{}
	default:
		d.checked = now
		t.enqueue(d, false)
	}
}

func (t *table) frameAcked(c *Claim) {
	if c.d.claim == c && c.d.state == foreign {
		t.set(c.d, acknowledged)
	}
}

func (t *table) add(imei string, s state) *device {
	d := &device{imei: imei, shard: t.made / batchSize % shards}
	t.made++
	d.place = len(t.shards[d.shard])
	t.shards[d.shard] = append(t.shards[d.shard], d)
	t.devices[imei] = d
	t.set(d, s)
	return d
}

// forget drops a device that is not held. The order of its shard, which changes, only saves time.
func (t *table) forget(d *device) {
	t.index(d, false)
	t.set(d, forgotten)
	dequeue(d)
	delete(t.again, d)
	delete(t.devices, d.imei)
	shard := t.shards[d.shard]
	last := len(shard) - 1
	shard[last].place = d.place
	shard[d.place] = shard[last]
	shard[last] = nil
	t.shards[d.shard] = shard[:last]
}

func (t *table) set(d *device, s state) {
	switch {
	case d.state != standing && s == standing:
		t.stand.Add(d.imei)
	case d.state == standing && s != standing:
		t.stand.Remove(d.imei)
	}
	t.count[d.state]--
	t.count[s]++
	d.state = s
	if !s.disputed() {
		d.dispute = nil
	}
	if !s.agreed() {
		t.again[d] = struct{}{}
	}
}

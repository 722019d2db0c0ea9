package registry

import (
	"container/list"
	"time"
)

const (
	// fresh is how long a handshake, or a frame, is enough evidence to overwrite a foreign entry.
	fresh = time.Second
	// checkEvery is the least time between two checks of an entry that frames cause.
	checkEvery = time.Second
	// defaultSpare is how many more devices that are not held than devices that are held are
	// remembered while writes fail.
	defaultSpare = 10_000
	// shards is how many beats it takes to check every claim once. Devices that first registered
	// together are in one shard, and are checked in that order: their entries lie side by side in
	// Redis' memory, which makes the check twice as cheap.
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
// Proof has the writer take the entry back; so a proven device is next standing, or foreign again.
type state uint8

const (
	forgotten state = iota // in no table any more: the result of a call under way does not count

	// Held: a socket here has a claim.
	unwritten    // Redis was never asked to write it
	registering  // its registration waits for the writer
	unconfirmed  // to be put back where nothing stands: Redis was asked, or has lost it
	standing     // the entry names this instance
	contested    // the entry named another instance, a call failed since: it must be seen anew
	foreign      // the entry names another instance
	acknowledged // and after that was seen a frame of the device was acknowledged
	proven       // and a further frame arrived: the device is really here

	// Not held.
	releasing // to be taken out of Redis
	released  // taken out, but a write of unknown fate may still land

	states // how many there are
)

func (s state) held() bool     { return unwritten <= s && s <= proven }
func (s state) untried() bool  { return s == unwritten || s == registering }
func (s state) disputed() bool { return contested <= s && s <= proven }
func (s state) agreed() bool   { return s == standing || s == released } // Redis agrees

// afterFailure is the state after a call failed: nobody knows what stands in Redis.
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

// A device is one IMEI of the table.
type device struct {
	imei    string
	state   state     // changed by table.set only
	claim   *Claim    // the newest one; nil: the device is not held
	dispute *dispute  // with the other instance, while disputed
	late    time.Time // until then a write of unknown fate may land
	checked time.Time // when Redis last said what the entry is

	indexed bool   // believed to be in the index
	wrote   uint64 // table.batches when indexed was last set
	scanned uint64 // the last index scan that found it

	in           *list.List // the queue in which it waits for the writer; nil: none
	at           *list.Element
	shard, place int // in table.shards
}

// A table is all that this replica knows of its devices. It speaks to nobody and is told the time.
// What it wants done waits in its queues, in asks and in displaced. Registry.mu guards it.
type table struct {
	id            string        // this instance
	interval, ttl time.Duration // of heartbeats
	spare         int           // see defaultSpare
	wake          chan struct{} // one slot, to the writer: there is work

	devices map[string]*device
	shards  [shards][]*device // what is checked together
	made    int               // devices, ever

	urgent, checks list.List            // devices to be written; to be checked
	batches        uint64               // begun and ended: odd while one is under way
	away           bool                 // the last batch failed
	again          map[*device]struct{} // what retry has written or checked again
	talk           chan struct{}        // one slot: asks or heard is not empty
	asks           map[string][]*Claim  // other instances, to be asked about these
	heard          map[string][]string  // other instances, to be told that these were heard of
	displaced      []displacement       // for Config.OnDisplaced
	outliveAt      time.Time            // when a heal over dead instances is next tried

	count     [states]int // devices by state; count[forgotten] has no use
	stand     digest      // of the devices whose state is standing
	vouched   vouched
	indexed   int       // devices believed to be in the index
	lateUntil time.Time // the latest of all devices' late
	// Devices were forgotten although they may have left something in Redis, or a write of unknown
	// fate may yet land until then. That is searched for with each beat. Zero: there is nothing.
	searchUntil time.Time
	over        bool // nothing will be written any more: see close
}

func newTable(id string, interval, ttl time.Duration) table {
	return table{
		id: id, interval: interval, ttl: ttl, spare: defaultSpare, wake: make(chan struct{}, 1),
		talk:    make(chan struct{}, 1),
		devices: map[string]*device{}, again: map[*device]struct{}{},
		asks: map[string][]*Claim{}, heard: map[string][]string{},
	}
}

// held is how many devices have a claim.
func (t *table) held() int { return len(t.devices) - t.left() }

// left is how many are remembered without a claim.
func (t *table) left() int { return t.count[releasing] + t.count[released] }

// disputed is how many are held while their entries name other instances.
func (t *table) disputed() int {
	return t.count[contested] + t.count[foreign] + t.count[acknowledged] + t.count[proven]
}

// pending is how many are not known to stand in Redis as they should.
func (t *table) pending() int { return len(t.devices) - t.count[standing] - t.count[released] }

// healed reports that no device waits for an entry to be put back or taken over.
func (t *table) healed() bool {
	return t.count[unconfirmed]+t.count[contested]+t.count[proven] == 0
}

// idle reports that nothing urgent is queued or under way, and every write has been answered.
func (t *table) idle() bool {
	return t.urgent.Len() == 0 && t.batches%2 == 0 && t.count[releasing] == 0
}

// register makes c the newest claim of an IMEI. older is the claim that it supersedes, if any.
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

// close has nothing remembered from now on but what is held until it is released.
func (t *table) close() {
	t.over = true
	for _, d := range t.devices {
		if d.claim == nil {
			t.forget(d)
		}
	}
}

// refuse ends c, and the older claim of its device, as nothing is written any more.
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

// release ends a claim. Only the release of the newest claim has the entry taken out of Redis.
func (t *table) release(c *Claim, now time.Time) {
	closeOnce(c.done)
	d := c.d
	if d.claim != c {
		return
	}
	d.claim = nil
	if d.state == unwritten || t.over { // there is nothing to take out, or nobody to do it
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
	case !d.state.agreed(): // it is checked until Redis agrees
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

// forget drops a device that is not held. The last of its shard takes its place: the order of a
// shard saves time, and nothing relies on it.
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

// set changes a device's state, and keeps the counters true.
func (t *table) set(d *device, s state) {
	switch {
	case d.state != standing && s == standing:
		t.stand.add(d.imei)
	case d.state == standing && s != standing:
		t.stand.remove(d.imei)
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

package registry

import "time"

const (
	// fresh is how long a handshake, or a frame, is evidence enough to overwrite a foreign entry.
	fresh = time.Second
	// checkEvery bounds how often a device's frames have its entry looked at.
	checkEvery = time.Second
	// defaultSpare is how many devices that are not held are remembered besides as many as are
	// held, while writes fail.
	defaultSpare = 10_000
	// shards is how many beats it takes to look at every claim once. What was first registered
	// together is in one of them, and is looked at in that order: it lies side by side in Redis'
	// memory, which makes a look at it twice as cheap.
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
	forgotten state = iota // in no table any more: what is still under way for it does not count

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
func (s state) settled() bool  { return s == standing || s == released } // Redis agrees

// doubted is the state after a call failed: what stands in Redis is not known.
func (s state) doubted() state {
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
	late    time.Time // until then a write of unknown fate may land; zero: there is none
	checked time.Time // when Redis last said what the entry is

	indexed bool   // believed to be in the index
	wrote   uint64 // table.batches when indexed was last set
	scanned uint64 // the index scan that last met it

	in           *queue  // where it waits for the writer; nil: it does not
	prev, next   *device // in that queue
	shard, place int     // in table.shards
}

// A table is all that this replica knows of its devices. It speaks to nobody and is told the time.
// What it wants done waits in its queues, in asks and in displaced. It is guarded by Registry.mu.
type table struct {
	id            string // this instance
	indexKept     bool
	interval, ttl time.Duration // of heartbeats
	spare         int           // see defaultSpare
	wake          chan struct{} // one slot, to the writer: there is work

	devices map[string]*device
	shards  [shards][]*device // what is looked at together
	made    int               // devices, ever

	urgent, checks queue                // to be written; to be looked at
	batches        uint64               // begun and ended: odd while one is under way
	away           bool                 // the last batch failed
	unsettled      map[*device]struct{} // tried again until Redis agrees and nothing late can land
	recheck        map[*device]struct{} // a frame arrived too soon after the last look
	asks           map[string][]*Claim  // other instances, to be asked about these
	displaced      []displacement       // for Config.OnDisplaced

	// What a walk over all devices would find.
	count   [states]int
	vague   int // not settled, and a write of unknown fate was made
	indexed int // believed to be in the index

	lateUntil time.Time // the latest of all devices' late
	// What was forgotten may have left something in Redis, or may leave it there until landing.
	landing  time.Time // zero: nothing may
	searched bool      // it has been looked for since
}

func newTable(id string, indexKept bool, interval, ttl time.Duration) table {
	return table{
		id: id, indexKept: indexKept, interval: interval, ttl: ttl,
		spare: defaultSpare, wake: make(chan struct{}, 1),
		devices: make(map[string]*device), asks: make(map[string][]*Claim),
		unsettled: make(map[*device]struct{}), recheck: make(map[*device]struct{}),
	}
}

// held is how many devices have a claim.
func (t *table) held() int { return len(t.devices) - t.left() }

// left is how many are remembered without one.
func (t *table) left() int { return t.count[releasing] + t.count[released] }

// disputed is how many are held while their entries name other instances.
func (t *table) disputed() int {
	return t.count[contested] + t.count[foreign] + t.count[acknowledged] + t.count[proven]
}

// pending is how many are not known to stand in Redis as they should.
func (t *table) pending() int { return len(t.devices) - t.count[standing] - t.count[released] }

// idle: nothing urgent is queued or under way and every write has been answered.
func (t *table) idle() bool {
	return t.urgent.len() == 0 && t.batches%2 == 0 && t.count[releasing] == 0
}

// register makes c the newest claim of an IMEI. older is the one that it supersedes, if any.
func (t *table) register(c *Claim, imei string) (older *Claim) {
	d := t.devices[imei]
	if d == nil {
		d = t.add(imei, unwritten)
	}
	older, d.claim, c.d = d.claim, c, d
	if older != nil {
		closeOnce(older.over)
	}
	if d.state != unwritten {
		t.set(d, registering)
	}
	t.enqueue(d, true)
	return older
}

// release ends a claim. Only that of the newest has the device taken out of Redis.
func (t *table) release(c *Claim, now time.Time) {
	closeOnce(c.over)
	d := c.d
	if d.claim != c {
		return
	}
	d.claim = nil
	if d.state == unwritten { // there is nothing to take out
		t.forget(d)
		return
	}
	t.set(d, releasing)
	if t.away && t.left() > t.held()+t.spare {
		t.forget(d)
		t.mislay(now)
		return
	}
	t.enqueue(d, true)
}

// frameReceived has a device's entry looked at, or completes the proof that the device is here.
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
	case !t.check(d, now):
		t.recheck[d] = struct{}{}
	}
}

func (t *table) frameAcked(c *Claim) {
	if c.d.claim == c && c.d.state == foreign {
		t.set(c.d, acknowledged)
	}
}

// check has a device's entry looked at, unless that was done within a second.
func (t *table) check(d *device, now time.Time) bool {
	if !d.state.settled() {
		return true // it is looked at until it is
	}
	if now.Sub(d.checked) < checkEvery {
		return false
	}
	d.checked = now
	t.enqueue(d, false)
	return true
}

// add makes a device.
func (t *table) add(imei string, s state) *device {
	d := &device{imei: imei, shard: t.made / batchSize % shards}
	t.made++
	d.place = len(t.shards[d.shard])
	t.shards[d.shard] = append(t.shards[d.shard], d)
	t.devices[imei] = d
	t.set(d, s)
	return d
}

// forget drops a device that is not held. The newest of its shard takes its place: the order is a
// help, and no promise.
func (t *table) forget(d *device) {
	t.index(d, false)
	t.set(d, forgotten)
	d.dequeue()
	delete(t.unsettled, d)
	delete(t.recheck, d)
	delete(t.devices, d.imei)
	shard := t.shards[d.shard]
	last := len(shard) - 1
	shard[last].place = d.place
	shard[d.place] = shard[last]
	shard[last] = nil
	t.shards[d.shard] = shard[:last]
}

// index notes whether a device is in the index.
func (t *table) index(d *device, in bool) {
	d.wrote = t.batches
	if d.indexed != in && t.indexKept {
		if in {
			t.indexed++
		} else {
			t.indexed--
		}
	}
	d.indexed = in
}

// set changes a device's state, and keeps the counters true.
func (t *table) set(d *device, s state) { t.change(d, s, d.late) }

func (t *table) change(d *device, s state, late time.Time) {
	t.counted(d, -1)
	d.state, d.late = s, late
	t.counted(d, 1)
	if !s.disputed() {
		d.dispute = nil
	}
	if !s.settled() {
		t.unsettled[d] = struct{}{}
	}
}

func (t *table) counted(d *device, n int) {
	if d.state == forgotten {
		return
	}
	t.count[d.state] += n
	if !d.state.settled() && !d.late.IsZero() {
		t.vague += n
	}
}

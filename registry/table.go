package registry

import (
	"container/list"
	"time"
)

const (
	// fresh is how long a handshake or frame is sufficient evidence to overwrite a foreign entry.
	fresh = time.Second
	// checkEvery is the shortest time between two checks that frames cause.
	checkEvery = time.Second
	// defaultSpare is how many more unheld than held ids are remembered while writes fail.
	defaultSpare = 10_000
	// shards is the number of beats that check every claim once. Ids registered together share
	// a shard and are checked in that order: their entries lie side by side in Redis' memory, which
	// halves the cost.
	shards = 10
)

// A state is what this replica wants for one id, and what it believes that Redis holds.
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
// The writer takes the entry of a proven id back: it is next standing, or foreign again.
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
	acknowledged // since then, a frame of its client was acknowledged
	proven       // and another frame arrived: the client really is here

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

// A holding is what this replica knows of an id that it holds, or may still have in Redis.
type holding struct {
	id      string
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

// A table is this replica's knowledge of its ids. Its queues, asks and displaced collect work.
// Registry.mu guards it.
type table struct {
	id            string
	interval, ttl time.Duration
	spare         int
	wake          chan struct{} // one slot: wakes the writer

	holdings map[string]*holding
	shards   [shards][]*holding // each is checked in one go
	made     int

	urgent, suspects, checks list.List // ids to write, and to check
	batches                  uint64    // started and ended: odd while one is being written
	away                     bool
	again                    map[*holding]struct{} // ids that retry queues again
	talk                     chan struct{}         // one slot: asks or heard is not empty
	asks                     map[string][]*Claim   // by instance: claims to ask it about
	heard                    map[string][]string   // by instance: ids to confirm to it
	displaced                []displacement
	outliveAt                time.Time // when the next heal over dead instances may be tried

	count     [states]int // by state
	indexed   int         // ids believed to be in the index
	lateUntil time.Time   // the latest late of all ids
	// Until then, each beat searches for what forgotten ids or a late write may leave in Redis.
	// Zero: nothing to search for.
	searchUntil time.Time
	over        bool // nothing will be written any more; see close
}

func newTable(id string, interval, ttl time.Duration) table {
	return table{
		id: id, interval: interval, ttl: ttl, spare: defaultSpare, wake: make(chan struct{}, 1),
		talk:     make(chan struct{}, 1),
		holdings: map[string]*holding{}, again: map[*holding]struct{}{},
		asks: map[string][]*Claim{}, heard: map[string][]string{},
	}
}

func (t *table) held() int { return len(t.holdings) - t.left() }

func (t *table) left() int { return t.count[releasing] + t.count[released] }

func (t *table) disputed() int {
	return t.count[contested] + t.count[foreign] + t.count[acknowledged] + t.count[proven]
}

func (t *table) queued() int { return t.urgent.Len() + t.suspects.Len() + t.checks.Len() }

func (t *table) pending() int { return len(t.holdings) - t.count[standing] - t.count[released] }

func (t *table) healed() bool {
	return t.count[unconfirmed]+t.count[contested]+t.count[proven] == 0
}

// restored reports that no write is under way, none failed last, and Redis has what is held.
func (t *table) restored() bool {
	return t.suspects.Len() == 0 && t.batches%2 == 0 && !t.away && t.healed()
}

// idle reports that nothing urgent is queued or being written, and every write was answered.
func (t *table) idle() bool {
	return t.urgent.Len() == 0 && t.batches%2 == 0 && t.count[releasing] == 0
}

func (t *table) register(c *Claim, id string) (older *Claim) {
	h := t.holdings[id]
	if t.over {
		return t.refuse(c, h)
	}
	if h == nil {
		h = t.add(id, unwritten)
	}
	older, h.claim, c.h = h.claim, c, h
	if older != nil {
		closeOnce(older.done)
	}
	if h.state != unwritten {
		t.set(h, registering)
	}
	t.enqueue(h, true)
	return older
}

// close forgets ids that are not held, and those held as soon as they are released.
func (t *table) close() {
	t.over = true
	for _, h := range t.holdings {
		if h.claim == nil {
			t.forget(h)
		}
	}
}

func (t *table) refuse(c *Claim, h *holding) (older *Claim) {
	c.h = &holding{}
	close(c.done)
	if h == nil {
		return nil
	}
	older = h.claim
	t.release(older, time.Time{})
	return older
}

func (t *table) release(c *Claim, now time.Time) {
	closeOnce(c.done)
	h := c.h
	if h.claim != c {
		return
	}
	h.claim = nil
	if h.state == unwritten || t.over { // nothing to remove, or nobody to do it
		t.forget(h)
		return
	}
	t.set(h, releasing)
	if t.away && t.left() > t.held()+t.spare {
		t.forget(h)
		t.searchUntil = now.Add(t.ttl)
		return
	}
	t.enqueue(h, true)
}

// frameReceived has an id's entry checked, or completes the proof that its client is here.
func (t *table) frameReceived(c *Claim, now time.Time) {
	h := c.h
	if h.claim != c {
		return
	}
	c.heard = now
	switch {
	case h.state == acknowledged || h.state == proven:
		t.set(h, proven)
		t.enqueue(h, true)
	case !h.state.agreed(): // retry checks it until Redis agrees
	case now.Sub(h.checked) < checkEvery:
		t.again[h] = struct{}{}
	default:
		h.checked = now
		t.enqueue(h, false)
	}
}

func (t *table) frameAcked(c *Claim) {
	if c.h.claim == c && c.h.state == foreign {
		t.set(c.h, acknowledged)
	}
}

func (t *table) add(id string, s state) *holding {
	h := &holding{id: id, shard: t.made / batchSize % shards}
	t.made++
	h.place = len(t.shards[h.shard])
	t.shards[h.shard] = append(t.shards[h.shard], h)
	t.holdings[id] = h
	t.set(h, s)
	return h
}

// forget drops an id that is not held. The order of its shard, which changes, only saves time.
func (t *table) forget(h *holding) {
	t.index(h, false)
	t.set(h, forgotten)
	dequeue(h)
	delete(t.again, h)
	delete(t.holdings, h.id)
	shard := t.shards[h.shard]
	last := len(shard) - 1
	shard[last].place = h.place
	shard[h.place] = shard[last]
	shard[last] = nil
	t.shards[h.shard] = shard[:last]
}

func (t *table) set(h *holding, s state) {
	t.count[h.state]--
	t.count[s]++
	h.state = s
	if !s.disputed() {
		h.dispute = nil
	}
	if !s.agreed() {
		t.again[h] = struct{}{}
	}
}

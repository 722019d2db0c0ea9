package registry

import (
	"container/list"
	"time"
)

const (
	// fresh is how long after its handshake a registration overwrites whatever it finds.
	fresh = time.Second
	// checkEvery is the shortest time between two checks that Touch causes.
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
//	                               ▲ Register, Redis may         └── names another ──┬───┘
//	                               │ know it already                                 ▼
//	                                           unconfirmed ◄── absent again ───── foreign
//
//	(held) ── Release, or a newer socket elsewhere ─► releasing
//	releasing ── Redis agrees ─► released ── nothing late can land ─► forgotten
type state uint8

const (
	forgotten state = iota // in no table any more: results of running calls do not count

	// Held: a socket here has a claim.
	unwritten   // Redis was never asked to write it
	registering // its registration waits for the writer
	unconfirmed // to be restored if absent: Redis was asked to write it, or lost it
	standing    // the entry names this instance
	foreign     // the entry names another instance

	// Not held.
	releasing // to be removed from Redis
	released  // removed, but a write of unknown fate may still land

	states
)

func (s state) held() bool    { return unwritten <= s && s <= foreign }
func (s state) untried() bool { return s == unwritten || s == registering }
func (s state) agreed() bool  { return s == standing || s == released } // Redis agrees

func (s state) afterFailure() state {
	switch {
	case s == standing:
		return unconfirmed
	case s == released:
		return releasing
	}
	return s
}

// A holding is what this replica knows of an id that it holds, or may still have in Redis.
type holding struct {
	id      string
	state   state     // changed only by table.set
	claim   *Claim    // the newest one; nil: not held
	dispute *dispute  // if foreign
	late    time.Time // until then a write of unknown fate may land
	checked time.Time // when the entry was last read

	indexed bool
	wrote   uint64 // table.batches when indexed was last set
	scanned uint64 // the last index scan that found it

	in           *list.List // the writer's queue that it waits in, or nil
	at           *list.Element
	shard, place int
}

// A table is this replica's knowledge of its ids. Its queues, asks and heard collect work.
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
	lost                     map[*holding]string   // by id: the instance to tell that it is out
	outliveAt                time.Time             // when the next heal over dead instances may be tried

	clock     clock
	count     [states]int // by state
	indexed   int         // ids believed to be in the index
	lateUntil time.Time   // the latest late of all ids
	// Until then, each beat searches for what forgotten ids or a late write may leave in Redis.
	// Zero: nothing to search for.
	searchUntil time.Time
	over        error // why nothing will be written any more; see close
}

func newTable(id string, interval, ttl time.Duration) table {
	return table{
		id: id, interval: interval, ttl: ttl, spare: defaultSpare, wake: make(chan struct{}, 1),
		talk:     make(chan struct{}, 1),
		holdings: map[string]*holding{}, again: map[*holding]struct{}{},
		asks: map[string][]*Claim{}, heard: map[string][]string{}, lost: map[*holding]string{},
	}
}

func (t *table) held() int { return len(t.holdings) - t.left() }

func (t *table) left() int { return t.count[releasing] + t.count[released] }

func (t *table) queued() int { return t.urgent.Len() + t.suspects.Len() + t.checks.Len() }

func (t *table) pending() int { return len(t.holdings) - t.count[standing] - t.count[released] }

// restored reports that no write is under way, none failed last, and Redis has what is held.
func (t *table) restored() bool {
	return t.suspects.Len() == 0 && t.batches%2 == 0 && !t.away && t.count[unconfirmed] == 0
}

// idle reports that nothing urgent is queued or being written, and every write was answered.
func (t *table) idle() bool {
	return t.urgent.Len() == 0 && t.batches%2 == 0 && t.count[releasing] == 0
}

func (t *table) register(c *Claim, id string) {
	if t.over != nil {
		c.end(t.over)
		return
	}
	h := t.holdings[id]
	if h == nil {
		h = t.add(id, unwritten)
	}
	if h.claim != nil {
		h.claim.end(MovedError{t.id})
	}
	h.claim, c.h = c, h
	delete(t.lost, h)
	if h.state != unwritten {
		t.set(h, registering)
	}
	t.enqueue(h, true)
}

// close ends every claim, and forgets ids that are not held, and those held as soon as they are
// released.
func (t *table) close(why error) {
	t.over = why
	for _, h := range t.holdings {
		if h.claim == nil {
			t.forget(h)
		} else {
			h.claim.end(why)
		}
	}
}

func (t *table) release(c *Claim, now time.Time) {
	h := c.h
	if h.claim != c {
		return
	}
	h.claim = nil
	if h.state == unwritten || t.over != nil { // nothing to remove, or nobody to do it
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

// lose ends a claim that another instance's socket has won against.
func (t *table) lose(c *Claim, why error, now time.Time) {
	t.release(c, now)
	c.end(why)
}

func (t *table) touch(c *Claim, now time.Time) {
	h := c.h
	switch {
	case h.claim != c || h.state != standing: // retry checks it until Redis agrees
	case now.Sub(h.checked) < checkEvery:
		t.again[h] = struct{}{}
	default:
		h.checked = now
		t.enqueue(h, false)
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
	delete(t.lost, h)
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
	if s != foreign {
		h.dispute = nil
	}
	if !s.agreed() {
		t.again[h] = struct{}{}
	}
}

package workforce

import (
	"maps"
	"sync"

	"github.com/rollcall-redis/rollcall/internal/teltonika/simulate"
)

// Counts is what a workforce has done so far, and its present state.
type Counts struct {
	Mitras                int
	Online, Resting, Dead int // now, as the apps know; the rest are between states

	Heartbeats  int
	InPostgres  int // heartbeats for which Redis alone could not answer
	NotOnline   int // heartbeats with that answer
	Deactivated int // requests with that answer
	WentOnline  int
	WentOffline int

	Accepted, Rerouted, Ended int // sessions
	Running                   int // sessions that mitras have, as the dispatcher knows
	Full                      int // refused accepts and reroutes
	Unserved                  int // sessions for which no mitra was found

	Polls   int
	Answers map[string]int // to customers and the dispatcher, by Availability-Source

	Failed      int              // requests without an answer, or with a failure
	Beat        simulate.Latency // of heartbeats
	LastFailure error
}

type counter struct {
	mu  sync.Mutex
	now Counts
}

func (c *counter) count(add func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.now)
}

func (c *counter) failed(err error) {
	c.count(func(c *Counts) { c.Failed++; c.LastFailure = err })
}

func (c *counter) answered(a answer) {
	c.count(func(c *Counts) { c.Answers[a.source]++ })
}

// Counts are as of now.
func (f *Force) Counts() Counts {
	f.mu.Lock()
	c := f.now
	c.Answers = maps.Clone(c.Answers)
	f.mu.Unlock()
	for i := range f.apps {
		a := &f.apps[i]
		a.book.mu.Lock()
		switch {
		case a.state == Dead:
			c.Dead++
		case a.state == Resting && !a.online:
			c.Resting++
		case a.online:
			c.Online++
		}
		a.book.mu.Unlock()
	}
	f.dispatcher.mu.Lock()
	defer f.dispatcher.mu.Unlock()
	for _, s := range f.dispatcher.sessions {
		if s.busy() {
			c.Running++
		}
	}
	return c
}

// busy reports whether a session takes one of its mitra's places.
func (s Session) busy() bool { return s.Status == "active" || s.Status == "pending_payment" }

package workforce

import (
	"sync"
	"time"
)

// State is what an app is doing.
type State int

// States of an app.
const (
	Starting State = iota
	Up             // online or about to be, and sends heartbeats
	Resting        // offline, or about to be
	Dead
)

// span is when the server may have done something; open spans have not ended.
type span struct {
	from, to time.Time
	open     bool
}

func (s span) has(at time.Time) bool { return !at.Before(s.from) && (s.open || !at.After(s.to)) }

// sign is an acknowledged sign of life, in µs.
type sign struct{ sent, got int64 }

type book struct {
	mu     sync.Mutex
	state  State
	online bool // as last acknowledged
	sure   bool // no open request changes that
	signs  []sign
	offs   []span // requests to go offline, each possibly carried out
}

func (b *book) turns(s State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = s
}

func (b *book) asks(online bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sure = false
	if !online {
		b.offs = append(b.offs, span{from: time.Now(), open: true})
	}
}

func (b *book) went(online bool, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.online, b.sure = online, true
	if online {
		b.sign(a)
	} else if last := len(b.offs) - 1; last >= 0 {
		b.offs[last].to, b.offs[last].open = a.got, false
	}
}

func (b *book) beat(a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sign(a)
}

func (b *book) sign(a answer) {
	b.signs = append(b.signs, sign{a.sent.UnixMicro(), a.got.UnixMicro()})
}

func (b *book) told() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.online, b.sure = false, false
}

// expected returns whether the app has to be online once everything is at rest.
func (b *book) expected() (online, sure bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case Dead:
		return false, true // as soon as its silence is noticed
	case Starting:
		return false, false
	}
	return b.online, b.sure && b.online == (b.state == Up)
}

func (b *book) settled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sure
}

// wasAsked reports whether the app's own request may have set it offline at that time.
func (b *book) wasAsked(at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.offs {
		if s.has(at) {
			return true
		}
	}
	return false
}

// silentFor returns how long before at the last sign of life was sent that had been acknowledged by
// then; false if none.
func (b *book) silentFor(at time.Time) (silence time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	us := at.UnixMicro()
	for i := len(b.signs) - 1; i >= 0; i-- {
		if b.signs[i].got <= us {
			return time.Duration(us-b.signs[i].sent) * time.Microsecond, true
		}
	}
	return 0, false
}

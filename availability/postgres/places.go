package postgres

import (
	"context"
	"sync"
)

// A place bounds how many writers have a connection at once for the same session or mitra, so that
// a locked row leaves connections for everybody else's.
type place struct {
	what string
	id   [16]byte
	most int
}

type seats struct {
	taken chan struct{}
	users int // hold a seat or wait for one
}

type places struct {
	mu sync.Mutex
	of map[place]*seats
}

// take returns once it has a seat in each place, or with ctx's error. To prevent deadlocks, places
// of one kind of what always precede those of another, with at most one per kind.
func (p *places) take(ctx context.Context, those []place) (leave func(), err error) {
	var left []func()
	leave = func() {
		for _, f := range left {
			f()
		}
	}
	for _, one := range those {
		f, err := p.takeOne(ctx, one)
		if err != nil {
			leave()
			return nil, err
		}
		left = append(left, f)
	}
	return leave, nil
}

func (p *places) takeOne(ctx context.Context, one place) (leave func(), err error) {
	p.mu.Lock()
	s := p.of[one]
	if s == nil {
		s = &seats{taken: make(chan struct{}, one.most)}
		p.of[one] = s
	}
	s.users++
	p.mu.Unlock()
	gone := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(p.of, one)
		}
	}
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, context.Cause(ctx)
	}
}

// ofSession leaves half of the connections free, whatever locks the mitra's rows.
func (s *Source) ofSession(session [16]byte, mitra ...[16]byte) []place {
	those := []place{{"session", session, 1}}
	for _, id := range mitra {
		those = append(those, place{"mitra of a session", id, s.half})
	}
	return those
}

func ofMitra(mitra [16]byte) []place { return []place{{"mitra", mitra, 1}} }

package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Condition reports whether a fleet is as asked for, with a sentence.
type Condition func(ctx context.Context) (bool, string, error)

// Led reports whether a replica leads each partition and has begun its term.
func (r *Reader) Led(ctx context.Context) (bool, string, error) {
	s, err := r.Status(ctx)
	if err != nil {
		return false, "", err
	}
	for _, f := range s.findings("leader", "writes", "memory") {
		if f.stops {
			return s.except(false, f.Sentence)
		}
	}
	if len(s.parts) > 1 || len(s.Unread) > 0 {
		return s.except(true, fmt.Sprintf("each of %d partitions has a leader", len(s.parts)))
	}
	if s.Leader == nil {
		return false, "nobody leads", nil
	}
	return true, s.Leader.Instance + " leads", nil
}

// except answers no while a part of Redis does not answer.
func (s *Status) except(yes bool, sentence string) (bool, string, error) {
	if len(s.Unread) == 0 {
		return yes, sentence, nil
	}
	away := strings.TrimPrefix((&unreadError{Servers: s.Unread}).Error(), "inspect: ")
	return false, away + "; of the rest: " + sentence, nil
}

// verify notes what cannot be read since the status was.
func (s *Status) verify(ctx context.Context, r *Reader, also ...string) (Verification, error) {
	v, err := r.Verify(ctx, also...)
	var away *unreadError
	if errors.As(err, &away) {
		s.Unread, err = away.Servers, nil
	}
	return v, err
}

// Converging returns whether the registry is true and will stay so: a replica leads, nothing stops
// sweeping, the owner of each entry lives and every living instance has beaten since the first
// look, every indexed device has its entry, and there are atLeast entries, since a fleet that lost
// most of them has converged too. Each look reads the whole registry.
func (r *Reader) Converging(atLeast int) Condition {
	w := r.Watch()
	var began time.Time
	return func(ctx context.Context) (bool, string, error) {
		s, err := w.Status(ctx)
		if err != nil {
			return false, "", err
		}
		if began.IsZero() {
			began = s.Now
		}
		if f := s.Stopped(); f != nil {
			return s.except(false, f.Sentence)
		}
		for _, f := range s.findings("heartbeats", "doubts", "settings") {
			if f.Level != OK {
				return s.except(false, f.Sentence)
			}
		}
		for _, in := range s.Instances {
			if in.Alive && !in.LastBeat.IsZero() && in.LastBeat.Before(began) {
				return s.except(false, "whether "+in.ID+" still lives is known with its next heartbeat")
			}
		}
		v, err := s.verify(ctx, r)
		if err != nil {
			return false, "", err
		}
		if v.Dead > 0 {
			return s.except(false, fmt.Sprintf("%d of %d entries name a dead owner", v.Dead, v.Entries))
		}
		if v.NotEntries > 0 {
			return s.except(false, one(int64(v.NotEntries), "device of an index has", "devices of an index have")+
				" no entry that names its owner: owners restore what was lost")
		}
		sentence := fmt.Sprintf("each of %s names a living owner", one(int64(v.Entries), "entry", "entries"))
		if s.Partitions != nil {
			sentence += fmt.Sprintf(", in each of %d partitions", len(s.parts))
		}
		if s.gone > 0 {
			sentence += fmt.Sprintf("; evicted within the last hour: %d", s.gone)
		}
		if v.Entries < atLeast {
			return false, fmt.Sprintf("%s, %d are expected; %s", one(int64(v.Entries), "entry", "entries"), atLeast, sentence), nil
		}
		return s.except(true, sentence)
	}
}

// Gone reports whether nothing of an instance is left: no heartbeat, roster entry, index or
// registry entry. It scans the registry only if all else is gone.
func (r *Reader) Gone(ctx context.Context, id string) (bool, string, error) {
	s, err := r.Status(ctx)
	if err != nil {
		return false, "", err
	}
	if i := slices.IndexFunc(s.Instances, func(in Instance) bool { return in.ID == id }); i >= 0 {
		in := s.Instances[i]
		switch {
		case in.Alive || len(in.SilentIn) > 0:
			return s.except(false, id+" lives: its heartbeat exists")
		case in.Devices != 0:
			return s.except(false, fmt.Sprintf("%s is dead, and %s still name it", id, or(strings.TrimPrefix(
				one(in.Devices, "entry", "entries"), "-1 entries"), "entries")))
		}
		return s.except(false, id+" is dead, and not swept yet")
	}
	v, err := s.verify(ctx, r, id)
	if err != nil {
		return false, "", err
	}
	if slices.ContainsFunc(v.Owners, func(o OwnerCount) bool { return o.Owner == id && o.Entries+o.NotEntries > 0 }) {
		return s.except(false, fmt.Sprintf("%s is dead, and entries or an index of it are left", id))
	}
	return s.except(true, "nothing is left of "+id)
}

// Owner reports whether an instance lives in any partition, and whether anything of it is known,
// which it is taken to be if the registry is too large to count.
func (r *Reader) Owner(ctx context.Context, id string) (known, alive bool, err error) {
	w := r.Watch()
	s, err := w.Status(ctx)
	for _, in := range s.Instances {
		if in.ID == id {
			return true, in.Alive || len(in.SilentIn) > 0, err
		}
	}
	return err == nil && slices.ContainsFunc(w.looks, func(l look) bool { return !l.whole }), false, err
}

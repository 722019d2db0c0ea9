package availability

import (
	"context"
	"slices"
	"time"
)

func (f *fake) AutoOffline(_ context.Context, those []Versioned, cutoff time.Time, confirm func() error,
) ([]State, []string, error) {
	var ids, flipped []string
	for _, c := range those {
		ids = append(ids, c.ID)
	}
	states, err := f.tx("AutoOffline", ids, nil, func(rows map[string]State) ([]State, error) {
		var changed []State
		for _, c := range those {
			s, ok := rows[c.ID]
			if slices.Contains(f.busy, c.ID) {
				continue
			}
			if !ok || !s.Online || s.Version != c.Version || !s.Seen.Before(cutoff) {
				continue
			}
			s.Online, s.Judged = false, f.now().Add(-time.Second)
			changed, flipped = append(changed, s), append(flipped, c.ID)
		}
		return changed, nil
	}, func() error {
		if err := confirm(); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range those {
			if slices.Contains(flipped, c.ID) {
				f.flips = append(f.flips, flip{c, time.Now()})
			}
		}
		f.mu.Unlock()
		f.confirmed.get()()
		f.mu.Lock()
		return nil
	})
	return states, flipped, err
}

func (f *fake) Revive(_ context.Context, ids []string) ([]State, error) {
	return f.tx("Revive", ids, nil, func(rows map[string]State) (changed []State, _ error) {
		for _, s := range rows {
			if !s.Judged.IsZero() {
				s.Online, s.Judged = true, time.Time{}
				changed = append(changed, s)
			}
		}
		return changed, nil
	}, nil)
}

func (f *fake) Beat(_ context.Context, id string) (State, error) {
	return one(f.tx("Beat", []string{id}, nil, func(rows map[string]State) ([]State, error) {
		s, ok := rows[id]
		switch {
		case !ok:
			return nil, ErrNotFound
		case !s.Active:
			return nil, ErrInactive
		case !s.Online:
			return nil, ErrNotOnline
		}
		s.Seen = f.now()
		return []State{s}, nil
	}, nil))
}

func (f *fake) MirrorHeartbeats(_ context.Context, those []Heartbeat) (n int, err error) {
	if err := f.begin("MirrorHeartbeats"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range those {
		r, ok := f.rows[h.ID]
		if lock := f.locks[h.ID]; lock != nil { // whoever is being changed is left for the next time
			if !lock.TryLock() {
				continue
			}
			defer lock.Unlock()
		}
		if ok && r.Seen.Before(h.At) {
			r.Seen = h.At
			f.rows[h.ID] = r
			n++
		}
	}
	return n, nil
}

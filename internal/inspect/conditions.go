package inspect

import (
	"cmp"
	"context"
	"fmt"
)

// Led tells whether a replica leads and has begun its term, in a sentence too.
func (r *Reader) Led(ctx context.Context) (bool, string, error) {
	now, err := r.now(ctx)
	if err != nil {
		return false, "", err
	}
	l, err := r.leader(ctx, now)
	switch {
	case err != nil:
		return false, "", err
	case l == nil:
		return false, "nobody leads", nil
	case l.Epoch == 0:
		return false, l.Instance + " is about to lead", nil
	}
	return true, l.Instance + " leads", nil
}

// Converged tells whether the registry is true and kept so: a replica leads, nothing holds deletes,
// and the owner of each entry lives. It reads the whole registry.
func (r *Reader) Converged(ctx context.Context) (bool, string, error) {
	if led, sentence, err := r.Led(ctx); err != nil || !led {
		return false, sentence, err
	}
	now, err := r.now(ctx)
	if err != nil {
		return false, "", err
	}
	w, err := r.witness(ctx)
	if err != nil {
		return false, "", err
	}
	h, err := r.hold(ctx, w, now)
	switch {
	case err != nil:
		return false, "", err
	case h != nil:
		return false, h.Reason + ": " + h.Sentence, nil
	case !w.heard(now):
		return false, "nobody listens to Redis", nil
	}
	v, err := r.Verify(ctx)
	switch {
	case err != nil:
		return false, "", err
	case v.Dead > 0:
		return false, fmt.Sprintf("%d of %d entries name a dead owner", v.Dead, v.Entries), nil
	}
	return true, fmt.Sprintf("each of %d entries names a living owner", v.Entries), nil
}

// Gone tells whether nothing is left of an instance: neither heartbeat, roster entry nor index, nor
// an entry of the registry, which is read only if all else is gone.
func (r *Reader) Gone(ctx context.Context, id string) (bool, string, error) {
	p := r.client.Pipeline()
	beat := p.Exists(ctx, r.keys.Heartbeat(id))
	onRoster := p.SMIsMember(ctx, r.keys.Roster(), id)
	index := p.SCard(ctx, r.keys.Devices(id))
	if err := exec(ctx, p, "the owner's keys"); err != nil {
		return false, "", err
	}
	if err := cmp.Or(onRoster.Err(), index.Err()); err != nil { // what cannot be read is perhaps there
		return false, "", fmt.Errorf("inspect: read the owner's keys: %w", err)
	}
	switch {
	case beat.Val() > 0:
		return false, id + " lives: its heartbeat exists", nil
	case is(onRoster) || index.Val() > 0:
		return false, fmt.Sprintf("%s is dead, and not swept yet: its index has %d", id, index.Val()), nil
	}
	left := 0
	err := pages(func(cursor uint64) (uint64, error) {
		page, next, err := r.client.HScan(ctx, r.keys.Registry(), cursor, "", pageSize).Result()
		for i := 1; i < len(page); i += 2 {
			if page[i] == id {
				left++
			}
		}
		return next, err
	})
	switch {
	case err != nil:
		return false, "", fmt.Errorf("inspect: scan the registry: %w", err)
	case left > 0:
		return false, fmt.Sprintf("%s is dead, and %d entries still name it", id, left), nil
	}
	return true, "nothing is left of " + id, nil
}

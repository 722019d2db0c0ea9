package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/guard"
)

// Led reports whether a replica leads each partition and has begun its term, with a sentence.
func (r *Reader) Led(ctx context.Context) (bool, string, error) {
	return r.inEach(ctx, (*Reader).led, "each of %d partitions has a leader")
}

type answer struct {
	yes      bool
	sentence string
}

func (r *Reader) inEach(
	ctx context.Context, ask func(*Reader, context.Context) (bool, string, error), all string,
) (bool, string, error) {
	parts, to, err := r.reachParts(ctx)
	if err != nil {
		return false, "", err
	}
	answers, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (a answer, err error) {
		a.yes, a.sentence, err = ask(part, ctx)
		return a, err
	})
	away := to.err()
	if err != nil && away == nil {
		return false, "", err
	}
	if len(parts) == 1 {
		return answers[0].yes, answers[0].sentence, nil
	}
	yes, sentence := true, fmt.Sprintf(all, len(to.parts))
	for i, a := range answers {
		if !a.yes {
			yes, sentence = false, fmt.Sprintf("partition %d: %s", to.parts[i].number, a.sentence)
			break
		}
	}
	if err != nil { // the fleet's own keys are away, perhaps
		sentence = "nothing is known (" + cause(err) + ")"
	}
	if away != nil {
		yes, sentence = false, strings.TrimPrefix(away.Error(), "inspect: ")+"; of the rest: "+sentence
	}
	return yes, sentence, nil
}

func (r *Reader) led(ctx context.Context) (bool, string, error) {
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
	case !l.begun() && l.silent:
		return false, fmt.Sprintf("nobody leads: %s holds %s, which is no living instance",
			r.keys.Lease(), l.Instance), nil
	case !l.begun():
		return false, l.Instance + " is about to lead", nil
	}
	return true, l.Instance + " leads", nil
}

// Converged reports whether the registry is true and will stay so: a replica leads, nothing holds
// deletes, the owner of each entry lives, and there are atLeast entries, since a fleet that lost
// most of them has converged too. It reads the whole registry.
func (r *Reader) Converged(ctx context.Context, atLeast int) (bool, string, error) {
	yes, sentence, err := r.inEach(ctx, (*Reader).converged,
		"in each of %d partitions each entry names a living owner")
	if err != nil || !yes {
		return yes, sentence, err
	}
	parts, err := r.parts(ctx)
	if err != nil {
		return false, "", err
	}
	entries, err := each(ctx, parts, func(ctx context.Context, part *Reader) (int64, error) {
		return part.client.HLen(ctx, part.keys.Registry()).Result()
	})
	if err != nil {
		return false, "", fmt.Errorf("inspect: size of the registry: %w", err)
	}
	all := int64(0)
	for _, n := range entries {
		all += n
	}
	evicted, err := r.evictedLately(ctx, parts)
	if err != nil {
		return false, "", err
	}
	if evicted > 0 {
		sentence += fmt.Sprintf("; evicted within the last hour: %d", evicted)
	}
	if all < int64(atLeast) {
		return false, fmt.Sprintf("%d entries, %d are expected; %s", all, atLeast, sentence), nil
	}
	return true, sentence, nil
}

func (r *Reader) evictedLately(ctx context.Context, parts []*Reader) (n int, err error) {
	now, err := parts[0].now(ctx)
	if err != nil {
		return 0, err
	}
	found, err := each(ctx, parts, func(ctx context.Context, part *Reader) ([]Record, error) {
		return part.readBack(ctx, now, Hour, max(1, logMost/len(parts)))
	})
	for _, rec := range slices.Concat(found...) {
		if now.Sub(rec.At) <= Hour && (rec.Sweep == "owners" || rec.Sweep == "registry") {
			n += rec.Count
		}
	}
	return n, err
}

func (r *Reader) converged(ctx context.Context) (bool, string, error) {
	if led, sentence, err := r.led(ctx); err != nil || !led {
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
	v, err := r.verify(ctx)
	switch {
	case err != nil:
		return false, "", err
	case v.Dead > 0:
		return false, fmt.Sprintf("%d of %d entries name a dead owner", v.Dead, v.Entries), nil
	}
	return true, fmt.Sprintf("each of %d entries names a living owner", v.Entries), nil
}

// Gone reports whether nothing of an instance is left: no heartbeat, roster entry, index or
// registry entry. It scans the registry only if all else is gone.
func (r *Reader) Gone(ctx context.Context, id string) (bool, string, error) {
	return r.inEach(ctx, func(part *Reader, ctx context.Context) (bool, string, error) {
		return part.gone(ctx, id)
	}, "nothing is left of "+strings.ReplaceAll(id, "%", "%%")+" in %d partitions")
}

func (r *Reader) gone(ctx context.Context, id string) (bool, string, error) {
	p := r.client.Pipeline()
	beat := p.Exists(ctx, r.keys.Heartbeat(id))
	onRoster := p.SMIsMember(ctx, r.keys.Roster(), id)
	index := p.SCard(ctx, r.keys.Devices(id))
	if err := exec(ctx, p, "the owner's keys"); err != nil {
		return false, "", err
	}
	if err := cmp.Or(onRoster.Err(), index.Err()); err != nil { // unreadable keys may exist
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
		page, err := guard.HScan(ctx, r.client, r.keys.Registry(), cursor, pageSize)
		for i := 1; i < len(page.Items); i += 2 {
			if page.Items[i] == id {
				left++
			}
		}
		return page.Next, err
	})
	switch {
	case err != nil:
		return false, "", fmt.Errorf("inspect: scan the registry: %w", err)
	case left > 0:
		return false, fmt.Sprintf("%s is dead, and %d entries still name it", id, left), nil
	}
	return true, "nothing is left of " + id, nil
}

// Owner reports whether an instance lives in any partition, and whether anything of it is known,
// which it is taken to be if the registry is too large to count.
func (r *Reader) Owner(ctx context.Context, id string) (known, alive bool, err error) {
	parts, err := r.parts(ctx)
	if err != nil {
		return false, false, err
	}
	type owner struct{ known, alive bool }
	found, err := each(ctx, parts, func(ctx context.Context, part *Reader) (o owner, err error) {
		o.known, o.alive, err = part.owner(ctx, id)
		return o, err
	})
	for _, o := range found {
		known, alive = known || o.known, alive || o.alive
	}
	return known, alive, err
}

func (r *Reader) owner(ctx context.Context, id string) (known, alive bool, err error) {
	p := r.client.Pipeline()
	beat := p.Exists(ctx, r.keys.Heartbeat(id))
	onRoster := p.SMIsMember(ctx, r.keys.Roster(), id)
	index := p.Exists(ctx, r.keys.Devices(id))
	if err := exec(ctx, p, "the owner's keys"); err != nil {
		return false, false, err
	}
	if alive = beat.Val() > 0; alive || is(onRoster) || index.Val() > 0 {
		return true, alive, nil
	}
	s, err := r.sample(ctx, countUpTo)
	return !s.whole || s.counted[id] > 0, false, err
}

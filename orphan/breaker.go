package orphan

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Fields of the rule's state.
const (
	heldUntil  = "held_until"  // end of the breaker's hold (ms)
	unmarked   = "unmarked"    // condemned candidates without a mark in the last full pass
	heardSince = "heard_since" // start of the witness's listening (ms) in the last pass
)

// breaker records the hold before the marks, which a later pass no longer counts as new.
func (x *pass) breaker(ctx context.Context, full bool) (held, err error) {
	if !full || x.DryRun() { // only full passes find new ones
		return nil, nil
	}
	// Candidates that the last full pass could not mark are not new. Only their number is known.
	before, _ := strconv.Atoi(x.notes.state[unmarked])
	newly := max(0, x.newly-before)
	state := map[string]string{}
	if n := x.r.Kept[noMark]; n != before {
		state[unmarked] = strconv.Itoa(n)
	}
	// Neither known orphans nor candidates that no sign of life decides about could have been newly
	// condemned.
	of := x.r.Kept[alive] + newly
	if of >= breakerLeast && newly > of/2 {
		at, err := now(ctx, x.Pass, x.home)
		if err != nil {
			return nil, err
		}
		wait := x.holds()
		state[heldUntil] = strconv.FormatInt(at.Add(wait).UnixMilli(), 10)
		x.wake(wait)
		// The first pass after the hold must look at marks: new candidates would hold the rule again.
		if later := time.Now().Add(wait + x.set.apart(x.Grace)); later.After(x.nextFull) {
			x.nextFull = later
		}
		held = x.hold(heldMassFailure, fmt.Sprintf("%d of %d candidates were newly condemned", newly, of))
	}
	return held, note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), state, nil)
}

// notOfLater backdates timestamps left in the future when the server's clock was set back; they
// would count until it catches up. It returns the end of the breaker's hold.
func (x *pass) notOfLater(ctx context.Context, at time.Time) (until time.Time, err error) {
	set, later := map[string]string{}, map[string]string{}
	// Backdate marks from before a loss to before valid, so that they never count, and the breaker
	// does not take their candidates for new.
	lost := func(at time.Time) {
		for name, m := range x.notes.marks {
			if !m.at.Before(at) {
				m.at = at.Add(-time.Millisecond)
				x.notes.marks[name], later[name] = m, m.text()
			}
		}
	}
	if x.notes.valid.After(at) {
		x.notes.valid = at
		set[lostAt] = strconv.FormatInt(at.UnixMilli(), 10)
		lost(at)
	}
	// No pass begins during a hold, so all marks were made before this one.
	if since := strconv.FormatInt(x.notes.since.UnixMilli(), 10); x.notes.state[heardSince] != since {
		set[heardSince] = since
		lost(x.notes.since)
	}
	ms, _ := strconv.ParseInt(x.notes.state[heldUntil], 10, 64)
	until = time.UnixMilli(ms)
	if most := at.Add(x.holds()); until.After(most) {
		until = most
		set[heldUntil] = strconv.FormatInt(until.UnixMilli(), 10)
	}
	if x.DryRun() {
		return until, nil
	}
	if err := note(ctx, x.Pass, marksKey(x.Layout(), x.r.Rule), later, nil); err != nil {
		return until, err
	}
	return until, note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), set, nil)
}

func (x *pass) holds() time.Duration { return max(x.Grace, x.set.holdFor) }

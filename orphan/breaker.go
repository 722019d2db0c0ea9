package orphan

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// heldUntil is the field of the state that says until when the breaker holds the rule (ms).
const heldUntil = "held_until"

// unmarked is the field of the state that says how many condemned candidates the last full pass had
// no mark for.
const unmarked = "unmarked"

// breaker holds the rule if more than half of what could be condemned newly was. This is noted
// before the marks are: they are not new to a later pass.
func (x *pass) breaker(ctx context.Context, full bool) (held, err error) {
	if !full || x.DryRun() { // between full passes nothing is new
		return nil, nil
	}
	// Candidates that the last full pass had no mark for are not new, either. Which these were is not
	// known, only how many.
	before, _ := strconv.Atoi(x.notes.state[unmarked])
	newly := max(0, x.newly-before)
	state := map[string]string{}
	if n := x.r.Kept[noMark]; n != before {
		state[unmarked] = strconv.Itoa(n)
	}
	// Nothing else could have been condemned newly: neither what was condemned before, nor what no
	// sign of life decides about.
	of := x.r.Kept[alive] + newly
	if of >= breakerLeast && newly > of/2 {
		at, err := now(ctx, x.Pass, x.home)
		if err != nil {
			return nil, err
		}
		wait := x.holds()
		state[heldUntil] = strconv.FormatInt(at.Add(wait).UnixMilli(), 10)
		x.wake(wait)
		// The first pass behind the hold looks at marks: what is new by then would hold the rule again.
		if later := time.Now().Add(wait + x.set.apart(x.Grace)); later.After(x.nextFull) {
			x.nextFull = later
		}
		held = x.hold(heldMassFailure, fmt.Sprintf("%d of %d candidates were newly condemned", newly, of))
	}
	return held, note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), state, nil)
}

// heardSince is the field of the state that says since when the witness had listened when the last
// pass began (ms).
const heardSince = "heard_since"

// notOfLater shortens what was noted before the server's clock went back, which else counts until
// the clock has caught up. It returns until when the breaker holds.
func (x *pass) notOfLater(ctx context.Context, at time.Time) (until time.Time, err error) {
	set, later := map[string]string{}, map[string]string{}
	// A mark from before a loss would count if by its time it is of later. It gets a time before what
	// is valid. So it never counts, and the breaker does not take its candidate for new.
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
	// No pass begins during a hold: all marks that are there now were made before this one.
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

// holds is for how long the breaker holds.
func (x *pass) holds() time.Duration { return max(x.Grace, x.set.holdFor) }

package orphan

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Fields of a rule's state: when a pass last looked at all marked candidates, and at all
// candidates, as "<server's ms> <meaning of the rule>". A pass that breaks off deletes them.
const (
	lookedMarked = "looked"
	lookedAll    = "looked_all"
)

const never = time.Duration(math.MaxInt64)

const (
	// a look counts at least this long at the delete: the calls in between take time
	leastEvidence = 5 * time.Second
	// a larger difference between two clocks is a step of one
	clockStep = 2 * time.Second
	// the janitor leaves at least 1/50 of an interval between two passes
	shortest = 50
)

func (s *Set) apart(grace time.Duration) time.Duration {
	return min(s.c.Interval, max(grace, rules.LeastGrace, s.c.Interval/shortest))
}

func longest(apart time.Duration) time.Duration { return apart + max(apart, time.Second) }

func (x *pass) unwatched(f *finding, m mark) bool {
	apart := x.set.apart(x.graceOf(f))
	if f.alone {
		apart = x.set.c.Interval
	}
	return m.at.Before(x.began) && x.since(f) > longest(apart)
}

// since is how long ago a look at the candidate ended. Only full passes meet one without its
// parent.
func (x *pass) since(f *finding) time.Duration {
	if f.alone {
		return x.sinceAll
	}
	return x.sinceMarked
}

// readLooks reads how long ago the last looks ended. A look does not count if the rule meant
// something else, if it ends in the future, or if a later look failed.
func (x *pass) readLooks(at time.Time) {
	since := func(field string) time.Duration {
		text, meaning, _ := strings.Cut(x.notes.state[field], " ")
		ms, err := strconv.ParseInt(text, 10, 64)
		if looked := time.UnixMilli(ms); err == nil && meaning == x.meaning && !looked.After(at) {
			return at.Sub(looked)
		}
		return never
	}
	x.sinceMarked, x.sinceAll = since(lookedMarked), since(lookedAll)
	x.blind = x.blind || x.stepped(at)
	if x.blind {
		x.sinceMarked, x.sinceAll = never, never
	}
	if n := len(x.notes.marks); n > 0 && x.sinceMarked > longest(x.set.apart(x.longestGrace())) {
		x.Log().Info("nobody looked for a while, and the grace of what is marked begins anew",
			"rule", x.r.Rule, "marks", n)
	}
}

func (r *rule) longestGrace() time.Duration {
	if r.MinAge != nil && (r.MinAge.IfMissing != "" || r.MinAge.FromTTL > 0) {
		return max(r.Grace, r.MinAge.Over)
	}
	return r.Grace
}

type moment struct{ server, own time.Time }

func (s *sweep) stepped(at time.Time) bool {
	was := s.moment
	s.moment = moment{at, time.Now()}
	off := at.Sub(was.server) - s.moment.own.Sub(was.own)
	return !was.server.IsZero() && off.Abs() > clockStep
}

func (x *pass) looked(ctx context.Context, full bool) error {
	if x.DryRun() {
		return nil
	}
	at, err := now(ctx, x.Pass, x.home)
	if err != nil {
		return err
	}
	if x.stepped(at) {
		return errClock
	}
	text := strconv.FormatInt(at.UnixMilli(), 10) + " " + x.meaning
	set, unset := map[string]string{lookedMarked: text}, []string(nil)
	switch {
	case full:
		set[lookedAll] = text
	case x.sinceMarked == never: // the gap ended this evidence, too
		unset = []string{lookedAll}
	}
	if err := note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), set, unset); err != nil {
		return err
	}
	x.complete, x.blind, x.lookedAt = true, false, x.moment.own
	return nil
}

// brokenOff ends the evidence, for this process and the next leader, if the pass did not look at
// everything marked. If that cannot be recorded, the last look gets too old by itself.
func (x *pass) brokenOff(ctx context.Context) {
	if x.complete || x.DryRun() {
		return
	}
	x.blind = true
	if x.notes != nil && x.notes.state[lookedMarked]+x.notes.state[lookedAll] == "" {
		return
	}
	_ = note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), nil, []string{lookedMarked, lookedAll})
}

type need struct {
	grace time.Duration
	why   string
}

func (x *pass) needs(f *finding) need {
	if f.doubted {
		return need{x.graceOf(f), young}
	}
	return need{x.graceOf(f), waiting}
}

func (x *pass) ripens(c *candidate, n need, since time.Duration) {
	if wait := n.grace - since; wait > 0 {
		x.r.Kept[n.why]++
		x.r.Waiting++
		if until := time.Now().Add(wait); x.r.Until.IsZero() || until.Before(x.r.Until) {
			x.r.Until = until
		}
		x.wake(min(wait, x.set.apart(n.grace)))
		return
	}
	x.ripe[c.name()] = c
}

// graceOf is the grace by all rules that cover the candidate. Related keys whose parent was deleted
// may also belong to a new one in the making, so theirs is longer.
func (x *pass) graceOf(f *finding) time.Duration {
	grace := max(x.graceFor(f), f.othersGrace)
	if f.alone && f.rest != nil {
		grace = max(grace, min(rules.DefaultGrace, x.set.c.Interval))
	}
	return grace
}

func (r *rule) graceFor(f *finding) time.Duration {
	if f.firstSeen || f.doubted {
		return max(r.Grace, r.MinAge.Over)
	}
	return r.Grace
}

// lookAgain requests another look before the evidence of n condemned candidates ends.
func (x *pass) lookAgain(n int) {
	if n > 0 {
		x.wake(x.set.apart(x.Grace))
	}
}

// mayTake is how long after the looks the pass still begins a delete: the next pass must look at
// the others before their evidence ends.
func (x *pass) mayTake(c *candidate) time.Duration {
	if c.alone { // each full pass costs a walk
		return x.set.c.Interval
	}
	return x.set.apart(x.Grace) / 2
}

type proof struct {
	Name    string `json:"name"`
	Mark    string `json:"mark"`
	Grace   int64  `json:"grace"`
	Since   int64  `json:"since"`
	Looked  int64  `json:"looked"`
	Expires int64  `json:"expires"`
}

func (x *pass) proofOf(f *finding) proof {
	return proof{
		Name: f.name(), Mark: x.notes.marks[f.name()].text(), Grace: x.graceOf(f).Milliseconds(),
		Since: x.notes.since.UnixMilli(), Looked: f.at.UnixMilli(),
		Expires: max(longest(x.set.apart(x.graceOf(f))), leastEvidence).Milliseconds(),
	}
}

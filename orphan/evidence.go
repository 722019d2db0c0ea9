package orphan

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Fields of a rule's state: when a pass last looked at all marked candidates, and when one last
// looked at all candidates. Both are "<ms> <meaning of the rule>", by the server's clock. A pass
// that breaks off deletes them.
const (
	lookedMarked = "looked"
	lookedAll    = "looked_all"
)

// never is the time since a look that did not happen.
const never = time.Duration(math.MaxInt64)

const (
	// leastEvidence is how long a look counts at least at the delete: the calls in between take time.
	leastEvidence = 5 * time.Second
	// clockStep is the largest difference between two clocks that is not taken for a step of one.
	clockStep = 2 * time.Second
	// shortest is the part of an interval that the janitor leaves between two passes at least.
	shortest = 50
)

// apart is the time between looks at a candidate that has to be condemned for the grace.
func (s *Set) apart(grace time.Duration) time.Duration {
	return min(s.c.Interval, max(grace, rules.LeastGrace, s.c.Interval/shortest))
}

// longest is the longest time without a look for looks that are this far apart.
func longest(apart time.Duration) time.Duration { return apart + max(apart, time.Second) }

// unwatched reports whether nobody looked at the candidate for too long since its mark was made.
func (x *pass) unwatched(f *finding, m mark) bool {
	apart := x.set.apart(x.graceOf(f))
	if f.alone {
		apart = x.set.c.Interval
	}
	return m.at.Before(x.began) && x.since(f) > longest(apart)
}

// since is how long ago a look at the candidate ended: without its parent, only full passes meet
// it.
func (x *pass) since(f *finding) time.Duration {
	if f.alone {
		return x.sinceAll
	}
	return x.sinceMarked
}

// readLooks reads how long ago the last looks ended. A look of another rule, or of a rule that
// meant something else, is none; neither is one that ends after now, or before a look that failed.
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

// longestGrace is the longest time that a candidate of the rule has to be condemned.
func (r *rule) longestGrace() time.Duration {
	if r.MinAge != nil && (r.MinAge.IfMissing != "" || r.MinAge.FromTTL > 0) {
		return max(r.Grace, r.MinAge.Over)
	}
	return r.Grace
}

// A moment is one by two clocks.
type moment struct{ server, own time.Time }

// stepped reports whether the server's clock went otherwise than this process' own since it was
// read last.
func (s *sweep) stepped(at time.Time) bool {
	was := s.moment
	s.moment = moment{at, time.Now()}
	off := at.Sub(was.server) - s.moment.own.Sub(was.own)
	return !was.server.IsZero() && off.Abs() > clockStep
}

// looked notes that the pass has looked at all marked candidates, or at all candidates.
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
	case x.sinceMarked == never: // what ended the other evidence has ended this, too
		unset = []string{lookedAll}
	}
	if err := note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), set, unset); err != nil {
		return err
	}
	x.complete, x.blind, x.lookedAt = true, false, x.moment.own
	return nil
}

// brokenOff ends the evidence, for this process and for the next leader: the pass did not look at
// what is marked. If that cannot be noted, the last look gets too old by itself.
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

// need is the time that a candidate has to be condemned, and the reason to keep it until then.
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

// ripens notes what is condemned since some time: it is ripe, or will be.
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

// graceOf is how long a candidate has to stay condemned, by all rules that are about it. Related
// keys that are found after it has gone may also belong to a new one in the making.
func (x *pass) graceOf(f *finding) time.Duration {
	grace := max(x.graceFor(f), f.othersGrace)
	if f.alone && f.rest != nil {
		grace = max(grace, min(rules.DefaultGrace, x.set.c.Interval))
	}
	return grace
}

// graceFor is how long a candidate has to stay condemned by this rule.
func (r *rule) graceFor(f *finding) time.Duration {
	if f.firstSeen || f.doubted {
		return max(r.Grace, r.MinAge.Over)
	}
	return r.Grace
}

// lookAgain wants another look while n candidates are condemned that do not go for now: else their
// evidence would end.
func (x *pass) lookAgain(n int) {
	if n > 0 {
		x.wake(x.set.apart(x.Grace))
	}
}

// mayTake is how long after the looks the pass still begins to delete this one. The next pass must
// look at the others again before their evidence ends.
func (x *pass) mayTake(c *candidate) time.Duration {
	if c.alone { // each full pass costs a walk
		return x.set.c.Interval
	}
	return x.set.apart(x.Grace) / 2
}

// proof is what ripe.lua wants of a candidate.
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

package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Reasons to hold a rule, beside the janitor's.
const (
	heldLost        = "reference_lost"
	heldSource      = "source"
	heldMassFailure = proof.MassFailure
)

// ownReasons are those of the rule itself.
var ownReasons = []string{heldLost, heldSource, heldMassFailure}

// Reasons to keep a condemned candidate for now.
const (
	waiting = "waiting"
	noMark  = "marks"   // the rule has its maximum of marks
	capped  = "cap"     // the pass has deleted its maximum
	changed = "changed" // since the look
)

const (
	marksOfCap = 10 // marks that a rule may have, times its cap
	mostMarks  = 100_000
	markBytes  = 4 << 20 // of their names
	// the janitor leaves at least 1/50 of an interval between two passes
	shortest = 50
)

type sweep struct {
	*rule
	set *Set

	epoch    uint64
	intents  uint64 // of this process, for their ids
	nextFull time.Time
	said     string
	memory   proof.Memory
}

func (s *sweep) Name() string            { return s.rule.Name }
func (s *sweep) Interval() time.Duration { return s.set.c.Interval }

type pass struct {
	*sweep
	*janitor.Pass
	*proof.Book
	r        *Result
	arrived  func() // announces that it has joined its walk, or will not
	servers  *topology
	home     server // has the worker's own keys
	premises []observation
	ripe     map[string]*candidate
	atOnce   map[string]*candidate // without a grace: ripe once it has a mark
	lookedAt time.Time             // when it had looked at everything marked, by this process's clock
	again    time.Time             // when the next pass is wanted; zero: with the interval
}

// Run runs a full pass each interval and on request, otherwise a look at marked candidates.
func (s *sweep) Run(ctx context.Context, p *janitor.Pass) error {
	if p.Owner() != "" { // candidates have none
		return nil
	}
	begun := time.Now()
	full := p.Requested() || s.epoch != p.Epoch() || !begun.Before(s.nextFull)
	// A requested dry run marks nothing, and does not count as a pass.
	shown := p.Requested() && p.DryRun()
	if full && !shown {
		s.epoch, s.nextFull = p.Epoch(), s.set.nextDue(s.rule.Name, begun)
	}
	arrived := func() {}
	if full && len(s.templates()) > 0 {
		arrived = s.set.walks.expect()
		defer arrived()
	}
	x := &pass{sweep: s, Pass: p, arrived: arrived, ripe: map[string]*candidate{},
		atOnce: map[string]*candidate{}, r: &Result{
			Rule: s.rule.Name, Category: s.Category, DryRun: p.DryRun() || !s.rule.Delete, Full: full, Started: begun,
			Kept: map[string]int{},
		}}
	err := x.run(ctx, full)
	if errors.Is(err, errSource) {
		err = x.hold(heldSource, err.Error())
	}
	x.r.Duration = time.Since(begun)
	s.set.conclude(ctx, x.r, err)
	if full && !shown && err != nil && !slices.Contains(ownReasons, x.r.Reason) {
		s.nextFull = time.Time{}
	} else {
		x.makeRoom()
		next := s.nextFull
		if !x.again.IsZero() && x.again.Before(next) {
			next = x.again
		}
		p.RunAgain(next)
	}
	if p.Requested() {
		s.set.answer(x.r)
	}
	if !shown {
		s.set.passed(x.r)
	}
	if full && !p.DryRun() {
		err = cmp.Or(err, x.notePass(ctx))
	}
	return err
}

func (x *pass) run(ctx context.Context, full bool) error {
	if err := x.CheckHeld(ctx); err != nil {
		proof.Break(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), &x.memory)
		return err
	}
	held, err := x.begin(ctx)
	if err != nil {
		return err
	}
	if full && held > 0 { // a held rule looks for nothing new
		full, x.nextFull = false, time.Now().Add(held+x.apart())
	}
	if err := x.lookAt(ctx, full); err != nil {
		return err
	}
	err = x.end(ctx, full)
	switch {
	case err == nil && held > 0:
		x.wake(held)
		err = x.hold(heldMassFailure, "more than half of the candidates were newly condemned")
	case err == nil:
		x.said = ""
	}
	if err != nil || !x.r.Coverage.Complete {
		x.lookAgain()
		return err
	}
	if err := x.reap(ctx); err != nil || x.DryRun() {
		return err
	}
	return x.dropBins(ctx)
}

// begin opens the book, and returns for how much longer a mass failure holds the rule.
func (x *pass) begin(ctx context.Context) (held time.Duration, err error) {
	if err := x.readServers(ctx); err != nil {
		return 0, err
	}
	if x.home, err = homeOf(x.servers, x.Layout()); err != nil {
		return 0, err
	}
	if !x.DryRun() {
		if err := x.settleLeft(ctx); err != nil {
			return 0, err
		}
	}
	x.Book, err = proof.Open(ctx, x.Pass, proof.Options{
		Marks: marksKey(x.Layout(), x.r.Rule), State: stateKey(x.Layout(), x.r.Rule),
		Basis: x.meaning + " " + x.servers.digest(), Apart: x.apart(), Hold: max(x.Grace, x.set.holdFor),
		Most: min(marksOfCap*x.Cap, mostMarks), Bytes: markBytes, Memory: &x.memory,
	})
	if err != nil {
		return 0, err
	}
	if n := len(x.Marked()); n > 0 && x.Ended() != "" {
		x.Log().Info("the grace of what is marked begins anew", "rule", x.r.Rule, "marks", n, "since", x.Ended())
	}
	if x.r.Full && !x.DryRun() {
		if err := x.noteBegun(ctx); err != nil {
			return 0, err
		}
	}
	if err := x.checkReferences(ctx, x.Book.Now()); err != nil {
		return 0, err
	}
	return x.Held(ctx)
}

func (x *pass) readServers(ctx context.Context) error {
	return x.Call(ctx, func(ctx context.Context) (err error) {
		x.servers, err = masters(ctx, x.Client(), nodeTimeout)
		return err
	})
}

func homeOf(t *topology, l guard.Layout) (server, error) {
	if s := t.at(l.Log()); s != nil {
		return *s, nil
	}
	return server{}, fmt.Errorf("orphan: the server of %s does not answer: %w", l.Log(), t.fault)
}

// homeTime returns the servers, and the time of the one with the worker's own keys.
func homeTime(ctx context.Context, c caller, l guard.Layout) (t *topology, at time.Time, err error) {
	if t, err = masters(ctx, c.Client(), nodeTimeout); err != nil {
		return nil, at, err
	}
	home, err := homeOf(t, l)
	if err != nil {
		return nil, at, err
	}
	at, err = now(ctx, c, home)
	return t, at, err
}

func (x *pass) checkReferences(ctx context.Context, at time.Time) error {
	refs, err := x.references(ctx, x.Pass, x.set.c.Source, x.Book, at)
	if err != nil {
		return err
	}
	if err := x.Note(ctx, refs.set, refs.unset...); err != nil {
		return err
	}
	if refs.lost != "" {
		return cmp.Or(x.End(ctx, refs.lost), x.hold(heldLost, refs.lost))
	}
	x.premises = refs.premises
	return nil
}

// hold logs a reason once, until it changes or the rule works again.
func (x *pass) hold(reason, detail string) error {
	if said := reason + detail; x.said != said {
		x.said = said
		x.Log().Warn("rule held", "rule", x.r.Rule, "reason", reason, "detail", detail)
	}
	x.r.Detail = detail
	return &janitor.HeldError{Reason: reason, Detail: detail}
}

// lookAt looks at every candidate, or at those with a mark.
func (x *pass) lookAt(ctx context.Context, full bool) error {
	judge := func(page []*candidate) error { return x.judge(ctx, page) }
	if full {
		d := x.set.walks.join(x.servers, x.templates())
		x.arrived()
		return x.walk(ctx, x.Pass, d, func(string) {}, judge)
	}
	x.arrived()
	var page []*candidate
	for _, name := range x.Marked() {
		if c := x.ofName(name); c != nil {
			page = append(page, c)
		}
	}
	pages, rest := pagesOf(page)
	for _, part := range append(pages, rest) {
		if err := judge(part); err != nil {
			return err
		}
	}
	return nil
}

func (x *pass) judge(ctx context.Context, candidates []*candidate) error {
	if len(candidates) == 0 {
		return nil
	}
	found, err := x.look(ctx, x.Pass, x.set.c.Source, x.home, candidates)
	if err != nil {
		return err
	}
	told := make([]proof.Found, len(found))
	for i, f := range found {
		told[i] = f.told()
	}
	if err := x.Look(ctx, told); err != nil {
		return err
	}
	for i, f := range found {
		if x.r.Scanned++; f.verdict != condemned {
			x.r.Kept[f.verdict]++
			continue
		}
		x.r.Condemned++
		since, marked := x.Since(told[i].Name, f.at)
		switch grace := x.graceOf(f); {
		case marked && since >= grace:
			x.ripe[told[i].Name] = candidates[i]
		case grace == 0:
			x.atOnce[told[i].Name] = candidates[i]
		default:
			x.waits(f, grace-max(0, since), marked)
		}
	}
	x.AddScanned(len(found))
	return nil
}

func (f *finding) told() proof.Found {
	told := proof.Found{Name: f.name(), Print: f.fingerprint, At: f.at}
	switch f.verdict {
	case condemned:
		told.Verdict = proof.Condemned
	case alive:
		told.Verdict = proof.Alive
	}
	return told
}

func (x *pass) waits(f *finding, wait time.Duration, marked bool) {
	if !marked {
		wait = x.graceOf(f)
	}
	why := waiting
	if f.doubted {
		why = young
	}
	x.r.Kept[why]++
	x.r.Waiting++
	if until := time.Now().Add(wait); x.r.Until.IsZero() || until.Before(x.r.Until) {
		x.r.Until = until
	}
	x.wake(min(wait, x.apart()))
}

// graceOf is longer if the age counts from the mark.
func (r *rule) graceOf(f *finding) time.Duration {
	if f.firstSeen || f.doubted {
		return max(r.Grace, r.MinAge.Over)
	}
	return r.Grace
}

// apart is the planned time between two looks at what is marked.
func (s *sweep) apart() time.Duration {
	interval := s.set.c.Interval
	return min(interval, max(s.Grace, rules.LeastGrace, interval/shortest))
}

func (x *pass) wake(d time.Duration) {
	if at := time.Now().Add(d); x.again.IsZero() || at.Before(x.again) {
		x.again = at
	}
}

// lookAgain requests another look before the evidence of what is marked ends.
func (x *pass) lookAgain() {
	if len(x.ripe) > 0 {
		x.wake(x.apart())
	}
}

// end reads the servers again: if some did not answer, or any changed, the pass is incomplete and
// condemns nothing.
func (x *pass) end(ctx context.Context, full bool) error {
	before := x.servers
	if err := x.readServers(ctx); err != nil {
		return err
	}
	x.r.Coverage = Coverage{Masters: len(before.masters), Of: before.of, Complete: true}
	if err := errors.Join(before.fault, before.changed(x.servers)); err != nil {
		x.r.Coverage.Complete = false
		x.Log().Warn("pass has not read everything, and condemns nothing", "rule", x.r.Rule, "error", err)
		return nil
	}
	unmarked, err := x.Looked(ctx, full)
	x.r.Kept[noMark] += unmarked
	for name, c := range x.atOnce {
		if _, marked := x.Since(name, x.Book.Now()); marked {
			x.ripe[name] = c
		} else if unmarked > 0 {
			unmarked-- // it did not wait
		}
	}
	x.r.Kept[waiting] -= min(unmarked, x.r.Kept[waiting])
	x.r.Waiting -= min(unmarked, x.r.Waiting)
	x.lookedAt = time.Now()
	if held, ok := errors.AsType[*janitor.HeldError](err); ok {
		wait := max(x.Grace, x.set.holdFor)
		x.wake(wait)
		// The first pass after the hold must look at marks: new candidates would hold the rule again.
		if later := time.Now().Add(wait + x.apart()); later.After(x.nextFull) {
			x.nextFull = later
		}
		return x.hold(heldMassFailure, strings.ReplaceAll(held.Detail, "were newly", "candidates were newly"))
	}
	return err
}

// makeRoom pulls the next full pass forward if deletes freed marks for condemned candidates without
// one.
func (x *pass) makeRoom() {
	without := x.r.Kept[noMark]
	if !x.r.Full && x.Book != nil {
		without = x.Unmarked()
	}
	x.r.Left = x.r.Kept[capped] + without
	if at := time.Now(); x.r.Removed > 0 && x.r.Kept[capped] == 0 && without > 0 && at.Before(x.nextFull) {
		x.nextFull = at
	}
}

func (x *pass) holdLost(ctx context.Context) error {
	const why = "a place that the rule relies on went away during the pass"
	return cmp.Or(x.End(ctx, why), x.hold(heldLost, why))
}

func (x *pass) newID() string {
	x.intents++
	return x.r.Rule + "-" + strconv.FormatUint(x.Epoch(), 10) + "-" + strconv.FormatUint(x.intents, 10)
}

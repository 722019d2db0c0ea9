package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

// Reasons to hold a rule, beside the janitor's.
const (
	heldLost        = "reference_lost"
	heldSource      = "source"
	heldMassFailure = "mass_failure"
)

// Reasons to keep a condemned candidate for now.
const (
	waiting = "waiting"
	noMark  = "marks"   // the rule has its maximum of marks
	capped  = "cap"     // the pass has deleted its maximum
	changed = "changed" // since the look
)

// breakerLeast is the fewest candidates at which the breaker holds.
const breakerLeast = 20

type sweep struct {
	*rule
	set *Set

	epoch    uint64
	intents  uint64 // of this process, for their ids
	nextFull time.Time
	said     string
	// the last pass broke off before it had looked at everything marked
	blind  bool
	moment moment // of the last reading of the server's clock
}

func (s *sweep) Name() string            { return s.rule.Name }
func (s *sweep) Interval() time.Duration { return s.set.c.Interval }

type pass struct {
	*sweep
	*janitor.Pass
	r       *Result
	arrived func() // announces that it has joined its walk, or will not
	servers *topology
	home    server // has the worker's own keys
	notes   *notes
	began   time.Time       // by the server's clock
	unseen  map[string]bool // marks whose candidate a full pass has not met
	lone    lone
	marked  map[string]*candidate // related keys of marked candidates that a full pass met
	// of related keys
	nameBytes int64
	gathered  map[string]bool // candidates whose related keys, if any, are in marked
	rests     map[string]*rest
	unsure    unsure
	fresh     map[string]string // marks to be written once the pass itself is judged
	newly     int               // condemned without a mark
	heldFor   time.Duration     // rest of the breaker's hold
	// Since the end of the last look at everything marked, and at all candidates.
	sinceMarked, sinceAll time.Duration
	complete              bool      // looked at everything marked, and recorded what it found
	lookedAt              time.Time // when it had done so, by this process's clock
	ripe                  map[string]*candidate
	premises              []observation // of the references: must still hold at the delete
	again                 time.Time     // end of the next grace; zero: none
	walkAgain             bool          // at once, for something that only a full pass meets
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
	x := &pass{
		sweep: s, Pass: p, arrived: arrived, ripe: map[string]*candidate{}, unseen: map[string]bool{},
		lone: newLone(), unsure: newUnsure(), marked: map[string]*candidate{}, fresh: map[string]string{},
		r: &Result{
			Rule: s.rule.Name, Category: s.Category, DryRun: p.DryRun() || !s.rule.Delete, Full: full, Started: begun,
			Kept: map[string]int{},
		},
	}
	err := x.run(ctx, full)
	x.holdNames(-x.nameBytes)
	if !shown {
		x.brokenOff(ctx)
	}
	if errors.Is(err, errSource) {
		p.Log().Warn("rule held: its source does not answer", "rule", x.r.Rule, "error", err)
		err = &janitor.HeldError{Reason: heldSource, Detail: err.Error()}
	}
	if full && !shown && err != nil && !heldByRule(err) {
		s.nextFull = time.Time{}
	} else {
		x.makeRoom()
		next := s.nextFull
		if !x.again.IsZero() && x.again.Before(next) {
			next = x.again
		}
		p.RunAgain(next)
	}
	x.r.Duration = time.Since(begun)
	s.set.conclude(ctx, x.r, err)
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

func heldByRule(err error) bool {
	held, ok := errors.AsType[*janitor.HeldError](err)
	return ok && (held.Reason == heldLost || held.Reason == heldSource || held.Reason == heldMassFailure)
}

func (x *pass) run(ctx context.Context, full bool) (err error) {
	if err := x.CheckHeld(ctx); err != nil {
		return err
	}
	if err := x.begin(ctx); err != nil {
		return err
	}
	if full && !x.DryRun() {
		if err := x.noteBegun(ctx); err != nil {
			return err
		}
	}
	full = full && x.heldFor <= 0 // a held rule makes no marks
	if full {
		d := x.set.walks.join(x.servers, x.templates())
		x.arrived()
		err = x.walk(ctx, x.Pass, d, func(page []*candidate) error { return x.page(ctx, page) })
		if err == nil {
			err = x.lookAtLone(ctx)
		}
	} else {
		x.arrived()
		err = x.lookAtMarks(ctx)
	}
	if err == nil {
		err = x.end(ctx, full)
	}
	if err != nil || !x.r.Coverage.Complete {
		return err
	}
	if x.heldFor > 0 {
		x.wake(x.heldFor)
		x.lookAgain(len(x.ripe))
		return x.hold(heldMassFailure, "more than half of the candidates were newly condemned")
	}
	if err := x.reap(ctx); err != nil || x.DryRun() {
		return err
	}
	return x.dropBins(ctx)
}

func (x *pass) begin(ctx context.Context) (err error) {
	if err := x.readServers(ctx); err != nil {
		return err
	}
	if x.home, err = homeOf(x.servers, x.Layout()); err != nil {
		return err
	}
	if x.servers.owner != nil && !x.DryRun() {
		if err := errors.Join(x.settleLeft(ctx), x.settleGone(ctx)); err != nil {
			return err
		}
	}
	if x.notes, err = readNotes(ctx, x.Pass, x.Layout(), x.r.Rule); err != nil {
		return err
	}
	if err := x.readRests(ctx); err != nil {
		return err
	}
	for name := range x.notes.marks {
		x.unseen[name] = true
	}
	if x.r.Full {
		x.gathered = maps.Clone(x.unseen)
	}
	at, err := now(ctx, x.Pass, x.home)
	if err != nil {
		return err
	}
	x.began = at
	until, err := x.notOfLater(ctx, at)
	if err != nil {
		return err
	}
	if err := x.checkServers(ctx, at); err != nil {
		return err
	}
	if err := x.checkReferences(ctx, at); err != nil {
		return err
	}
	x.readLooks(at)
	x.heldFor = until.Sub(at)
	if x.sinceMarked < never || x.DryRun() {
		return nil
	}
	// A mark that the last pass gave up writing may land later, behind a look that finds life.
	x.notes.valid = at
	return note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule),
		map[string]string{lostAt: strconv.FormatInt(at.UnixMilli(), 10)}, nil)
}

func (x *pass) readServers(ctx context.Context) error {
	return x.Call(ctx, func(ctx context.Context) (err error) {
		x.servers, err = masters(ctx, x.Client())
		return err
	})
}

func homeOf(t *topology, l guard.Layout) (server, error) {
	if s := t.at(l.Log()); s != nil {
		return *s, nil
	}
	return server{}, fmt.Errorf("orphan: the server of %s does not answer: %w", l.Log(), t.fault)
}

// checkServers invalidates all marks if a Cluster's servers have changed since the previous pass: a
// server that was restarted or failed over may have forgotten a sign of life, and the witness
// listens only to the server at home.
func (x *pass) checkServers(ctx context.Context, at time.Time) error {
	if x.servers.owner == nil {
		return nil
	}
	is := x.servers.digest()
	if x.notes.state[serversWere] == is {
		return nil
	}
	if at.After(x.notes.valid) {
		x.notes.valid = at
	}
	if x.DryRun() {
		return nil
	}
	return note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule),
		map[string]string{serversWere: is, lostAt: strconv.FormatInt(at.UnixMilli(), 10)}, nil)
}

func (x *pass) checkReferences(ctx context.Context, at time.Time) error {
	refs, err := x.references(ctx, x.Pass, x.notes, at)
	if err != nil {
		return err
	}
	if !x.DryRun() {
		if err := note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), refs.set, refs.unset); err != nil {
			return err
		}
	}
	if refs.lost != "" {
		return x.hold(heldLost, refs.lost)
	}
	empty, err := x.emptyCollection(ctx, x.set.c.Source)
	if err != nil {
		return err
	}
	if empty != "" {
		return x.hold(heldLost, "collection "+empty+" is empty")
	}
	x.premises = refs.premises
	return nil
}

func (r *rule) emptyCollection(ctx context.Context, source Source) (string, error) {
	for _, collection := range r.collections() {
		empty, err := source.Empty(ctx, collection)
		if err != nil {
			return "", errors.Join(errSource, err)
		}
		if empty {
			return collection, nil
		}
	}
	return "", nil
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

// lookAtMarks leaves candidates without a parent to a full pass, which finds their related keys.
func (x *pass) lookAtMarks(ctx context.Context) error {
	var page []*candidate
	for name, m := range x.notes.marks {
		if c := x.ofName(name); c != nil && !m.alone {
			page = append(page, c)
		}
	}
	for part := range slices.Chunk(page, pageOf) {
		if err := x.judge(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (x *pass) page(ctx context.Context, candidates []*candidate) error {
	var alone, others []*candidate
	for _, c := range candidates {
		if c.alone {
			alone = append(alone, c)
		} else {
			others = append(others, c)
		}
	}
	if err := x.gather(ctx, alone); err != nil {
		return err
	}
	return x.judge(ctx, others)
}

// judge unmarks all that are not condemned as before. It leaves new marks to the end of the pass: a
// failing pass must not hide from the breaker how many are new.
func (x *pass) judge(ctx context.Context, candidates []*candidate) error {
	if len(candidates) == 0 {
		return nil
	}
	found, err := x.look(ctx, x.Pass, x.set.c.Source, x.home, candidates)
	if err != nil {
		return err
	}
	var unset []string
	for _, f := range found {
		name := f.name()
		m, has := x.notes.marks[name]
		if f.verdict == absent && f.alone {
			continue // its parent is looked at separately
		}
		delete(x.unseen, name)
		x.r.Scanned++
		if f.verdict != condemned {
			x.r.Kept[f.verdict]++
			if has {
				unset = append(unset, name)
				delete(x.notes.marks, name)
			}
			continue
		}
		x.r.Condemned++
		ended := x.unwatched(f, m)
		if !has || m.print != f.fingerprint || m.at.Before(x.notes.valid) || m.at.After(f.at) || ended {
			switch { // keep an invalid mark: without it, a failing pass would make its candidate new
			case !has || ended && x.since(f) != never: // it may have been alive while nobody looked
				x.newly++
			case !m.at.Before(x.notes.valid) && !ended:
				unset = append(unset, name)
			}
			if x.heldFor > 0 && !ended { // a held rule makes no marks
				x.r.Kept[waiting]++
				continue
			}
			x.wantMark(f)
			continue
		}
		x.ripens(f.itself(), x.needs(f), f.at.Sub(m.at))
	}
	x.AddScanned(len(found))
	return x.note(ctx, nil, unset)
}

func (x *pass) wake(d time.Duration) {
	if at := time.Now().Add(d); x.again.IsZero() || at.Before(x.again) {
		x.again = at
	}
}

func (x *pass) note(ctx context.Context, set map[string]string, unset []string) error {
	if x.DryRun() {
		return nil
	}
	return note(ctx, x.Pass, marksKey(x.Layout(), x.r.Rule), set, unset)
}

// compareServers reads the servers again: if some did not answer, or any changed, the pass is
// incomplete and condemns nothing.
func (x *pass) compareServers(ctx context.Context) error {
	before := x.servers
	if err := x.readServers(ctx); err != nil {
		return err
	}
	x.r.Coverage = Coverage{Masters: len(before.masters), Of: before.of, Complete: true}
	if err := errors.Join(before.fault, before.changed(x.servers)); err != nil {
		x.r.Coverage.Complete = false
		x.Log().Warn("pass has not read everything, and condemns nothing", "rule", x.r.Rule, "error", err)
	}
	return nil
}

func (x *pass) end(ctx context.Context, full bool) error {
	if err := x.compareServers(ctx); err != nil || !x.r.Coverage.Complete {
		return err
	}
	lost := x.giveMarks()
	if full {
		lost = slices.AppendSeq(lost, maps.Keys(x.unseen))
		if err := x.forgetRests(ctx); err != nil {
			return err
		}
	}
	if err := x.note(ctx, nil, lost); err != nil {
		return err
	}
	held, err := x.breaker(ctx, full)
	if err != nil {
		return err
	}
	if err := x.note(ctx, x.fresh, nil); err != nil {
		return err
	}
	if err := x.looked(ctx, full); err != nil || held != nil {
		return cmp.Or(err, held)
	}
	x.said = ""
	return nil
}

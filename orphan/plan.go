package orphan

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Finding is what a look says of one candidate.
type Finding struct {
	Rule    string   `json:"rule"`
	Name    string   `json:"name"`    // the key, or the key and its member
	Related []string `json:"related"` // keys that would go with it
	Verdict string   `json:"verdict"` // condemned, alive, young, unreadable, unknown, foreign
	Why     []string `json:"why"`     // each sign, and what it answered
	// Since is when it was first found condemned, from its mark; zero: it has none.
	Since time.Time `json:"since,omitzero"`
}

// A Plan is what a look at all candidates of a rule found.
type Plan struct {
	Rule     string         `json:"rule"`
	Held     string         `json:"held,omitempty"` // reference_lost, source: why nothing would go
	Detail   string         `json:"detail,omitempty"`
	Scanned  int            `json:"scanned"`
	Verdicts map[string]int `json:"verdicts"`
	Findings []Finding      `json:"findings"` // the first condemned ones, limit at most
	Coverage Coverage       `json:"coverage"`
}

// Plan looks once at every candidate of each rule, and writes nothing. It does without the janitor,
// its lease and its pace: it takes as much of Redis' time as Redis gives.
func (s *Set) Plan(ctx context.Context, limit int) ([]Plan, error) {
	plans := make([]Plan, len(s.rules))
	for i, r := range s.rules {
		if err := s.plan(ctx, r, limit, &plans[i]); err != nil {
			return plans, fmt.Errorf("orphan: plan of rule %q: %w", r.Name, err)
		}
	}
	return plans, nil
}

func (s *Set) plan(ctx context.Context, r *rule, limit int, p *Plan) error {
	c := plainly{s.c.Client}
	p.Rule, p.Verdicts, p.Findings = r.Name, map[string]int{}, []Finding{}
	before, err := masters(ctx, c.client)
	if err != nil {
		return err
	}
	n, err := readNotes(ctx, c, s.c.Layout, r.Name)
	if err != nil {
		return err
	}
	home, err := homeOf(before, s.c.Layout)
	if err != nil {
		return err
	}
	at, err := serverTime(ctx, home)
	if err != nil {
		return err
	}
	if err := s.planHeld(ctx, r, c, n, at, p); err != nil {
		return err
	}
	if p.Held == heldSource {
		return nil
	}
	err = r.walk(ctx, c, before, func(page []*candidate) error {
		found, err := r.look(ctx, c, s.c.Source, home, page)
		if err != nil {
			return err
		}
		for _, f := range found {
			if f.verdict == absent && f.alone {
				continue
			}
			p.Scanned++
			p.Verdicts[f.verdict]++
			if f.verdict == condemned && len(p.Findings) < limit {
				p.Findings = append(p.Findings, r.finding(f, n))
			}
		}
		return nil
	})
	if errors.Is(err, errSource) {
		p.Held, p.Detail = heldSource, err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	after, err := masters(ctx, c.client)
	if err != nil {
		return err
	}
	p.Coverage = Coverage{Masters: len(before.masters), Of: before.of,
		Complete: errors.Join(before.fault, before.changed(after)) == nil}
	return nil
}

// planHeld says why a pass would be held.
func (s *Set) planHeld(ctx context.Context, r *rule, c caller, n *notes, at time.Time, p *Plan) error {
	refs, err := r.references(ctx, c, n, at)
	if err != nil {
		return err
	}
	empty, err := r.emptyCollection(ctx, s.c.Source)
	switch {
	case err != nil:
		p.Held, p.Detail = heldSource, err.Error()
	case refs.lost != "":
		p.Held, p.Detail = heldLost, refs.lost
	case empty != "":
		p.Held, p.Detail = heldLost, "collection "+empty+" is empty"
	}
	return nil
}

// finding is a finding for people.
func (r *rule) finding(f *finding, n *notes) Finding {
	related := f.gone
	if len(related) > 0 && related[0] == f.key {
		related = related[1:]
	}
	return Finding{
		Rule: r.Name, Name: f.name(), Related: related, Verdict: f.verdict, Why: f.why, Since: n.marks[f.name()].at,
	}
}

// Explain looks at one key now, or at one member (its key, a space, and the member), and says what
// each rule that is about it finds. None: no rule is about it.
func (s *Set) Explain(ctx context.Context, key string) ([]Finding, error) {
	c := plainly{s.c.Client}
	servers, err := masters(ctx, c.client)
	if err != nil {
		return nil, err
	}
	home, err := homeOf(servers, s.c.Layout)
	if err != nil {
		return nil, err
	}
	all := []Finding{}
	for _, r := range s.rules {
		one := r.ofName(key)
		if one == nil {
			one = r.ofKey(key)
		}
		if one == nil {
			continue
		}
		n, err := readNotes(ctx, c, s.c.Layout, r.Name)
		if err != nil {
			return nil, err
		}
		found, err := r.look(ctx, c, s.c.Source, home, []*candidate{one})
		if err == nil && one.alone && found[0].verdict == absent { // it goes with its parent
			one.alone, one.related = false, nil
			found, err = r.look(ctx, c, s.c.Source, home, []*candidate{one})
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r.finding(found[0], n))
	}
	return all, nil
}

package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A Finding is the result of a look at one candidate.
type Finding struct {
	Rule    string   `json:"rule"`
	Name    string   `json:"name"`
	Related []string `json:"related"`       // would be deleted with it
	Verdict string   `json:"verdict"`       // condemned, alive, young, unreadable, unknown, foreign
	Why     []string `json:"why"`           // each sign and its answer
	Odd     string   `json:"odd,omitempty"` // how it differs from the rule's others
	// Since is when it was first found condemned; zero: it has no mark.
	Since time.Time `json:"since,omitzero"`
}

// A Plan is a look at all candidates of a rule.
type Plan struct {
	Rule     string         `json:"rule"`
	Held     string         `json:"held,omitempty"` // reference_lost, source
	Detail   string         `json:"detail,omitempty"`
	Scanned  int            `json:"scanned"`
	Verdicts map[string]int `json:"verdicts"`
	Findings []Finding      `json:"findings"` // condemned ones, at most limit, odd ones first
	Odd      []Odd          `json:"odd"`
	Coverage Coverage       `json:"coverage"`
}

// Plan looks once at every candidate of each rule, and writes nothing. It uses neither the
// janitor's lease nor its pace: it takes all of Redis' time that it can get.
func (s *Set) Plan(ctx context.Context, limit int) ([]Plan, error) {
	plans := make([]Plan, len(s.rules))
	return plans, s.together("plan", func(i int, r *rule, c caller, board boarding) error {
		return s.plan(ctx, r, c, board, limit, &plans[i])
	})
}

type boarding func(servers *topology, more ...*rules.Template) *rider

// together runs do for all rules at once, so that they share one walk.
func (s *Set) together(
	what string, do func(i int, r *rule, c caller, board boarding) error,
) error {
	ws, c := new(walks), inTurn{plainly{s.c.Client}, new(sync.Mutex)}
	errs := make([]error, len(s.rules))
	var all conc.WaitGroup
	for i, r := range s.rules {
		arrived := ws.expect()
		all.Go(func() {
			defer arrived()
			err := do(i, r, c, func(servers *topology, more ...*rules.Template) *rider {
				defer arrived()
				return ws.join(servers, slices.Concat(r.templates(), more))
			})
			if err != nil {
				errs[i] = fmt.Errorf("orphan: %s of rule %q: %w", what, r.Name, err)
			}
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

func (s *Set) plan(
	ctx context.Context, r *rule, c caller, board boarding, limit int, p *Plan,
) error {
	p.Rule, p.Verdicts, p.Findings = r.Name, map[string]int{}, []Finding{}
	before, err := masters(ctx, s.c.Client)
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
	forms, all := newShapes(), map[string]Finding{}
	err = r.walk(ctx, c, board(before), func(page []*candidate) error {
		types, err := r.typesOfKeys(ctx, c, page)
		if err != nil {
			return err
		}
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
			if f.verdict != foreign && f.verdict != absent && !f.alone {
				forms.add(&f.candidate, types[f.key], f.verdict)
				if f.verdict == condemned && forms.kept {
					all[f.name()] = r.finding(f, n)
				}
			}
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
	p.oddFirst(forms.odd(), all, limit)
	after, err := masters(ctx, s.c.Client)
	if err != nil {
		return err
	}
	p.Coverage = Coverage{Masters: len(before.masters), Of: before.of,
		Complete: errors.Join(before.fault, before.changed(after)) == nil}
	return nil
}

func (p *Plan) oddFirst(odd []Odd, all map[string]Finding, limit int) {
	p.Odd = slices.Clip(append([]Odd{}, odd...))
	var first []Finding
	for _, one := range odd {
		if f, ok := all[one.Name]; ok {
			f.Odd = one.Why
			first = append(first, f)
			p.Findings = slices.DeleteFunc(p.Findings, func(other Finding) bool { return other.Name == f.Name })
		}
	}
	p.Findings = slices.Concat(first, p.Findings)
	p.Findings = p.Findings[:min(limit, len(p.Findings))]
}

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

func (r *rule) finding(f *finding, n *notes) Finding {
	related := f.gone
	if len(related) > 0 && related[0] == f.key {
		related = related[1:]
	}
	spelled := slices.Clone(related)
	for i, key := range spelled {
		spelled[i] = rules.Spell(key)
	}
	return Finding{
		Rule: r.Name, Name: f.name(), Related: spelled, Verdict: f.verdict, Why: f.why, Since: n.marks[f.name()].at,
	}
}

// Explain looks at one key or member (key, space, member), spelled as in reports, and returns the
// finding of each rule that covers it.
func (s *Set) Explain(ctx context.Context, key string) ([]Finding, error) {
	c := plainly{s.c.Client}
	servers, err := masters(ctx, s.c.Client)
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
		if err == nil && one.alone && found[0].verdict == absent { // it would be deleted with its parent
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

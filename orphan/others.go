package orphan

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Rules of one Set may be about the same keys. A key that one of them keeps is not deleted by
// another: a candidate of several rules has to be condemned by all of them, and a related key that
// is a candidate of another rule is left to that one.

// meet makes rules known to one another.
func meet(rules []*rule) {
	for _, r := range rules {
		for _, other := range rules {
			if other != r {
				r.others = append(r.others, other)
			}
		}
	}
}

// anothers reports whether a key is a candidate of another rule, or holds the candidates of one.
func (r *rule) anothers(key string) bool {
	return slices.ContainsFunc(r.others, func(other *rule) bool {
		return other.candidate(key) != nil || other.candidates == nil && other.container == key
	})
}

// candidate makes the candidate of a key; nil: the rule is not about it.
func (r *rule) candidate(key string) *candidate {
	if r.candidates == nil {
		return nil
	}
	values, ok := r.candidates.match(key)
	if c := (&candidate{key: key, values: values}); ok && r.ours(c) {
		return c
	}
	return nil
}

// same is the other rule's candidate that is the same thing; nil: there is none.
func (r *rule) same(f *finding) *candidate {
	if f.member == "" {
		return r.candidate(f.key)
	}
	if r.candidates != nil || r.container != f.key {
		return nil
	}
	if c := r.ofMember(f.member); r.ours(c) {
		return c
	}
	return nil
}

// belongs reports whether a related key is its candidate's alone. One whose name would be read with
// other values, as that of a member with a ':', could as well be somebody else's.
func (r *rule) belongs(t *template, key string, f *finding) bool {
	values, ok := t.match(key)
	if !ok || r.anothers(key) {
		return false
	}
	for name, value := range values {
		if f.values[name] != value {
			return false
		}
	}
	return true
}

// hearOthers keeps what another rule does not condemn. Its answers are looked at again at the
// delete, too.
func (l *looking) hearOthers(ctx context.Context, home server) error {
	for _, other := range l.others {
		var page []*candidate
		var of []*finding
		for _, f := range l.page {
			if f.verdict == condemned && !f.alone {
				if c := other.same(f); c != nil {
					page, of = append(page, c), append(of, f)
				}
			}
		}
		if len(page) == 0 {
			continue
		}
		lost, err := other.isLost(ctx, l)
		if err != nil {
			return err
		}
		found, err := other.lookAlone(ctx, l.caller, l.source, home, page, (*looking).identify)
		if err != nil {
			return err
		}
		for i, g := range found {
			f := of[i]
			switch {
			case lost != "":
				f.keep(unknown, "rule %s is about it, too, and is held: %s", other.Name, lost)
			case g.verdict != condemned:
				f.keep(g.verdict, "rule %s is about it, too: %s", other.Name, strings.Join(g.why, ", "))
			default:
				f.othersGrace = max(f.othersGrace, other.graceFor(g))
				f.observations = append(f.observations, g.observations...)
				f.fingerprint = digest(f.fingerprint + g.fingerprint)[:16]
			}
		}
	}
	return nil
}

// isLost returns the place that the rule relies on and that does not exist; "" if all exist.
func (r *rule) isLost(ctx context.Context, l *looking) (string, error) {
	refs, err := r.references(ctx, l.caller, &notes{state: map[string]string{}}, time.Time{})
	if err != nil || refs.lost != "" {
		return refs.lost, err
	}
	empty, err := r.emptyCollection(ctx, l.source)
	return empty, err
}

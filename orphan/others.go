package orphan

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func meet(rules []*rule) {
	for _, r := range rules {
		for _, other := range rules {
			if other != r {
				r.others = append(r.others, other)
			}
		}
	}
}

// anothers reports whether a key is another rule's candidate, or holds its candidates.
func (r *rule) anothers(key string) bool {
	return slices.ContainsFunc(r.others, func(other *rule) bool {
		return other.candidate(key) != nil || other.holds(key)
	})
}

func (r *rule) holds(key string) bool {
	if r.container == nil {
		return false
	}
	_, ok := r.container.Match(key)
	return ok
}

func (r *rule) candidate(key string) *candidate {
	if r.candidates == nil {
		return nil
	}
	values, ok := r.candidates.Match(key)
	if c := (&candidate{key: key, values: values}); ok && r.ours(c) {
		return c
	}
	return nil
}

func (r *rule) same(f *finding) *candidate {
	if f.member == "" {
		return r.candidate(f.key)
	}
	if r.candidates != nil {
		return nil
	}
	if c := r.ofMember(f.key, f.member); c != nil && r.ours(c) {
		return c
	}
	return nil
}

func (r *rule) claimants(key string) (all []claimant) {
	for _, other := range r.others {
		if c := other.ofKey(key); c != nil && c.alone && other.ours(c) {
			all = append(all, claimant{other, c})
		}
	}
	return all
}

type claimant struct {
	rule *rule
	*candidate
}

func (c claimant) presence() []string {
	switch {
	case c.rule.candidates != nil:
		return []string{"EXISTS", c.key}
	case c.rule.Members.Hash != "": // its value is not needed
		return []string{"HEXISTS", c.key, c.member}
	}
	return c.rule.membership(&finding{candidate: *c.candidate})
}

// unclaimed drops related keys that belong to an existing candidate of another rule. The answers
// become observations: a candidate that comes later keeps its keys.
func (l *looking) unclaimed(ctx context.Context, names []string, keys map[string][]*finding) ([]string, error) {
	claimed := map[string]bool{}
	var asked []question
	for _, key := range names {
		for _, c := range l.claimants(key) {
			args := c.presence()
			asked = append(asked, question{args: args, told: func(answer *redis.Cmd) {
				text := replyText(answer)
				missing := text == "_" || text == ":0"
				claimed[key] = claimed[key] || !missing
				for _, f := range keys[key] {
					if missing {
						f.observations = append(f.observations, observation{args, text, bytesOf(answer), key})
					} else {
						f.because("%s belongs to %s of rule %s, too", key, strings.TrimSpace(c.key+" "+c.member), c.rule.Name)
					}
				}
			}})
		}
	}
	if err := l.ask(ctx, asked); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(key string) bool { return claimed[key] }), nil
}

// belongs is false for a name that parses into other values, as with a member that has a ':': it
// could be somebody else's.
func (r *rule) belongs(t *rules.Template, key string, f *finding) bool {
	values, ok := t.Match(key)
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

// hearOthers keeps what another rule does not condemn, or in a glance what shows it a sign of life.
// Its questions are asked again at the delete.
func (l *looking) hearOthers(ctx context.Context, home server, then ...func(*looking, context.Context) error) error {
	for _, other := range l.others {
		var page []*candidate
		var of []*finding
		for _, f := range l.page {
			if (f.verdict == condemned || f.verdict == "") && !f.alone {
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
		found, err := other.lookAlone(ctx, l.caller, l.source, home, page, then...)
		if err != nil {
			return err
		}
		for i, g := range found {
			f := of[i]
			switch {
			case g.verdict == foreign: // by its type: the other rule is not about it
				f.observations = append(f.observations, g.observations...)
			case lost != "":
				f.keep(unknown, "rule %s is about it, too, and is held: %s", other.Name, lost)
			case g.verdict != condemned && g.verdict != "":
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

// isLost returns a lost place that the rule relies on, or "".
func (r *rule) isLost(ctx context.Context, l *looking) (string, error) {
	refs, err := r.references(ctx, l.caller, &notes{state: map[string]string{}}, time.Time{})
	if err != nil || refs.lost != "" {
		return refs.lost, err
	}
	empty, err := r.emptyCollection(ctx, l.source)
	return empty, err
}

package orphan

import (
	"context"
	"fmt"
	"slices"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

type lives struct {
	of    []sign
	count []int
}

func (r *rule) lives() *lives { return &lives{of: r.life, count: make([]int, len(r.life))} }

func (l *lives) templates() (all []*rules.Template) {
	for _, s := range l.of {
		if l.isKey(s) && len(s.key.Variables()) > 0 {
			all = append(all, s.key)
		}
	}
	return all
}

func (l *lives) isKey(s sign) bool { return s.key != nil && s.kind != "channel" }

func (l *lives) met(key string) {
	for i, s := range l.of {
		if l.isKey(s) && len(s.key.Variables()) > 0 {
			if _, ok := s.key.Match(key); ok {
				l.count[i]++
			}
		}
	}
}

type silence struct{ cautions, notes []string }

// silent returns the signs that nothing on the server could show for any candidate: a note if the
// rules name the place elsewhere too, else a caution, as it may be a slip.
func (l *lives) silent(
	ctx context.Context, r *rule, c caller, places map[string]string,
) (found silence, err error) {
	for i, s := range l.of {
		there, foreseen := true, false
		switch {
		case s.key == nil:
		case s.kind == "channel":
			foreseen = slices.ContainsFunc(r.UnlessLost, func(ref rules.Reference) bool {
				return ref.Channels != nil && ref.Channels.Pattern == s.key.Glob()
			})
			err = c.Call(ctx, func(ctx context.Context) (err error) {
				there, err = channelsMatch(ctx, c.Client(), s.key.Glob())
				return err
			})
		case len(s.key.Variables()) > 0: // a list exists only while it has elements
			there, foreseen = l.count[i] > 0, s.holds == "list" || r.othersCandidates(s.key)
		default:
			key := rules.Literal(s.key.String())
			there = places[key] != none
			foreseen = s.holds == "list" || slices.ContainsFunc(r.UnlessLost, func(ref rules.Reference) bool {
				return slices.Contains(ref.ExistsAny, key)
			})
		}
		if err != nil {
			return found, err
		}
		switch {
		case there:
		case foreseen:
			found.notes = append(found.notes, fmt.Sprintf("keep_if[%d]: nothing is called %q now", i, s.key.String()))
		default:
			found.cautions = append(found.cautions, fmt.Sprintf(
				"keep_if[%d]: nothing is called %q, so it keeps nobody: is it spelled as the application does?",
				i, s.key.String()))
		}
	}
	return found, nil
}

func (r *rule) othersCandidates(t *rules.Template) bool {
	return slices.ContainsFunc(r.others, func(other *rule) bool {
		return other.candidates != nil && other.candidates.Glob() == t.Glob()
	})
}

func (r *rule) typesOfKeys(ctx context.Context, c caller, page []*candidate) (map[string]string, error) {
	var keys []string
	for _, one := range page {
		if one.member == "" && !one.alone {
			keys = append(keys, one.key)
		}
	}
	return typesOf(ctx, c, keys)
}

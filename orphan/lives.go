package orphan

import (
	"context"
	"fmt"
)

// lives counts the keys that the signs of life of a rule are about.
type lives struct {
	of    []sign
	count []int
}

func (r *rule) lives() *lives { return &lives{of: r.life, count: make([]int, len(r.life))} }

// templates are those of the keys with variables.
func (l *lives) templates() (all []*template) {
	for _, s := range l.of {
		if l.isKey(s) && len(s.key.variables()) > 0 {
			all = append(all, s.key)
		}
	}
	return all
}

func (l *lives) isKey(s sign) bool { return s.key != nil && s.kind != "channel" }

func (l *lives) met(key string) {
	for i, s := range l.of {
		if l.isKey(s) && len(s.key.variables()) > 0 {
			if _, ok := s.key.match(key); ok {
				l.count[i]++
			}
		}
	}
}

// silent names the signs that nothing in the server could show, of any candidate.
func (l *lives) silent(ctx context.Context, c caller, places map[string]string) (cautions []string, err error) {
	for i, s := range l.of {
		there := true
		switch {
		case s.key == nil:
		case s.kind == "channel":
			err = c.Call(ctx, func(ctx context.Context) (err error) {
				there, err = channelsMatch(ctx, c.Client(), s.key.glob())
				return err
			})
		case len(s.key.variables()) > 0:
			there = l.count[i] > 0
		default:
			there = places[literal(s.key.text)] != none
		}
		if err != nil {
			return cautions, err
		}
		if !there {
			cautions = append(cautions, fmt.Sprintf(
				"keep_if[%d]: nothing is called %q, so it keeps nobody: is it spelled as the application does?", i, s.key.text))
		}
	}
	return cautions, nil
}

// typesOfKeys asks for the types of candidates that are keys.
func (r *rule) typesOfKeys(ctx context.Context, c caller, page []*candidate) (map[string]string, error) {
	var keys []string
	for _, one := range page {
		if one.member == "" && !one.alone {
			keys = append(keys, one.key)
		}
	}
	return typesOf(ctx, c, keys)
}

package orphan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Odd is a candidate that looks unlike the others of its rule, and may match it by mistake.
type Odd struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict,omitempty"`
	Why     string `json:"why"`
}

const (
	mostShapes = 512
	mostOdd    = 20
)

// aspect is a candidate's type, or the form or length of one variable.
type aspect struct{ of, looks string }

type shapes struct {
	total int
	all   map[aspect][]Odd
	kept  bool // all includes the last one added
	count map[aspect]int
}

func newShapes() *shapes { return &shapes{all: map[aspect][]Odd{}, count: map[aspect]int{}} }

func (s *shapes) add(c *candidate, kind, verdict string) {
	s.total++
	s.kept = false
	note := func(of, looks string) {
		a := aspect{of, looks}
		if s.count[a] == 0 && len(s.count) >= mostShapes {
			return
		}
		if s.count[a]++; len(s.all[a]) < mostOdd {
			s.all[a] = append(s.all[a], Odd{Name: c.name(), Verdict: verdict})
			s.kept = true
		}
	}
	if kind != "" {
		note("type", kind)
	}
	for name, value := range c.values {
		note("{"+name+"}", looks(value))
		note("length of {"+name+"}", fmt.Sprint(len(value)))
	}
}

// Each form includes those before it.
var plainer = []string{"a word", "text", "text with a ':'"}

func looks(value string) string {
	for _, form := range []struct{ only, name string }{
		{"integer", "a number"}, {"uuid", "a UUID"}, {"objectid", "an ObjectID"},
	} {
		if rules.HasForm(value, form.only) {
			return form.name
		}
	}
	rest := strings.Trim(value, "0123456789abcdefABCDEF")
	switch {
	case rest == "" && len(value) >= 16:
		return "hexadecimal"
	case strings.Contains(value, ":"):
		return plainer[2]
	case strings.IndexFunc(value, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_'
	}) >= 0:
		return plainer[1]
	}
	return plainer[0]
}

func few(n, most int) bool { return 4*n <= most || n == 1 && most >= 3 }

func (s *shapes) odd() (found []Odd) {
	usual := map[string]string{}
	for _, a := range slices.SortedFunc(maps.Keys(s.count), func(a, b aspect) int {
		return strings.Compare(a.of+a.looks, b.of+b.looks)
	}) {
		if was, ok := usual[a.of]; !ok || s.count[a] > s.count[aspect{a.of, was}] {
			usual[a.of] = a.looks
		}
	}
	seen := map[string]bool{}
	for _, a := range slices.SortedFunc(maps.Keys(s.count), func(a, b aspect) int {
		return strings.Compare(b.of+b.looks, a.of+a.looks) // types first
	}) {
		most := usual[a.of]
		if a.looks == most || !few(s.count[a], s.count[aspect{a.of, most}]) || !s.differs(a, most) {
			continue
		}
		for _, one := range s.all[a] {
			if !seen[one.Name] && len(found) < mostOdd {
				seen[one.Name] = true
				one.Why = fmt.Sprintf("its %s is %s, of most others %s", a.of, a.looks, most)
				found = append(found, one)
			}
		}
	}
	return found
}

func (s *shapes) differs(a aspect, most string) bool {
	if strings.HasPrefix(a.of, "length") { // counts only if nearly all have the same length
		var is, usual int
		_, _ = fmt.Sscan(a.looks, &is)
		_, _ = fmt.Sscan(most, &usual)
		nearlyAll := 10*s.count[aspect{a.of, most}] >= 9*(s.total-s.count[a])
		return usual >= 8 && nearlyAll && max(is-usual, usual-is) >= 3
	}
	rank := slices.Index(plainer, most)
	return a.of == "type" || rank < 0 || slices.Index(plainer, a.looks) > rank
}

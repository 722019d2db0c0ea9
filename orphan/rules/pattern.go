package rules

// A pattern is the form of names: a template, or text with a '*' at its end.
type pattern []step

// A step takes one byte, or if it repeats any number.
type step struct {
	one     byte
	of      *[256]bool // or one of these
	repeats bool
}

// Bytes that a variable can hold: in a part of a key, with a form of Rule.Only, anything.
var (
	inKey   = allBut(":{}")
	inOnly  = allOf("0123456789abcdefABCDEF-")
	inValue = allBut("")
)

func allBut(text string) *[256]bool {
	set := allOf(text)
	for i := range set {
		set[i] = !set[i]
	}
	return set
}

func allOf(text string) *[256]bool {
	var set [256]bool
	for i := range len(text) {
		set[text[i]] = true
	}
	return &set
}

// textPattern is one name, or if open all names with that prefix.
func textPattern(text string, open bool) (p pattern) {
	for i := range len(text) {
		p = append(p, step{one: text[i]})
	}
	if open {
		p = append(p, step{of: inValue, repeats: true})
	}
	return p
}

func (t *Template) pattern(holds func(variable string) *[256]bool) (p pattern) {
	for _, part := range t.parts {
		if !part.variable {
			p = append(p, textPattern(part.text, false)...)
			continue
		}
		set := holds(part.text)
		if set != inValue { // a member's name and a field's text can be empty
			p = append(p, step{of: set})
		}
		p = append(p, step{of: set, repeats: true})
	}
	if t.rest {
		p = append(p, textPattern("", true)...)
	}
	return p
}

func (s step) fixed() bool { return s.of == nil && !s.repeats }

// meets reports whether a name can fit both patterns. Most patterns differ in their fixed ends, so
// those are compared first.
func (p pattern) meets(q pattern) bool {
	for len(p) > 0 && len(q) > 0 && p[0].fixed() && q[0].fixed() {
		if p[0].one != q[0].one {
			return false
		}
		p, q = p[1:], q[1:]
	}
	for len(p) > 0 && len(q) > 0 && p[len(p)-1].fixed() && q[len(q)-1].fixed() {
		if p[len(p)-1].one != q[len(q)-1].one {
			return false
		}
		p, q = p[:len(p)-1], q[:len(q)-1]
	}
	return p.meetsInside(q)
}

func (p pattern) meetsInside(q pattern) bool {
	type place struct{ p, q int }
	seen := make([]bool, (len(p)+1)*(len(q)+1))
	todo := append(make([]place, 0, 16), place{})
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n := at.p*(len(q)+1) + at.q
		if seen[n] {
			continue
		}
		seen[n] = true
		if at.p == len(p) && at.q == len(q) {
			return true
		}
		after := at // after one byte that both take
		both := at.p < len(p) && at.q < len(q) && p[at.p].shares(q[at.q])
		if at.p < len(p) {
			if p[at.p].repeats {
				todo = append(todo, place{at.p + 1, at.q})
			} else {
				after.p++
			}
		}
		if at.q < len(q) {
			if q[at.q].repeats {
				todo = append(todo, place{at.p, at.q + 1})
			} else {
				after.q++
			}
		}
		if both {
			todo = append(todo, after)
		}
	}
	return false
}

func (s step) shares(t step) bool {
	if s.of == nil {
		return t.takes(s.one)
	}
	if t.of == nil {
		return s.takes(t.one)
	}
	if s.of == t.of {
		return true
	}
	for b := range 256 {
		if s.takes(byte(b)) && t.takes(byte(b)) {
			return true
		}
	}
	return false
}

func (s step) takes(b byte) bool {
	if s.of == nil {
		return s.one == b
	}
	return s.of[b]
}

// clear reports whether two sets of values never make the same name: the text after a variable
// begins with a byte that the variable cannot hold. If not, it returns the variable.
func (t *Template) clear(holds func(variable string) *[256]bool) (unclear string, ok bool) {
	for i, p := range t.parts {
		last := i == len(t.parts)-1
		open := t.rest || i < len(t.parts)-2 // something of any length follows
		switch {
		case !p.variable || !open:
		case last, holds(p.text)[t.parts[i+1].text[0]]:
			return p.text, false
		}
	}
	return "", true
}

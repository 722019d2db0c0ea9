package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const linearPatience = time.Minute

// c8 knows the order of writes, but the time of each only within bounds.
type c8 struct {
	passive
	seen map[string][]porcupine.Operation
	zero time.Time // origin of all times
	made map[string]int
}

type write struct {
	n  int
	to string
}

var register = porcupine.Model{
	Init: func() any { return write{} },
	Step: func(state, input, output any) (bool, any) {
		now := state.(write)
		if w, ok := input.(write); ok {
			return w.n == now.n+1, w
		}
		return output.(string) == now.to, now
	},
}

func newC8(f *Facts) *c8 {
	c := &c8{seen: make(map[string][]porcupine.Operation), made: make(map[string]int)}
	seen := slices.Concat(f.Lookups, f.Acks)
	slices.SortFunc(seen, func(a, b Lookup) int { return a.Call.Compare(b.Call) })
	for _, l := range seen {
		if c.zero.IsZero() {
			c.zero = l.Call
		}
		c.add(l.IMEI, nil, l.Instance, l.Call, l.Return)
	}
	return c
}

func (c *c8) add(imei string, input any, output string, from, until time.Time) {
	ops := c.seen[imei]
	op := porcupine.Operation{ClientId: len(ops), Input: input, Output: output, Call: c.since(from)}
	op.Return = max(c.since(until), op.Call)
	c.seen[imei] = append(ops, op)
}

// All times before the first look-up are one, and so are all that never end.
func (c *c8) since(t time.Time) int64 {
	if t.Unix() >= 1<<40 {
		return math.MaxInt64
	}
	return max(-1, t.Sub(c.zero).Nanoseconds())
}

func (c *c8) after(m *moment) {
	if len(c.seen) == 0 {
		return
	}
	for _, e := range m.changes {
		if c.seen[e.imei] == nil {
			continue
		}
		c.made[e.imei]++
		c.add(e.imei, write{c.made[e.imei], e.to}, "", m.now, m.until)
	}
}

func (c *c8) struck(m *moment) { c.after(m) }

func (c *c8) end(m *moment) {
	for _, imei := range slices.Sorted(maps.Keys(c.seen)) {
		ops := c.seen[imei]
		result := porcupine.CheckOperationsTimeout(register, ops, linearPatience)
		if result == porcupine.Ok {
			continue
		}
		at, what := c.explain(imei, ops, result)
		m.verdict.Violations = append(m.verdict.Violations, Violation{Check: "C8", At: at, What: what})
	}
}

func (c *c8) explain(
	imei string, ops []porcupine.Operation, result porcupine.CheckResult,
) (at time.Time, what string) {
	if result == porcupine.Unknown {
		return c.zero, fmt.Sprintf("device %s: no order of %d operations found within %s",
			imei, len(ops), linearPatience)
	}
	var writes, reads []porcupine.Operation
	for _, op := range ops {
		if op.Input == nil {
			reads = append(reads, op)
		} else {
			writes = append(writes, op)
		}
	}
	slices.SortStableFunc(reads, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	i := sort.Search(len(reads), func(i int) bool {
		some := append(slices.Clone(writes), reads[:i+1]...)
		return porcupine.CheckOperationsTimeout(register, some, linearPatience) == porcupine.Illegal
	})
	if i < len(reads) {
		at = c.zero.Add(time.Duration(reads[i].Call))
		return at, fmt.Sprintf("device %s was seen at %q between %s and %s: "+
			"no order of its %d changes explains that and what was seen before",
			imei, reads[i].Output, clock(at), clock(c.zero.Add(time.Duration(reads[i].Return))), len(writes))
	}
	return c.zero, fmt.Sprintf("device %s: %d operations have no order", imei, len(ops))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

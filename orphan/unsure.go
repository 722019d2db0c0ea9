package orphan

import (
	"cmp"
	"slices"
)

const mostMarks = 100_000

// unsure has condemned candidates without a valid mark, perhaps more than there are marks left. One
// that changed since it was marked draws again; otherwise busy candidates would hold all marks for
// ever.
type unsure struct {
	*lottery
	all map[string]want
}

type want struct {
	mark  mark
	alone *candidate // nil: its name identifies it
	need  need
}

func newUnsure() unsure { return unsure{newLottery(), map[string]want{}} }

func (r *rule) mayMark() int { return min(maxMarks*r.Cap, mostMarks) }

func (x *pass) wantMark(f *finding) {
	name := f.name()
	if _, again := x.unsure.all[name]; again { // SCAN returned it twice
		return
	}
	if !x.unsure.enter(name, x.unsure.number(name)) {
		x.r.Kept[noMark]++
		return
	}
	w := want{mark: mark{f.at, f.fingerprint, f.alone}, need: x.needs(f)}
	if f.alone {
		w.alone = f.itself()
	}
	x.unsure.all[name] = w
	if x.unsure.Len() > x.mayMark() {
		delete(x.unsure.all, x.unsure.lose())
		x.r.Kept[noMark]++
	}
}

// giveMarks returns candidates that lose an invalid mark and get no other.
func (x *pass) giveMarks() (lost []string) {
	taken := len(x.notes.marks)
	for name := range x.unsure.all {
		if _, has := x.notes.marks[name]; has {
			taken--
		}
	}
	slices.SortFunc(x.unsure.tickets, func(a, b ticket) int { return cmp.Compare(a.number, b.number) })
	for i, t := range x.unsure.tickets {
		w := x.unsure.all[t.name]
		if i >= x.mayMark()-taken {
			x.r.Kept[noMark]++
			if _, has := x.notes.marks[t.name]; has {
				delete(x.notes.marks, t.name)
				lost = append(lost, t.name)
			}
			continue
		}
		x.notes.marks[t.name], x.fresh[t.name] = w.mark, w.mark.text()
		c := w.alone
		if c == nil {
			c = x.ofName(t.name)
		}
		x.ripens(c, w.need, 0)
	}
	return lost
}

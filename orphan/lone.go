package orphan

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rollcall-redis/rollcall/guard"
)

// Related keys without their parent turn up all over the keyspace. A full pass gathers them by
// parent first, since only all of them together identify such a candidate.

// lone has the candidates without parents that a walk has found: marked ones first, and a sample of
// the others if their names would take too much memory.
type lone struct {
	*lottery
	all map[string]*candidate
	// counted has the lottery numbers of candidates that are decided or got no place: a walk meets
	// each as often as it has related keys.
	counted map[uint64]bool
}

// mostCounted bounds memory. Candidates beyond it are looked at each time, uncounted.
const mostCounted = 200_000

func newLone() lone { return lone{newLottery(), map[string]*candidate{}, map[uint64]bool{}} }

func (l *lone) done(name string) bool { return l.counted[l.number(name)] }

func (l *lone) once(name string) bool {
	if l.done(name) || len(l.counted) >= mostCounted {
		return false
	}
	l.counted[l.number(name)] = true
	return true
}

func (x *pass) gather(ctx context.Context, candidates []*candidate) error {
	var page []*candidate
	for _, c := range candidates {
		name := c.name()
		switch was := x.lone.all[name]; {
		case was != nil:
			x.holdNames(was.addRelated(c.related, unbounded))
		case !x.lone.done(name):
			c.rest = x.rests[name]
			page = append(page, c)
		}
	}
	x.lone.shrink(x)
	if len(page) == 0 {
		return nil
	}
	found, err := x.glance(ctx, x.Pass, x.set.c.Source, x.home, page)
	if err != nil {
		return err
	}
	var unset []string
	for i, f := range found {
		name := f.name()
		_, marked := x.notes.marks[name]
		if f.rest != nil && f.verdict != absent {
			f.rest.met = true
		}
		switch {
		case f.verdict == absent:
			if marked {
				x.gatherMarked(page[i])
			}
		case f.verdict == "":
			x.gatherLone(page[i], marked)
		case x.lone.once(name):
			delete(x.unseen, name)
			x.r.Scanned++
			x.r.Kept[f.verdict]++
			if marked {
				unset = append(unset, name)
				delete(x.notes.marks, name)
			}
		}
	}
	return x.note(ctx, nil, unset)
}

func (x *pass) gatherMarked(c *candidate) {
	was := x.marked[c.name()]
	if was == nil {
		was = &candidate{key: c.key, member: c.member}
		x.marked[c.name()] = was
	}
	x.holdNames(was.addRelated(c.related, x.roomForNames()))
}

func (x *pass) gatherLone(c *candidate, marked bool) {
	l, name := &x.lone, c.name()
	number := uint64(first)
	if !marked && c.rest == nil {
		number = l.number(name)
	}
	if l.enter(name, number) {
		keys := c.related
		c.related = nil
		x.holdNames(c.addRelated(keys, unbounded))
		l.all[name] = c
	} else if l.once(name) {
		x.r.Kept[noMark]++
	}
	l.shrink(x)
}

func (l *lone) shrink(x *pass) {
	for l.Len() > x.mayMark() || x.roomForNames() < 0 && l.Len() > 1 {
		out := l.lose()
		x.holdNames(-l.all[out].weight)
		delete(l.all, out)
		if l.once(out) {
			x.r.Kept[noMark]++
		}
	}
}

func (x *pass) lookAtLone(ctx context.Context) error {
	var page []*candidate
	keys := 0
	for _, c := range x.lone.all {
		c.tidy()
		page, keys = append(page, c), keys+1+len(c.related)+len(x.exact)
		if len(page) < pageOf && keys < pageOf {
			continue
		}
		if err := x.judge(ctx, page); err != nil {
			return err
		}
		page, keys = nil, 0
	}
	return x.judge(ctx, page)
}

// A rest: see Related keys in the package comment.
type rest struct {
	Meaning string         `json:"meaning"`
	Values  map[string]raw `json:"values"`
	At      int64          `json:"at"` // ms

	met bool // a full pass has met a key of it
}

// A hash: candidate's name -> JSON of its rest.
func restsKey(l guard.Layout, rule string) string { return l.Prefix + "orphan:rests:" + rule }

func (x *pass) readRests(ctx context.Context) error {
	x.rests = map[string]*rest{}
	key := restsKey(x.Layout(), x.r.Rule)
	return eachField(ctx, x.Pass, key, func(name, text string) error {
		r := new(rest)
		if err := json.Unmarshal([]byte(text), r); err != nil {
			return fmt.Errorf("orphan: %s is not Rollcall's; delete the field that cannot be read: %w", key, err)
		}
		x.rests[name] = r
		return nil
	})
}

// eachField reads a hash page by page, and may return a field more than once.
func eachField(ctx context.Context, c caller, key string, told func(field, value string) error) error {
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var page []string
		err := c.Call(ctx, func(ctx context.Context) (err error) {
			page, cursor, err = c.Client().HScan(ctx, key, cursor, "", int64(c.PageSize())).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("orphan: %s: %w", key, err)
		}
		for i := 0; i+1 < len(page); i += 2 {
			if err := told(page[i], page[i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *pass) restOf(f *finding) raw {
	r := f.rest
	if r == nil || r.Meaning != x.meaning {
		r = &rest{Meaning: x.meaning, Values: rawValues(f.values), At: f.at.UnixMilli()}
	}
	text, err := json.Marshal(r)
	if err != nil { // a struct of texts and a number
		panic(err)
	}
	return raw(text)
}

// known reports whether the rule in its present form already condemned the parent, whose values and
// age then need not be read.
func (l *looking) known(f *finding) bool { return f.rest != nil && f.rest.Meaning == l.meaning }

// forgetRests deletes rests whose keys a full pass has not met, or whose parent exists again and
// now owns the related keys.
func (x *pass) forgetRests(ctx context.Context) error {
	var gone []string
	for name, r := range x.rests {
		if !r.met {
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		delete(x.rests, name)
	}
	if x.DryRun() {
		return nil
	}
	return note(ctx, x.Pass, restsKey(x.Layout(), x.r.Rule), nil, gone)
}

package orphan

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (x *pass) names() []string {
	names := slices.SortedFunc(maps.Keys(x.ripe), func(a, b string) int {
		if c := x.notes.marks[a].at.Compare(x.notes.marks[b].at); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	if len(names) > x.Cap {
		x.leave(names[x.Cap:]...)
		names = names[:x.Cap]
	}
	return names
}

func (x *pass) leave(names ...string) {
	x.r.Kept[capped] += len(names)
	if x.r.DryRun { // nothing is deleted, so no room is made
		x.lookAgain(len(names))
		return
	}
	x.wake(0)
	for _, name := range names {
		x.walkAgain = x.walkAgain || x.ripe[name].alone
	}
}

// makeRoom pulls the next full pass forward: if deletes freed marks for condemned candidates
// without one, or if the cap leaves candidates without a parent, which only a full pass meets.
func (x *pass) makeRoom() {
	without := x.withoutMark()
	x.r.Left = x.r.Kept[capped] + without
	room := x.r.Removed > 0 && x.r.Kept[capped] == 0 && without > 0
	if !room && !x.walkAgain {
		return
	}
	if at := time.Now(); at.Before(x.nextFull) {
		x.nextFull = at
	}
}

func (x *pass) withoutMark() int {
	if x.r.Full || x.notes == nil {
		return x.r.Kept[noMark]
	}
	n, _ := strconv.Atoi(x.notes.state[unmarked])
	return n
}

package orphan

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// names are those of the ripe, the oldest mark first, as many as may go. The next pass begins at
// once for the others: after the rest that the janitor gives each sweep, a fiftieth of the
// interval.
func (x *pass) names() []string {
	names := slices.SortedFunc(maps.Keys(x.ripe), func(a, b string) int {
		if c := x.notes.marks[a].at.Compare(x.notes.marks[b].at); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	if len(names) > x.Cap {
		x.r.Kept[capped] += len(names) - x.Cap
		if x.r.DryRun { // nothing goes, so nothing makes room
			x.lookAgain(len(names) - x.Cap)
		} else {
			x.wake(0)
		}
		names = names[:x.Cap]
	}
	return names
}

// makeRoom has the next full pass begin early if some condemned candidates have no mark, and those
// that had one have gone. Others could get none before the interval is over.
func (x *pass) makeRoom() {
	without := x.withoutMark()
	x.r.Left = x.r.Kept[capped] + without
	if x.r.Removed == 0 || x.r.Kept[capped] > 0 || without == 0 {
		return
	}
	if at := time.Now(); at.Before(x.nextFull) {
		x.nextFull = at
	}
}

// withoutMark is how many condemned candidates the last full pass had no mark for.
func (x *pass) withoutMark() int {
	if x.r.Full || x.notes == nil {
		return x.r.Kept[noMark]
	}
	n, _ := strconv.Atoi(x.notes.state[unmarked])
	return n
}

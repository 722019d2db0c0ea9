package orphan

import (
	"container/heap"
	"hash/maphash"
	"math"
)

// A lottery shares out scarce places in a different order each time. In SCAN's order the same names
// would always win.
type lottery struct {
	seed    maphash.Seed
	cut     uint64 // this number and higher ones have lost
	tickets []ticket
}

type ticket struct {
	number uint64
	name   string
}

const first = 0

func newLottery() *lottery { return &lottery{seed: maphash.MakeSeed(), cut: math.MaxUint64} }

func (l *lottery) number(name string) uint64 { return max(first+1, maphash.String(l.seed, name)) }

// enter gives a new name a place, unless its number has lost.
func (l *lottery) enter(name string, number uint64) bool {
	if number >= l.cut {
		return false
	}
	heap.Push(l, ticket{number, name})
	return true
}

func (l *lottery) lose() (name string) {
	t := heap.Pop(l).(ticket)
	l.cut = max(first+1, min(l.cut, t.number))
	return t.name
}

func (l *lottery) Len() int           { return len(l.tickets) }
func (l *lottery) Less(i, j int) bool { return l.tickets[i].number > l.tickets[j].number }
func (l *lottery) Swap(i, j int)      { l.tickets[i], l.tickets[j] = l.tickets[j], l.tickets[i] }
func (l *lottery) Push(t any)         { l.tickets = append(l.tickets, t.(ticket)) }
func (l *lottery) Pop() any {
	last := len(l.tickets) - 1
	t := l.tickets[last]
	l.tickets = l.tickets[:last]
	return t
}

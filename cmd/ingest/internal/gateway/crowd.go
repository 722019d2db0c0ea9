package gateway

import (
	"container/heap"
	"container/list"
	"net/netip"
	"time"
)

type crowd struct {
	size int
	of   map[netip.Prefix]*group
	heap groups
}

// group has an address' sockets in the order in which they reached this standing.
type group struct {
	from    netip.Prefix
	members *list.List // of *session
	at      int        // in the heap
}

func newCrowd() *crowd { return &crowd{of: map[netip.Prefix]*group{}} }

func (c *crowd) add(s *session, from netip.Prefix, since time.Time) {
	g := c.of[from]
	if g == nil {
		g = &group{from: from, members: list.New()}
		c.of[from] = g
		heap.Push(&c.heap, g)
	}
	s.group, s.address, s.since = g, from, since
	s.place = g.members.PushBack(s)
	c.size++
	heap.Fix(&c.heap, g.at)
}

func (c *crowd) remove(s *session) {
	g := s.group
	g.members.Remove(s.place)
	s.group, s.place = nil, nil
	c.size--
	if g.members.Len() == 0 {
		heap.Remove(&c.heap, g.at)
		delete(c.of, g.from)
		return
	}
	heap.Fix(&c.heap, g.at)
}

// largest prefers, among equals, the group with the oldest member.
func (c *crowd) largest() *group {
	if len(c.heap) == 0 {
		return nil
	}
	return c.heap[0]
}

func (g *group) oldest() *session { return g.members.Front().Value.(*session) }

type groups []*group

func (h groups) Len() int { return len(h) }

func (h groups) Less(i, j int) bool {
	if n, m := h[i].members.Len(), h[j].members.Len(); n != m {
		return n > m
	}
	return h[i].members.Len() > 0 && h[i].oldest().since.Before(h[j].oldest().since)
}

func (h groups) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *groups) Push(g any) {
	g.(*group).at = len(*h)
	*h = append(*h, g.(*group))
}

func (h *groups) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return g
}

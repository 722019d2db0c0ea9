// Package doors decides who may stay when there is no room for everybody.
//
// A [Room] counts its guests by network (a /24 of IPv4, a /64 of IPv6) and, within a network, by
// address. In a full room a newcomer takes the place of
//
//  1. a guest of the network with most guests that have earned nothing, if these are more than a
//     32nd of the room,
//  2. or of the network, or the address in the newcomer's own network, with most guests that have
//     earned their place, if the newcomer's has fewer,
//  3. or of any network with several guests that have earned nothing, or a guest of that kind that
//     has been here for three seconds.
//
// So a flood displaces itself, and no network keeps more than an equal share while others wait. Of
// an address' guests the one goes that earned its place, or else came, the longest time ago.
package doors

import (
	"container/heap"
	"container/list"
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// divisor: networks with at most a 32nd of the room in guests without merit come last.
	divisor = 32
	// spared is how long a network's only guest without merit is safe: a slow radio needs a second
	// or two.
	spared = 3 * time.Second
	// lookAgain bounds the pause of a newcomer that waits for a place.
	lookAgain = time.Second
)

// Config configures a Room.
type Config struct {
	Most int // guests
	// Keep is how long a place stays earned without another [Guest.Earn]; 0 means for ever.
	Keep time.Duration
	// Rotate lets a newcomer that would have to wait replace a guest that has earned its place: of
	// its own network, if there is one.
	Rotate bool
}

// Guest is one connection, in one room. Its methods must not be called while it enters.
type Guest struct {
	// End is called once if another guest takes this one's place. It must not block.
	End func()

	room    *Room      // set by Enter
	addr    netip.Addr // invalid while unknown: then the guest is in no group
	merit   bool
	since   time.Time // when it came, or last earned its place
	host    *host
	place   *list.Element // in the host's guests
	order   *list.Element // in the rank's order
	present bool
}

// Room is safe for concurrent use.
type Room struct {
	cfg   Config
	freed chan struct{} // holds a token once a place is free, or a guest less safe

	mu    sync.Mutex
	plain rank // guests that have earned nothing
	merit rank
}

// rank holds guests of one kind, oldest first.
type rank struct {
	order list.List // of *Guest
	nets  map[netip.Prefix]*network
	heap  networks
}

type network struct {
	at    int // in the heap
	size  int
	hosts map[netip.Addr]*host
}

type host struct {
	addr   netip.Addr
	guests list.List // of *Guest
}

// New returns an empty room.
func New(cfg Config) *Room {
	r := &Room{cfg: cfg, freed: make(chan struct{}, 1)}
	r.plain.nets, r.merit.nets = map[netip.Prefix]*network{}, map[netip.Prefix]*network{}
	return r
}

// Wait returns once g is in the room, or the cause of ctx's end.
func (r *Room) Wait(ctx context.Context, g *Guest, addr netip.Addr) error {
	for {
		left := r.try(g, addr)
		if left == 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-r.freed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Enter reports whether there was a place for g, at once.
func (r *Room) Enter(g *Guest, addr netip.Addr) bool { return r.try(g, addr) == 0 }

// try returns zero once g is in the room, or when to try again.
func (r *Room) try(g *Guest, addr netip.Addr) (left time.Duration) {
	r.mu.Lock()
	now := time.Now()
	r.lapse(now)
	g.room, g.addr, g.since = r, addr, now
	r.add(g)
	var out *Guest
	if r.plain.order.Len()+r.merit.order.Len() > r.cfg.Most {
		if out, left = r.least(g, now); out == nil {
			out = g
		}
		r.remove(out)
	}
	r.mu.Unlock()
	if out != nil && out != g {
		out.End()
	}
	if out == g {
		return max(left, time.Millisecond)
	}
	return 0
}

// Move counts g by another address.
func (g *Guest) Move(addr netip.Addr) { g.change(func() { g.addr = addr }) }

// Earn makes g's place safe, or renews that.
func (g *Guest) Earn() {
	if !g.renew() {
		g.change(func() { g.merit, g.since = true, time.Now() })
	}
}

// renew returns false if g has not earned its place yet. It is called for each frame, and
// allocates nothing.
func (g *Guest) renew() bool {
	r := g.room
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !g.present || !g.merit {
		return !g.present
	}
	g.since = time.Now()
	r.merit.order.MoveToBack(g.order)
	if g.host != nil {
		g.host.guests.MoveToBack(g.place)
	}
	return true
}

// Lose takes back what Earn gave.
func (g *Guest) Lose() { g.change(func() { g.merit, g.since = false, time.Now() }) }

// change does nothing if g has left: somebody else may have taken its place.
func (g *Guest) change(do func()) {
	r := g.room
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.present {
		r.remove(g)
		do()
		r.add(g)
		r.tell()
	}
}

// Leave frees g's place. It may be called again, and for a guest that never had a place or has lost
// it.
func (g *Guest) Leave() {
	r := g.room
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.present {
		r.remove(g)
	}
	r.tell()
}

func (r *Room) tell() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// Size counts the guests, and those of them whose place is not earned.
func (r *Room) Size() (all, plain int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lapse(time.Now())
	return r.plain.order.Len() + r.merit.order.Len(), r.plain.order.Len()
}

// Largest is the number of guests from the network with most that have earned their place.
func (r *Room) Largest() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.merit.largest(); n != nil {
		return n.size
	}
	return 0
}

// The caller of the following holds mu.

func (r *Room) rank(g *Guest) *rank {
	if g.merit {
		return &r.merit
	}
	return &r.plain
}

// lapse takes back places that were earned too long ago.
func (r *Room) lapse(now time.Time) {
	for r.cfg.Keep > 0 && r.merit.order.Len() > 0 {
		g := r.merit.order.Front().Value.(*Guest)
		if now.Sub(g.since) < r.cfg.Keep {
			return
		}
		r.remove(g)
		g.merit, g.since = false, now
		r.add(g)
	}
}

func (r *Room) add(g *Guest) {
	to := r.rank(g)
	g.present, g.order = true, to.order.PushBack(g)
	if !g.addr.IsValid() {
		return
	}
	at := networkOf(g.addr)
	n := to.nets[at]
	if n == nil {
		n = &network{hosts: map[netip.Addr]*host{}}
		to.nets[at] = n
		heap.Push(&to.heap, n)
	}
	key := hostOf(g.addr)
	if g.host = n.hosts[key]; g.host == nil {
		g.host = &host{addr: key}
		n.hosts[key] = g.host
	}
	g.place = g.host.guests.PushBack(g)
	n.size++
	heap.Fix(&to.heap, n.at)
}

func (r *Room) remove(g *Guest) {
	from := r.rank(g)
	from.order.Remove(g.order)
	g.present = false
	if g.host == nil {
		return
	}
	at := networkOf(g.host.addr)
	n := from.nets[at]
	g.host.guests.Remove(g.place)
	n.size--
	if g.host.guests.Len() == 0 {
		delete(n.hosts, g.host.addr)
	}
	g.host = nil
	if n.size == 0 {
		heap.Remove(&from.heap, n.at)
		delete(from.nets, at)
		return
	}
	heap.Fix(&from.heap, n.at)
}

// least returns whose place g takes, never g itself, or how long until there may be somebody.
func (r *Room) least(g *Guest, now time.Time) (*Guest, time.Duration) {
	crowd := r.plain.largest()
	if crowd != nil && crowd.size > max(1, r.cfg.Most/divisor) {
		return crowd.oldest(), 0
	}
	if out := r.unfair(g); out != nil {
		return out, 0
	}
	if crowd != nil && crowd.size > 1 {
		return crowd.oldest(), 0
	}
	left := lookAgain
	if front := r.plain.order.Front(); front != nil && front.Value != g {
		oldest := front.Value.(*Guest)
		rest := spared - now.Sub(oldest.since)
		if rest <= 0 {
			return oldest, 0
		}
		left = min(left, rest)
	}
	return nil, left
}

// unfair returns a guest with merit whose network, or address in g's network, has more than g's.
func (r *Room) unfair(g *Guest) *Guest {
	crowd := r.merit.largest()
	if crowd == nil {
		return nil
	}
	if !g.addr.IsValid() {
		return crowd.oldest()
	}
	at, from := networkOf(g.addr), hostOf(g.addr)
	size, own := 0, 0
	for _, of := range []*rank{&r.plain, &r.merit} {
		if n := of.nets[at]; n != nil {
			size += n.size
			if h := n.hosts[from]; h != nil {
				own += h.guests.Len()
			}
		}
	}
	near := r.merit.nets[at]
	if crowd != near && (crowd.size > size || r.cfg.Rotate && near == nil) {
		return crowd.oldest()
	}
	if near == nil {
		return nil
	}
	if h := near.fullest(); r.cfg.Rotate || h.addr != from && h.guests.Len() > own {
		return h.oldest()
	}
	return nil
}

func (k *rank) largest() *network {
	if len(k.heap) == 0 {
		return nil
	}
	return k.heap[0]
}

func (n *network) oldest() *Guest { return n.fullest().oldest() }

// fullest prefers, among equals, the address with the oldest guest.
func (n *network) fullest() (most *host) {
	for _, h := range n.hosts {
		if most == nil || h.guests.Len() > most.guests.Len() ||
			h.guests.Len() == most.guests.Len() && h.oldest().since.Before(most.oldest().since) {
			most = h
		}
	}
	return most
}

func (h *host) oldest() *Guest { return h.guests.Front().Value.(*Guest) }

// Addr returns the address of a peer ("address:port"); invalid without one, such as at a Unix
// socket.
func Addr(peer string) netip.Addr {
	at, _ := netip.ParseAddrPort(peer)
	return at.Addr().Unmap().WithZone("")
}

// Network returns the network of a peer ("address:port").
func Network(peer string) netip.Prefix { return networkOf(Addr(peer)) }

func networkOf(addr netip.Addr) netip.Prefix {
	bits := 24
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}

// hostOf returns an address of a network: a host of IPv6 chooses among all of its /64.
func hostOf(addr netip.Addr) netip.Addr {
	if addr.Is6() {
		return networkOf(addr).Addr()
	}
	return addr
}

// networks is a heap, the largest first.
type networks []*network

func (h networks) Len() int           { return len(h) }
func (h networks) Less(i, j int) bool { return h[i].size > h[j].size }
func (h networks) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *networks) Push(n any) {
	n.(*network).at = len(*h)
	*h = append(*h, n.(*network))
}

func (h *networks) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return n
}

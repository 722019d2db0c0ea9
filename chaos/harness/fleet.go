package harness

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
)

// Fleet remembers every socket: the truth for the judge.
type Fleet struct {
	sim.Fleet

	mu      sync.Mutex
	sockets []judge.Socket
	acks    []judge.Lookup
	present map[string]int       // IMEI -> index in sockets
	sure    map[string]time.Time // IMEI -> last known to be open
	acked   map[string]int       // IMEI -> records
	// IMEI -> its replica may have closed it since: a command was not answered
	maybe  map[string]bool
	closed []judge.Socket // by a replica: Ended is when the device found out
}

func newFleet(n int) *Fleet {
	return &Fleet{
		Fleet:   sim.NewFleet(n, 350_000_000_000_000, Patience),
		present: make(map[string]int), acked: make(map[string]int), sure: make(map[string]time.Time),
		maybe: make(map[string]bool),
	}
}

// Connect leaves device i's former socket open until DropStale.
func (d *Fleet) Connect(ctx context.Context, i int, r *Replica) error {
	imei := d.IMEI(i)
	d.mu.Lock()
	before, had := d.present[imei]
	if had {
		d.sockets[before].Ended = d.ends(imei)
	}
	n := len(d.sockets)
	d.sockets = append(d.sockets, judge.Socket{IMEI: imei, Instance: r.ID, Asked: time.Now()})
	d.mu.Unlock()

	asked := time.Now()
	err := d.Device(i).Move(ctx, r.Devices)

	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if late, ok := ctx.Deadline(); err != nil && ok && late.Before(now) {
		now = late // however long it took to report that
	}
	if err == nil {
		d.sockets[n].Live = now
		if now.Sub(asked) < unregistered {
			d.acks = append(d.acks, judge.Lookup{IMEI: imei, Instance: r.ID, Call: asked, Return: now})
		}
		d.present[imei], d.sure[imei], d.maybe[imei] = n, now, false
		return nil
	}
	d.sockets[n].Ended = now // it may still have been registered
	if had {                 // whoever has met the newer socket has the older one closed, sooner or later
		delete(d.present, imei)
		d.Device(i).Leave()
	}
	return err
}

// Send sends a record. A closed socket has ended when it was last known to be open, and one without
// an answer is abandoned.
func (d *Fleet) Send(ctx context.Context, i int) error {
	begun := time.Now()
	_, err := d.Device(i).Report(ctx, 1)
	imei := d.IMEI(i)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.sure[imei], d.maybe[imei] = begun, false
		d.acked[imei]++
		return nil
	}
	d.LetGo(i, !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded))
	return err
}

// LetGo abandons device i's socket. closed means that its replica may have closed it already.
func (d *Fleet) LetGo(i int, closed bool) {
	imei := d.IMEI(i)
	d.mu.Lock()
	if n, had := d.present[imei]; had {
		d.sockets[n].Ended = d.ends(imei)
		if closed {
			d.closed = append(d.closed, d.sockets[n])
			d.sockets[n].Ended = d.sure[imei]
		}
		delete(d.present, imei)
	}
	d.mu.Unlock()
	d.Device(i).Leave()
}

// MayClose records that device i does not answer a command: its replica may close the socket.
func (d *Fleet) MayClose(i int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.maybe[d.IMEI(i)] = true
}

// The caller holds d.mu.
func (d *Fleet) ends(imei string) time.Time {
	if d.maybe[imei] {
		return d.sure[imei]
	}
	return time.Now()
}

// Len returns the number of devices.
func (d *Fleet) Len() int { return len(d.Fleet) }

// Device returns device i.
func (d *Fleet) Device(i int) *sim.Device { return d.Fleet[i] }

// IMEI returns that of device i.
func (d *Fleet) IMEI(i int) string { return d.Device(i).IMEI() }

// DropStale closes the sockets that device i has moved away from.
func (d *Fleet) DropStale(i int) { d.Device(i).DropStale() }

// At returns device i's address.
func (d *Fleet) At(i int) string { return d.Device(i).At() }

// ConnectAll moves device i to where(i), many at once.
func (d *Fleet) ConnectAll(ctx context.Context, which []int, where func(i int) *Replica) error {
	p := pool.New().WithErrors().WithMaxGoroutines(32)
	for _, i := range which {
		p.Go(func() error { return d.Connect(ctx, i, where(i)) })
	}
	return p.Wait()
}

// LeaveAll closes the devices' sockets.
func (d *Fleet) LeaveAll(which []int) {
	for _, i := range which {
		d.end(func(imei string, _ *judge.Socket) bool { return imei == d.IMEI(i) })
		d.Device(i).Leave()
	}
}

// Losing precedes a replica's loss of its sockets, LostAt follows.
func (d *Fleet) Losing(r *Replica) {
	d.end(func(_ string, s *judge.Socket) bool { return s.Instance == r.ID })
}

// LostAt returns the devices.
func (d *Fleet) LostAt(r *Replica) []int { return d.Fleet.Lost(r.Devices) }

func (d *Fleet) end(which func(imei string, s *judge.Socket) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for imei, n := range d.present {
		if s := &d.sockets[n]; which(imei, s) {
			s.Ended = d.ends(imei)
			delete(d.present, imei)
		}
	}
}

// Live maps each device to its instance.
func (d *Fleet) Live() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	live := make(map[string]string, len(d.present))
	for imei, n := range d.present {
		live[imei] = d.sockets[n].Instance
	}
	return live
}

// A device waits at least this long for an answer if its registration did not land: a faster answer
// is a confirmation.
const unregistered = 900 * time.Millisecond

// History returns every socket and every confirmed registration.
func (d *Fleet) History() ([]judge.Socket, []judge.Lookup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.sockets), slices.Clone(d.acks)
}

// Acknowledged counts each device's records.
func (d *Fleet) Acknowledged() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.acked)
}

// closedBy returns what instances closed of their own accord.
func (d *Fleet) closedBy(instances []string) (which []judge.Socket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.closed {
		if slices.Contains(instances, s.Instance) {
			which = append(which, s)
		}
	}
	return which
}

// Some returns devices from one number to below another.
func Some(from, to int) (which []int) {
	for i := from; i < to; i++ {
		which = append(which, i)
	}
	return which
}

package device

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Fleet records where each of its devices has its present socket. It is safe for concurrent use.
type Fleet struct{ slots []slot }

type slot struct {
	mu    sync.Mutex // held while the device is used
	dev   *Device
	track *Track
	at    atomic.Pointer[string] // of its present socket; nil: none
}

// NewFleet returns n devices whose IMEIs count up from first, zero-padded to 15 digits. Device i
// drives the track of seed i.
func NewFleet(n int, first uint64, opt Options) *Fleet {
	f := &Fleet{slots: make([]slot, n)}
	for i := range f.slots {
		f.slots[i].dev = New(fmt.Sprintf("%015d", first+uint64(i)), opt)
		f.slots[i].track = NewTrack(uint64(i))
	}
	return f
}

// Len returns the number of devices.
func (f *Fleet) Len() int { return len(f.slots) }

// IMEI returns that of device i.
func (f *Fleet) IMEI(i int) string { return f.slots[i].dev.IMEI() }

// Device returns device i. The fleet does not see changes to the present socket made there.
func (f *Fleet) Device(i int) *Device { return f.slots[i].dev }

// Move connects device i to addr. The former socket stays open until [Fleet.DropStale]. Refusal is
// an error, and after an error the device is where it was.
func (f *Fleet) Move(ctx context.Context, i int, addr string) error {
	s := &f.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	accepted, err := s.dev.Connect(ctx, addr)
	if err != nil {
		return err
	}
	if !accepted {
		return fmt.Errorf("device %s: refused by %s", s.dev.IMEI(), addr)
	}
	s.at.Store(&addr)
	return nil
}

// Report sends the next n records of device i's track in codec 8. An error if another number was
// acknowledged leaves open whether they are stored.
func (f *Fleet) Report(ctx context.Context, i, n int) ([]teltonika.Record, error) {
	s := &f.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	records := s.track.Next(n)
	acked, err := s.dev.Send(ctx, teltonika.Codec8, records...)
	if err == nil && acked != n {
		err = fmt.Errorf("device %s: %d of %d records acknowledged", s.dev.IMEI(), acked, n)
	}
	return records, err
}

// DropStale closes the sockets that device i has moved away from.
func (f *Fleet) DropStale(i int) { f.slots[i].dev.DropStale() }

// Leave closes all sockets of device i.
func (f *Fleet) Leave(i int) {
	f.slots[i].mu.Lock()
	defer f.slots[i].mu.Unlock()
	f.slots[i].leave()
}

func (s *slot) leave() {
	s.dev.Close()
	s.at.Store(nil)
}

// Lost closes every socket to addr, whose server has died, and returns their devices in order.
func (f *Fleet) Lost(addr string) (devices []int) {
	for i := range f.slots {
		s := &f.slots[i]
		s.mu.Lock()
		if at := s.at.Load(); at != nil && *at == addr {
			s.leave()
			devices = append(devices, i)
		}
		s.mu.Unlock()
	}
	return devices
}

// Where returns each present socket's address by IMEI.
func (f *Fleet) Where() map[string]string {
	where := make(map[string]string, len(f.slots))
	for i := range f.slots {
		if at := f.slots[i].at.Load(); at != nil {
			where[f.IMEI(i)] = *at
		}
	}
	return where
}

// CloseAll closes every device's sockets.
func (f *Fleet) CloseAll() {
	for i := range f.slots {
		f.Leave(i)
	}
}

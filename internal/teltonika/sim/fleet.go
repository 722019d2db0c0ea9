package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Fleet is devices that a test moves. Its methods, and those of its devices that are beside them
// here, are safe for concurrent use.
type Fleet []*Device

// NewFleet returns n devices whose IMEIs count up from first, zero-padded to 15 digits. Device i
// drives the track of seed i.
func NewFleet(n int, first uint64, timeout time.Duration) Fleet {
	f := make(Fleet, n)
	for i := range f {
		f[i] = New(fmt.Sprintf("%015d", first+uint64(i)), timeout)
		f[i].track = NewTrack(uint64(i))
	}
	return f
}

// Where returns, by IMEI, where each connected device's present socket leads.
func (f Fleet) Where() map[string]string {
	where := make(map[string]string, len(f))
	for _, d := range f {
		if at := d.At(); at != "" {
			where[d.imei] = at
		}
	}
	return where
}

// DropStale closes the sockets that devices have moved away from, or left without coverage.
func (f Fleet) DropStale() {
	for _, d := range f {
		d.DropStale()
	}
}

// Close closes every device's sockets.
func (f Fleet) Close() {
	for _, d := range f {
		d.Leave()
	}
}

// Lost closes every socket to addr, whose server has died, and returns their devices in order.
func (f Fleet) Lost(addr string) (devices []int) {
	for i, d := range f {
		d.use.Lock()
		if d.At() == addr {
			d.Close()
			devices = append(devices, i)
		}
		d.use.Unlock()
	}
	return devices
}

// Move connects the device to addr. The former socket stays open until [Device.DropStale]. Refusal
// is an error, and after an error the device is where it was.
func (d *Device) Move(ctx context.Context, addr string) error {
	d.use.Lock()
	defer d.use.Unlock()
	accepted, err := d.Connect(ctx, addr)
	if err == nil && !accepted {
		err = fmt.Errorf("device %s: refused by %s", d.imei, addr)
	}
	return err
}

// Report sends the next n records of the device's track in codec 8. An error if another number was
// acknowledged leaves open whether they are stored.
func (d *Device) Report(ctx context.Context, n int) ([]teltonika.Record, error) {
	d.use.Lock()
	defer d.use.Unlock()
	records := d.track.Next(n)
	acked, err := d.Send(ctx, teltonika.Codec8, records...)
	if err == nil && acked != n {
		err = fmt.Errorf("device %s: %d of %d records acknowledged", d.imei, acked, n)
	}
	return records, err
}

// Leave closes all sockets once no Move or Report is under way.
func (d *Device) Leave() {
	d.use.Lock()
	defer d.use.Unlock()
	d.Close()
}

package sim

import (
	"math/rand/v2"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Epoch is the time of every track's first record, in Unix milliseconds.
const Epoch = 1_700_000_000_000

// Step is between two records, in milliseconds.
const Step = 10_000

// Track makes the records of a vehicle that drives around a town, the same for the same seed, for
// any codec. IMEI and time identify a record. It is not safe for concurrent use.
type Track struct {
	src      rand.PCG
	next     uint64
	lon, lat int32
	angle    int
	speed    int
	odometer uint64 // metres
}

// NewTrack returns the track of a seed.
func NewTrack(seed uint64) *Track { return trackFrom(seed, 0) }

// trackFrom returns one that begins so many records later.
func trackFrom(seed uint64, records int) *Track {
	t := &Track{next: Epoch + uint64(records)*Step}
	t.src.Seed(seed, 0)
	rnd := rand.New(&t.src)
	t.angle = rnd.IntN(360)
	t.lon = 252_797_000 + rnd.Int32N(1_000_000) - 500_000
	t.lat = 546_872_000 + rnd.Int32N(1_000_000) - 500_000
	return t
}

// Next returns the next n records.
func (t *Track) Next(n int) []teltonika.Record {
	records := make([]teltonika.Record, n)
	for i := range records {
		records[i] = t.step()
	}
	return records
}

func (t *Track) step() teltonika.Record {
	rnd := rand.New(&t.src)
	t.angle = (t.angle + rnd.IntN(61) + 330) % 360
	t.speed = min(max(t.speed+rnd.IntN(31)-14, 0), 130)
	metres := t.speed * (Step / 1000) * 10 / 36
	t.odometer += uint64(metres)
	// Straight along one axis: no floating point that could differ between machines.
	along := int32(metres * 90) // a metre is about 90 units of 1e-7 degrees of latitude
	switch t.angle / 90 {
	case 0:
		t.lat += along
	case 1:
		t.lon += along
	case 2:
		t.lat -= along
	default:
		t.lon -= along
	}
	ignition := uint64(0)
	if t.speed > 0 {
		ignition = 1
	}
	io := teltonika.NewElements(
		teltonika.Element{ID: 239, Size: 1, Value: ignition},
		teltonika.Element{ID: 21, Size: 1, Value: uint64(rnd.IntN(6))}, // GSM signal
		// external voltage, mV
		teltonika.Element{ID: 66, Size: 2, Value: uint64(12_000 + rnd.IntN(2_500))},
		teltonika.Element{ID: 16, Size: 4, Value: t.odometer & 0xFFFF_FFFF},
		// driver's key: mostly above what a double can hold
		teltonika.Element{ID: 78, Size: 8, Value: rnd.Uint64()},
	)
	r := teltonika.Record{
		Timestamp: t.next, Longitude: t.lon, Latitude: t.lat, Altitude: int16(100 + rnd.IntN(50)),
		Angle: uint16(t.angle), Speed: uint16(t.speed), Satellites: byte(4 + rnd.IntN(12)), IO: io,
	}
	t.next += Step
	return r
}

package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
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

const (
	// MostDevices is the most in one simulation.
	MostDevices = 1_000_000
	// MostBacklog is what a real device can store.
	MostBacklog = 192_000
	// MostRecords fit in the frame of 1,280 bytes that trackers document.
	MostRecords = 10

	// MostFirstIMEI leaves room to count up.
	MostFirstIMEI = 99_999_999_999_999 - MostDevices

	firstIMEI = 35_630_704_000_000 // the fifteenth digit is the check digit
)

// Config describes a simulation. ingest simulate -h explains the fields, which are its flags, and
// their defaults.
type Config struct {
	Devices    int
	Targets    []string
	Interval   time.Duration
	Records    int
	Codec      teltonika.Codec
	Backlog    int
	HalfOpen   float64
	Seed       uint64
	FirstIMEI  uint64
	LadderUnit time.Duration
	Timeout    time.Duration
	// Ramp is the time within which devices are switched on. Default Interval, 10 s at most.
	Ramp time.Duration
	// Acknowledged, if not nil, is called for each frame, on any goroutine. It may keep the
	// records.
	Acknowledged func(imei string, records []teltonika.Record)
}

func (c Config) withDefaults() Config {
	c.Interval = cmp.Or(c.Interval, 10*time.Second)
	c.Records = cmp.Or(c.Records, 1)
	c.Codec = cmp.Or(c.Codec, teltonika.Codec8)
	c.FirstIMEI = cmp.Or(c.FirstIMEI, firstIMEI)
	c.LadderUnit = cmp.Or(c.LadderUnit, time.Minute)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Ramp = cmp.Or(c.Ramp, min(c.Interval, 10*time.Second))
	return c
}

// check leaves the other fields to callers: see "ingest simulate".
func (c Config) check() error {
	for _, t := range c.Targets {
		host, port, err := net.SplitHostPort(t)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
			return fmt.Errorf("sim: expected a target as host:port, got %q", t)
		}
	}
	return nil
}

func imeiOf(first uint64, i int) string {
	digits := fmt.Sprintf("%014d", first+uint64(i))
	for check := byte('0'); check <= '9'; check++ {
		if imei := digits + string(check); teltonika.LuhnValid(imei) {
			return imei
		}
	}
	panic("sim: no check digit for " + digits) // one of ten always matches
}

// Simulation is devices that live by themselves. It is safe for concurrent use.
type Simulation struct {
	Fleet
	cfg      Config
	trackers []*tracker
	targets  atomic.Pointer[[]string]

	mu  sync.Mutex
	now Counts
}

// Simulate returns devices that are not switched on yet, or an error that names a wrong target.
func Simulate(cfg Config) (*Simulation, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Simulation{cfg: cfg, now: Counts{Devices: cfg.Devices, Backlog: cfg.Backlog * cfg.Devices}}
	s.SetTargets(cfg.Targets...)
	for i := range cfg.Devices {
		t := &tracker{Device: New(imeiOf(cfg.FirstIMEI, i), cfg.Timeout), of: s, stored: cfg.Backlog}
		t.src.Seed(cfg.Seed, uint64(i))
		t.seed = rand.New(&t.src).Uint64()
		t.track = trackFrom(t.seed, cfg.Backlog)
		s.Fleet, s.trackers = append(s.Fleet, t.Device), append(s.trackers, t)
	}
	return s, nil
}

// Run may be called once. It returns when ctx has ended and all sockets are closed: failures are
// counted and retried.
func (s *Simulation) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, t := range s.trackers {
		running.Go(func() { t.run(ctx) })
	}
	running.Wait()
}

// SetTargets changes the targets of new connections. Without addresses it changes nothing.
func (s *Simulation) SetTargets(addrs ...string) {
	if len(addrs) > 0 {
		s.targets.Store(&addrs)
	}
}

// LoseCoverage makes n connected devices lose coverage when their next frame is due, or as many as
// it finds.
func (s *Simulation) LoseCoverage(n int) (asked int) {
	for _, t := range s.trackers {
		if asked < n && t.At() != "" && t.lose.CompareAndSwap(false, true) {
			asked++
		}
	}
	return asked
}

// Counts returns the present ones.
func (s *Simulation) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *Simulation) count(add func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.now)
}

// Counts is a simulation's history and present state.
type Counts struct {
	Devices   int
	Connected int // by the devices' own knowledge

	Frames     int // including re-sent ones
	Resent     int // part of Frames
	Acked      int // frames
	Records    int // in acknowledged frames
	Backlog    int // records not yet acknowledged
	KeepAlives int
	Commands   int // answered

	Accepted   int // handshakes
	Reconnects int // part of Accepted, without each device's first
	Failed     int // attempts to connect
	Refused    int // part of Failed: at the handshake
	HalfOpen   int // forgotten sockets

	Acknowledgements Latency // from writing a frame to its acknowledgement
	LastFailure      error   // of an attempt to connect
}

// steps is the number of buckets per doubling of a duration.
const steps = 8

// Latency is a distribution of durations: bucket i counts those of up to 2^(i/steps) - 1 µs.
type Latency [64 * steps]uint64

// Add counts a duration.
func (l *Latency) Add(d time.Duration) {
	l[int(math.Ceil(steps*math.Log2(float64(max(d, 0)/time.Microsecond)+1)))]++
}

// Quantile returns a bound on the shortest share q of the durations, at most an eighth too high.
func (l *Latency) Quantile(q float64) time.Duration {
	var total, sum uint64
	for _, n := range l {
		total += n
	}
	for i, n := range l {
		if sum += n; n > 0 && float64(sum) >= q*float64(total) {
			return time.Duration((math.Exp2(float64(i)/steps) - 1) * float64(time.Microsecond))
		}
	}
	return 0
}

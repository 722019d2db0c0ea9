package simulate

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
)

// Fleet is safe for concurrent use.
type Fleet struct {
	cfg      Config
	trackers []tracker
	targets  atomic.Pointer[[]string]
	counter
}

// New returns a fleet that is not switched on yet, or an error with every fault of the Config.
func New(cfg Config) (*Fleet, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Fleet{cfg: cfg, trackers: make([]tracker, cfg.Devices)}
	f.SetTargets(cfg.Targets...)
	f.now = Counts{Devices: cfg.Devices, Backlog: cfg.Backlog * cfg.Devices}
	for i := range f.trackers {
		t := &f.trackers[i]
		t.fleet = f
		t.dev = device.New(imeiOf(cfg.FirstIMEI, i), device.Options{Timeout: cfg.Timeout})
		t.src.Seed(cfg.Seed, uint64(i))
		t.track = *device.NewTrack(rand.New(&t.src).Uint64())
	}
	return f, nil
}

// Run may be called once. When ctx ends it closes all sockets and returns nil: failures are counted
// and retried.
func (f *Fleet) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for i := range f.trackers {
		running.Go(func() { f.trackers[i].run(ctx) })
	}
	running.Wait()
	return nil
}

// SetTargets changes the targets of new connections. Without addresses it changes nothing.
func (f *Fleet) SetTargets(addrs ...string) {
	if len(addrs) > 0 {
		f.targets.Store(&addrs)
	}
}

// LoseCoverage makes n connected devices lose coverage when their next frame is due, or as many as
// it finds.
func (f *Fleet) LoseCoverage(n int) (asked int) {
	for i := range f.trackers {
		if t := &f.trackers[i]; asked < n && t.at.Load() != nil && t.lose.CompareAndSwap(false, true) {
			asked++
		}
	}
	return asked
}

// DropStale closes the sockets left behind without coverage.
func (f *Fleet) DropStale() {
	for i := range f.trackers {
		f.trackers[i].dev.DropStale()
	}
}

// Where returns, by IMEI, the target of every device that considers itself connected.
func (f *Fleet) Where() map[string]string {
	where := make(map[string]string, len(f.trackers))
	for i := range f.trackers {
		t := &f.trackers[i]
		if at := t.at.Load(); at != nil {
			where[t.dev.IMEI()] = *at
		}
	}
	return where
}

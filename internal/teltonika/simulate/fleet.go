package simulate

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
)

// Fleet is a number of simulated devices. Its methods are safe for concurrent use.
type Fleet struct {
	cfg      Config
	trackers []tracker
	targets  atomic.Pointer[[]string]
	counter
}

// New returns a fleet that is not switched on yet. Its error names everything that is wrong with
// the Config.
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

// Run switches the devices on and lets them be until ctx ends; then all sockets are closed. It
// leaves no goroutine behind, and is for one call only. Its error is nil: what fails is counted,
// and tried again.
func (f *Fleet) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for i := range f.trackers {
		running.Go(func() { f.trackers[i].run(ctx) })
	}
	running.Wait()
	return nil
}

// SetTargets changes where the next connections go; those that stand stay. Without any it changes
// nothing.
func (f *Fleet) SetTargets(addrs ...string) {
	if len(addrs) > 0 {
		f.targets.Store(&addrs)
	}
}

// LoseCoverage lets n connected devices lose their coverage when their next frame is due, and
// returns of how many it could be asked.
func (f *Fleet) LoseCoverage(n int) (asked int) {
	for i := range f.trackers {
		if t := &f.trackers[i]; asked < n && t.at.Load() != nil && t.lose.CompareAndSwap(false, true) {
			asked++
		}
	}
	return asked
}

// DropStale closes the sockets that were left behind without coverage, as networks do in the end.
func (f *Fleet) DropStale() {
	for i := range f.trackers {
		f.trackers[i].dev.DropStale()
	}
}

// Where returns the target of every device that is connected, as far as it knows itself, by IMEI.
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

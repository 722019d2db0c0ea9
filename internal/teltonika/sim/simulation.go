package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

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

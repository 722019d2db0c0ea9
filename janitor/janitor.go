package janitor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/pacing"
	"github.com/rollcall-redis/rollcall/lease"
)

// Janitor contends for the lease, listens to Redis, and sweeps while it leads.
type Janitor struct {
	cfg       Config
	instance  string
	layout    guard.Layout
	sweeps    []Sweeper
	log       *slog.Logger
	metrics   *metrics
	guard     *guard.Guard
	elector   *lease.Elector
	listener  *listener
	unsettled *pendingBatches
	refusals  refusals
	pace      *pacing.Pace
	evicted   atomic.Uint64             // items that went, of all sweeps
	termState atomic.Pointer[termState] // nil while not leading

	mu      sync.Mutex
	reports map[string]Report    // the last of each sweep
	passes  map[string]*progress // under way
}

// New returns a Janitor, or all that is wrong with the configuration. It does not talk to Redis.
func New(c Config) (*Janitor, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	reg := c.Registry
	j := &Janitor{
		cfg:      c,
		instance: reg.Instance(),
		layout:   reg.Layout(),
		sweeps:   append(reg.Sweeps(), c.Sweeps...),
		log:      c.Logger.With("instance", reg.Instance()),
		guard:    guard.New(c.Client, c.Control, reg.Layout(), reg.Timing(), reg.Instance()),
		reports:  map[string]Report{},
		passes:   map[string]*progress{},
	}
	j.listener = newListener(j.guard, reg.Timing().Gap(), j.log)
	j.unsettled = newPendingBatches(j.guard, j.deleted)

	names := make([]string, len(j.sweeps))
	for i, s := range j.sweeps {
		names[i] = s.Name()
	}
	var err error
	j.metrics, err = newMetrics(c.Registerer, gauges{
		leader: j.leading, epoch: j.epoch, witness: j.listened, share: j.sharing, progress: j.progressing,
	}, names)
	if err != nil {
		return nil, fmt.Errorf("janitor: metrics: %w", err)
	}
	j.pace = pacing.New(pacing.Config{
		Share: c.RedisShare, Beat: reg.Timing().Interval, Probe: j.ping, Throttled: j.metrics.throttledFor,
	})
	j.elector, err = lease.New(lease.Config{
		Client: c.Control, Key: j.layout.Lease(), Instance: j.instance, TTL: c.LeaseTTL, Logger: j.log,
		OnTransition: func(ev lease.Event) { j.metrics.transitions.WithLabelValues(string(ev)).Inc() },
	})
	if err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	return j, nil
}

// Run contends for the lease and listens until ctx ends; then it joins what is under way, releases
// the lease, and returns nil. It blocks, and leaves no goroutine behind.
func (j *Janitor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		work conc.WaitGroup
		err  error
	)
	work.Go(func() { j.listen(ctx) })
	work.Go(func() {
		defer cancel() // an elector that fails takes the listener along
		err = j.elector.Run(ctx, j.lead)
	})
	work.Wait()
	return err
}

// listen ticks the witness, on every replica, and does what goes along with it.
func (j *Janitor) listen(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-j.listener.wake:
		}
		_, leading := j.elector.Term()
		j.listener.tick(ctx, leading)
		j.lookAround(ctx)
		timer.Reset(j.listener.wait(leading))
	}
}

// lookAround is what each replica does beside a tick: it settles batches of unknown fate, sees who
// leads and whether sweeping is paused, and a leader looks whether its own heartbeat is there. What
// fails is tried again at the next tick, which says so if Redis is away.
func (j *Janitor) lookAround(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(j.listener.gap/2, callTimeout))
	defer cancel()
	if err := j.unsettled.settle(ctx); err != nil {
		j.log.Debug("fates not settled", "error", err)
	}
	holder, err := j.elector.Holder(ctx)
	if err != nil {
		return
	}
	begun := time.Now()
	paused, err := readPause(ctx, j.cfg.Control, j.layout)
	if err != nil {
		return
	}
	if j.termState.Load() == nil { // so that a new leader knows what is usual
		j.pace.Observe(time.Since(begun))
	}
	j.listener.observed(holder, paused)
	if t := j.termState.Load(); t != nil {
		if n, err := j.cfg.Control.Exists(ctx, j.layout.Heartbeat(j.instance)).Result(); err == nil {
			t.sawOwnHeartbeat(n == 1)
		}
	}
}

// deleted counts what the server did, once for each batch. pendingBatches calls it.
func (j *Janitor) deleted(b guard.Batch, a guard.Answer) {
	if a.Repeated {
		j.log.Info("batch of unknown fate settled", "batch", b.ID.String(), "sweep", b.Sweep, "owner", b.Owner, "deleted", a.Deleted)
	}
	j.evicted.Add(uint64(a.Deleted))
}

func (j *Janitor) reported(r Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reports[r.Sweep] = r
	delete(j.passes, r.Sweep)
}

func (j *Janitor) begun(g *progress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.passes[g.p.Sweep] = g
}

// ping is the small call that is measured while sweeps make others.
func (j *Janitor) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return j.cfg.Control.PTTL(ctx, j.layout.Heartbeat(j.instance)).Err()
}

// leading, epoch, listened, sharing and progressing are gauges.

func (j *Janitor) leading() float64 {
	if _, ok := j.elector.Term(); ok {
		return 1
	}
	return 0
}

func (j *Janitor) epoch() float64 {
	if term, ok := j.elector.Term(); ok {
		return float64(term.Epoch())
	}
	j.listener.mu.Lock()
	defer j.listener.mu.Unlock()
	return float64(j.listener.holder.Epoch)
}

func (j *Janitor) listened() float64 { return j.listener.listening(time.Now()).Seconds() }

func (j *Janitor) sharing() float64 {
	t := j.termState.Load()
	if t == nil || !t.term.Valid() {
		return 0
	}
	share, _ := j.pace.Share()
	return share
}

func (j *Janitor) progressing(sweep string) float64 {
	j.mu.Lock()
	g := j.passes[sweep]
	j.mu.Unlock()
	if g == nil {
		return 0
	}
	return g.get(time.Now()).Ratio()
}

package janitor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/janitor/internal/pacing"
	"github.com/rollcall-redis/rollcall/lease"
)

// Janitor contends for the lease, listens to Redis, and sweeps while it leads.
type Janitor struct {
	cfg       Config
	instance  string
	layout    guard.Layout
	timing    guard.Timing
	sweeps    []Sweeper
	log       *slog.Logger
	metrics   *metrics
	guard     *guard.Guard
	elector   *lease.Elector
	listener  *listener
	ledger    *ledger
	logSize   *streak.Streak // reads the eviction log's size
	logTrim   *streak.Streak
	pauses    *streak.Streak // reads a pause that may be on another server
	pace      *pacing.Pace
	evicted   atomic.Uint64
	termState atomic.Pointer[termState] // nil while not leading
	notes     *notes
	holdNoted *timeline.Event // the end of the noted hold; used only by listen, see noteHold

	mu      sync.Mutex
	reports map[string]Report
	passes  map[string]*Pass
}

// New returns a Janitor, or an error with everything wrong in c. It does not talk to Redis.
func New(c Config) (*Janitor, error) {
	c = c.withDefaults()
	var sweeps []Sweeper
	if c.Registry != nil {
		sweeps = newEntries(c.Registry.Evicted)
	}
	sweeps = append(sweeps, c.Sweeps...)
	if err := c.check(sweeps); err != nil {
		return nil, err
	}
	reg := c.Registry
	j := &Janitor{
		cfg:      c,
		instance: reg.Instance(),
		layout:   reg.Layout(),
		timing:   reg.Timing(),
		sweeps:   sweeps,
		log:      c.Logger,
		guard:    guard.New(c.Client, c.Control, reg.Layout(), reg.Timing(), reg.Instance()),
		reports:  map[string]Report{},
		passes:   map[string]*Pass{},
	}
	j.listener = newListener(j.guard, j.timing.Gap(), j.log)
	j.ledger = &ledger{j: j}
	j.notes = newNotes(c.Client, j.layout.Timeline(), j.instance, j.log)
	j.logSize, j.logTrim = trimStreaks(j.log, c.logRecords())
	j.metrics = newMetrics(sweeps)
	j.pace = pacing.New(pacing.Config{
		Share: c.RedisShare,
		Probe: j.ping, CPU: j.redisCPU, Throttled: j.metrics.throttledFor,
	})
	j.pauses = streak.New(j.log, "cannot read whether sweeping is paused; nothing is swept",
		"can read again whether sweeping is paused", "key", j.layout.Paused())
	var err error
	j.elector, err = lease.New(lease.Config{
		Client: c.Control, Key: j.layout.Lease(), Instance: j.instance, TTL: c.LeaseTTL, Logger: j.log,
		Yield:        c.Yield,
		OnTransition: func(ev lease.Event) { j.metrics.transitions.WithLabelValues(string(ev)).Inc() },
	})
	if err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	if err := j.metrics.register(c, j.Status, sweeps); err != nil {
		return nil, fmt.Errorf("janitor: metrics: %w", err)
	}
	return j, nil
}

// Run contends for the lease and listens until ctx ends, then releases the lease and returns nil.
// It leaves no goroutine behind.
func (j *Janitor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		work, writer conc.WaitGroup
		err          error
	)
	noting, end := context.WithCancel(context.WithoutCancel(ctx)) // the end is noted too
	writer.Go(func() { j.notes.Run(noting, notesLast) })
	defer writer.Wait()
	defer end()
	work.Go(func() {
		defer cancel() // if it panics, nobody ticks: do not contend either
		j.listen(ctx)
	})
	work.Go(func() {
		defer cancel() // if the elector fails, the listener must stop too
		err = j.elector.Run(ctx, j.lead)
	})
	work.Wait()
	return err
}

func (j *Janitor) listen(ctx context.Context) {
	j.listener.others = together.Join(j.cfg.Control, "ticks")
	defer j.listener.others.Leave()
	defer j.withdraw(ctx)
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
		j.listenOnce(ctx, leading)
		timer.Reset(j.listener.wait(leading))
	}
}

func (j *Janitor) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(j.listener.gap/2, time.Second))
	defer cancel()
	if err := j.guard.Withdraw(ctx); err != nil {
		j.log.Debug("could not leave the contenders", "error", err)
	}
}

type asked struct {
	tick     func() (guard.Witness, error)
	whoLeads func(error) (lease.Holder, error)
	pause    func() (*Pause, error)
	ownBeat  *redis.IntCmd
}

// ask sends a tick. Janitors of one client that do not lead share a pipeline, and leave the tick
// out if somebody else's is recent. err is an error of all of it.
func (j *Janitor) ask(ctx context.Context, leading bool) (a asked, err error) {
	unless := j.listener.gap / 3
	if leading {
		unless = 0
	}
	fill := func(pipe redis.Pipeliner) {
		a.tick, a.whoLeads = j.guard.TickIn(ctx, pipe, unless), j.elector.HolderIn(ctx, pipe)
		a.pause = askPause(ctx, pipe, j.layout.Paused())
		a.ownBeat = pipe.Exists(ctx, j.layout.Heartbeat(j.instance))
	}
	if !leading {
		err = j.listener.others.Do(ctx, j.listener.gap/100, fill)
		return a, err
	}
	pipe := j.cfg.Control.Pipeline()
	fill(pipe)
	err = together.Exec(ctx, pipe)
	return a, err
}

// listenOnce ticks and, in the same pipeline, reads who leads, a pause and the own heartbeat. Then
// it looks up batches of unknown fate.
func (j *Janitor) listenOnce(ctx context.Context, leading bool) {
	within := min(j.listener.gap/2, callTimeout)
	begun := time.Now()
	call, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	asked, refused := j.ask(call, leading)
	took := time.Since(begun)

	w, err := asked.tick()
	if err = cmp.Or(refused, err); err != nil && !together.Answered(err) {
		// A partition's pause may be on another server, whose failure is not a gap here.
		w, err = j.guard.Tick(call)
	}
	j.listener.ticked(begun, w, err, leading, call.Err() == context.Canceled)
	j.noteHold(leading)

	settle, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := j.ledger.lookUp(settle); err != nil {
		j.log.Debug("could not look up batch outcomes", "error", err)
	}
	holder, err := asked.whoLeads(refused)
	if err != nil {
		return
	}
	paused, err := asked.pause()
	if err != nil {
		paused = j.listener.heard().paused
	}
	before := j.listener.observed(holder, paused)
	t := j.termState.Load()
	if t == nil {
		if !j.layout.Divided() { // a shared pipeline waits for others
			j.pace.Observe(took) // so that a new leader knows what is usual
		}
		return
	}
	j.logPause(before, paused)
	if n, err := asked.ownBeat.Result(); err == nil {
		t.checkOwnHeartbeat(n == 1)
	}
}

func (j *Janitor) deleted(b *sent, a guard.Answer) {
	if a.Repeated {
		j.log.Info("batch outcome recovered",
			"batch", b.ID.String(), "sweep", b.Sweep, "owner", b.Owner, "deleted", a.Deleted)
	}
	j.evicted.Add(uint64(a.Deleted))
	if b.deleted != nil {
		b.deleted(a)
	}
}

func (j *Janitor) begun(p *Pass) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.passes[p.report.Sweep] = p
}

// A pass that was not due replaces only the report of one that was held or failed.
func (j *Janitor) reported(p *Pass) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := p.report
	if last, ok := j.reports[r.Sweep]; !p.idle || !ok || last.Outcome != Done || r.Outcome != Done {
		j.reports[r.Sweep] = r
	}
	if scan := p.scan; !scan.NextBy.IsZero() && r.Outcome == Done {
		scan.Started, scan.Seconds, scan.Scanned = r.Started, r.Seconds, r.Scanned
		p.t.fullScan.Store(&scan)
	}
	delete(j.passes, r.Sweep)
}

func (j *Janitor) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return j.cfg.Control.PTTL(ctx, j.layout.Heartbeat(j.instance)).Err()
}

func (j *Janitor) redisCPU(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return j.guard.CPU(ctx)
}

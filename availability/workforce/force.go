package workforce

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// mostRetry bounds the pause before a retry.
const mostRetry = time.Second

// Force is a simulated workforce. Its methods are safe for concurrent use.
type Force struct {
	cfg        Config
	client     *client
	apps       []app
	byID       map[string]*app
	dispatcher dispatcher
	retry      time.Duration

	quiet     chan struct{} // closed by Quiet
	quietOnce sync.Once

	counter
}

// New returns a workforce that has not started, or all that is wrong with the Config.
func New(cfg Config) (*Force, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Force{
		cfg: cfg, client: newClient(cfg), apps: make([]app, cfg.Mitras), byID: make(map[string]*app),
		retry: min(cfg.Interval/4, mostRetry), quiet: make(chan struct{}),
	}
	f.SetTargets(cfg.Targets...)
	f.now = Counts{Mitras: cfg.Mitras, Answers: map[string]int{}}
	for i := range f.apps {
		a := &f.apps[i]
		a.force = f
		a.src.Seed(cfg.Seed, uint64(i))
		a.id = uuid(&a.src)
		f.byID[a.id] = a
	}
	d := &f.dispatcher
	d.force, d.sessions, d.unsure = f, make(map[string]Session), make(map[string]bool)
	d.src.Seed(cfg.Seed, math.MaxUint64)
	d.id = uuid(&d.src)
	return f, nil
}

func uuid(src rand.Source) string {
	a, b := src.Uint64(), src.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
		a>>32, a>>16&0xffff, a&0xfff, 0x8000|b>>48&0x3fff, b&0xffffffffffff)
}

// SetTargets changes where requests go.
func (f *Force) SetTargets(targets ...string) {
	targets = slices.Clone(targets)
	f.client.targets.Store(&targets)
}

// IDs returns all mitras.
func (f *Force) IDs() []string { return slices.Sorted(maps.Keys(f.byID)) }

// Run creates the mitras and runs them until ctx ends, once. It leaves no goroutine and returns
// nil.
func (f *Force) Run(ctx context.Context) error {
	defer f.client.close()
	for {
		err := f.cfg.Backend.AddMitras(ctx, f.IDs())
		if err == nil {
			break
		}
		f.failed(err)
		if !wait.For(ctx, f.retry) {
			return nil
		}
	}
	var running sync.WaitGroup
	for i := range f.apps {
		running.Go(func() { f.apps[i].run(ctx) })
	}
	running.Go(func() { f.dispatcher.run(ctx) })
	pollers := int(math.Ceil(f.cfg.Polls))
	for i := range pollers {
		running.Go(func() { f.customer(ctx, i, pollers) })
	}
	running.Wait()
	return nil
}

func (f *Force) customer(ctx context.Context, i, of int) {
	every := time.Duration(float64(of) / f.cfg.Polls * float64(time.Second))
	var src rand.PCG
	src.Seed(f.cfg.Seed, math.MaxUint64-1-uint64(i))
	id := uuid(&src)
	for pause := every * time.Duration(i) / time.Duration(of); wait.For(ctx, pause); pause = every {
		a, err := f.client.poll(ctx, id)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.failed(err)
		default:
			f.count(func(c *Counts) { c.Polls++ })
			f.answered(a)
		}
	}
}

// Quiet prevents anything new except heartbeats. Anything in progress is completed.
func (f *Force) Quiet() { f.quietOnce.Do(func() { close(f.quiet) }) }

func (f *Force) isQuiet() bool {
	select {
	case <-f.quiet:
		return true
	default:
		return false
	}
}

// Kill ends up to n apps that know they are online, without a goodbye, and returns them.
func (f *Force) Kill(n int) []string {
	var killed []string
	for _, i := range rand.Perm(len(f.apps)) {
		if len(killed) == n {
			break
		}
		a := &f.apps[i]
		// One that has just asked to rest dies too, but is not returned: silence may not set it offline.
		if online, sure := a.expected(); online && sure && a.kill() && a.settled() {
			killed = append(killed, a.id)
		}
	}
	return killed
}

// Revive brings dead apps back, and returns how many.
func (f *Force) Revive(ids ...string) (n int) {
	for _, id := range ids {
		if a := f.byID[id]; a != nil && a.revive() {
			n++
		}
	}
	return n
}

// Unsure counts apps and sessions that wait for an answer: their correct state is unknown.
func (f *Force) Unsure() (n int) {
	for i := range f.apps {
		if _, sure := f.apps[i].expected(); !sure {
			n++
		}
	}
	f.dispatcher.mu.Lock()
	defer f.dispatcher.mu.Unlock()
	return n + len(f.dispatcher.unsure)
}

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// errOverrun: something did not end in time.
var errOverrun = errors.New("service: not stopped within SHUTDOWN_GRACE")

// Parts are the long-running pieces of a program. They begin together and are stopped one after the
// other. Its methods but those of the parts are for one goroutine.
type Parts struct {
	ctx   context.Context
	grace time.Duration
	log   *slog.Logger
	parts map[string]*part

	stopping time.Time
	stopped  []string // names, in the order in which they were told to stop
	failed   chan struct{}
	once     sync.Once
	mu       sync.Mutex
	failures []error
}

type part struct {
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
}

// NewParts makes Parts that live until ctx ends, and then have the grace to stop.
func NewParts(ctx context.Context, grace time.Duration, log *slog.Logger) *Parts {
	return &Parts{ctx: ctx, grace: grace, log: log, parts: make(map[string]*part), failed: make(chan struct{})}
}

// Go begins a part. Its context ends when the part is to stop, and not before.
func (p *Parts) Go(name string, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	one := &part{stop: stop, done: make(chan struct{})}
	p.parts[name] = one
	go func() {
		defer close(one.done)
		if err := run(ctx); err != nil {
			p.mu.Lock()
			p.failures = append(p.failures, err)
			p.mu.Unlock()
			p.once.Do(func() { close(p.failed) })
		}
	}()
}

// Wait returns when the context of NewParts has ended or a part has failed. From then on the grace
// passes.
func (p *Parts) Wait() {
	select {
	case <-p.ctx.Done():
		p.log.Info("stopping", "grace", p.grace)
	case <-p.failed:
		p.log.Error("a part failed, stopping", "error", p.err())
	}
	p.stopping = time.Now()
}

// Stop tells these parts to stop. It waits until all that were told so have stopped, or until so
// many tenths of the grace are over, and returns the names of those that have not.
func (p *Parts) Stop(tenths int, names ...string) (left []string) {
	for _, name := range names {
		p.parts[name].stop()
	}
	p.stopped = append(p.stopped, names...)
	until, cancel := context.WithDeadline(context.WithoutCancel(p.ctx), p.stopping.Add(p.grace*time.Duration(tenths)/10))
	defer cancel()
	for _, name := range p.stopped {
		done := p.parts[name].done
		select {
		case <-done:
		case <-until.Done():
			select {
			case <-done: // both had happened
			default:
				left = append(left, name)
			}
		}
	}
	return left
}

// End returns why parts have failed, and which have not stopped; nil if all is well.
func (p *Parts) End() error {
	if left := p.Stop(10); len(left) > 0 {
		return errors.Join(p.err(), fmt.Errorf("%w (%v): %s", errOverrun, p.grace, strings.Join(left, ", ")))
	}
	return p.err()
}

func (p *Parts) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.failures...)
}

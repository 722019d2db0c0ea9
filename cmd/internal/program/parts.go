package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

var errOverrun = errors.New("program: not stopped within SHUTDOWN_GRACE")

// Parts begin together and are stopped one after the other. The methods are for one goroutine.
type Parts struct {
	ctx   context.Context // until all are to stop
	grace time.Duration
	log   *slog.Logger

	parts    []*part
	failed   chan error // holds the first
	stopping time.Time
}

type part struct {
	name string
	ctx  context.Context // until the part is to stop
	stop context.CancelFunc
	done chan struct{} // ended
	err  error         // valid when done
}

// NewParts gives parts this grace to stop once ctx ends.
func NewParts(ctx context.Context, grace time.Duration, log *slog.Logger) *Parts {
	return &Parts{ctx: ctx, grace: grace, log: log, failed: make(chan error, 1)}
}

// Go begins a part. Its context ends when the part is to stop, and not before.
func (p *Parts) Go(name string, run func(context.Context) error) {
	one := &part{name: name, done: make(chan struct{})}
	one.ctx, one.stop = context.WithCancel(context.WithoutCancel(p.ctx))
	p.parts = append(p.parts, one)
	go func() {
		defer close(one.done)
		if one.err = run(one.ctx); one.err != nil {
			select {
			case p.failed <- one.err:
			default:
			}
		}
	}()
}

// Wait returns, and the grace begins, when the context of NewParts has ended or a part has failed.
func (p *Parts) Wait() {
	select {
	case <-p.ctx.Done():
		p.log.Info("stopping", "grace", p.grace)
	case err := <-p.failed:
		p.log.Error("a part failed, stopping", "error", err)
	}
	p.stopping = time.Now()
}

// Stop stops these parts. It waits until all stopped so far have ended, or this many tenths of the
// grace are over, and returns the names of parts that still run.
func (p *Parts) Stop(tenths int, names ...string) (left []string) {
	until := p.stopping.Add(p.grace * time.Duration(tenths) / 10)
	over, cancel := context.WithDeadline(context.WithoutCancel(p.ctx), until)
	defer cancel()
	for _, one := range p.parts {
		if slices.Contains(names, one.name) {
			one.stop()
		}
	}
	for _, one := range p.parts {
		if one.ctx.Err() == nil {
			continue
		}
		select {
		case <-one.done:
		case <-over.Done():
		}
		if !one.ended() { // both may have happened
			left = append(left, one.name)
		}
	}
	return left
}

func (one *part) ended() bool {
	select {
	case <-one.done:
		return true
	default:
		return false
	}
}

// End returns why parts have failed, and which have not stopped.
func (p *Parts) End() error {
	left := p.Stop(10)
	var errs []error
	for _, one := range p.parts {
		if one.ended() {
			errs = append(errs, one.err)
		}
	}
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("%w (%v): %s", errOverrun, p.grace, strings.Join(left, ", ")))
	}
	return errors.Join(errs...)
}

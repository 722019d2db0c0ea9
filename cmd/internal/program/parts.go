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

// Run returns when ctx has ended, or with an error.
type Run = func(ctx context.Context) error

// Part is run beside the others, and stopped this many tenths of the grace after the stop began, at
// the latest: the parts of each number wait for those before.
type Part struct {
	Name   string
	Run    Run
	Tenths int
}

type running struct {
	Part
	stop context.CancelFunc
	told bool          // to stop
	done chan struct{} // ended
	err  error         // valid when done
}

// runAll begins all parts together, and stops them one after the other once ctx has ended or one
// has failed. The context of a part ends when it is to stop, and not before. stopping is called
// when that begins, and at the end of each number's time, with the parts that still run. The error
// has why parts have failed, and which have not stopped.
func runAll(
	ctx context.Context, grace time.Duration, log *slog.Logger, parts []Part, stopping func(left []string),
) error {
	failed := make(chan error, len(parts))
	all := make([]*running, len(parts))
	tenths := []int{9, 10} // Redis may be slow to take the goodbye
	for i, part := range parts {
		one := &running{Part: part, done: make(chan struct{})}
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		one.stop, all[i], tenths = stop, one, append(tenths, part.Tenths)
		go func() {
			defer close(one.done)
			if one.err = part.Run(own); one.err != nil {
				failed <- one.err
			}
		}()
	}
	select {
	case <-ctx.Done():
		log.Info("stopping", "grace", grace)
	case err := <-failed:
		log.Error("a part failed, stopping", "error", err)
	}
	began := time.Now()
	stopping(nil)
	slices.Sort(tenths)
	var left []string
	for _, n := range slices.Compact(tenths) {
		left = stopAt(ctx, all, n, began.Add(grace*time.Duration(n)/10))
		stopping(left)
	}
	var errs []error
	for _, one := range all {
		if !slices.Contains(left, one.Name) {
			errs = append(errs, one.err)
		}
	}
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("%w (%v): %s", errOverrun, grace, strings.Join(left, ", ")))
	}
	return errors.Join(errs...)
}

// stopAt waits for all parts whose context has ended, and returns those that still run.
func stopAt(ctx context.Context, all []*running, tenths int, until time.Time) (left []string) {
	over, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	for _, one := range all {
		if one.Tenths == tenths {
			one.told = true
			one.stop()
		}
	}
	for _, one := range all {
		if !one.told {
			continue
		}
		select {
		case <-one.done:
			continue
		case <-over.Done():
		}
		select {
		case <-one.done: // both may have happened
		default:
			left = append(left, one.Name)
		}
	}
	return left
}

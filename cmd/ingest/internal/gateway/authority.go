package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Allowed is the default name of the set of allowed devices.
const Allowed = "devices:allowed"

const (
	// askAgain is the pause before the next query about a device with no known answer.
	askTime, askAgain = time.Second, time.Second
	// undecidedTime is short of the 30 s after which a device gives up.
	undecidedTime = 25 * time.Second
	recheckTime   = time.Minute
	// askPage takes Redis less than a millisecond.
	askPage   = 1000
	manyKnown = 100_000
)

type verdict uint8

const (
	unsure verdict = iota // Redis is unavailable, and nothing is remembered
	member
	unknown // absent from a set that could be read
)

// authority allows the members of a set in Redis. It asks at each handshake, so changes apply at
// once. While Redis cannot answer, former members are served from memory. Only members are
// remembered, so invented IMEIs cannot fill it.
type authority struct {
	client   redis.UniversalClient
	set      string
	asks     *streak.Streak
	failures prometheus.Counter
	known    map[string]struct{} // by Redis' last answer; for run's goroutine
	asked    chan struct{}       // holds a token while waiting is not empty

	mu      sync.Mutex
	waiting []question
}

type question struct {
	imei   string
	answer chan verdict
}

func newAuthority(
	client redis.UniversalClient, set string, log *slog.Logger, failures prometheus.Counter,
) *authority {
	return &authority{
		client: client, set: set, failures: failures,
		asks: streak.New(log, "Redis does not say which devices may be served: known ones are, others wait",
			"Redis says again which devices may be served", "set", set),
		known: make(map[string]struct{}), asked: make(chan struct{}, 1),
	}
}

// decide also returns errUnknownDevice, or errUndecided if the device's patience or ctx ends first.
// A nil authority allows every device.
func (a *authority) decide(ctx context.Context, imei string) error {
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, undecidedTime)
	defer cancel()
	for {
		switch a.question(ctx, imei) {
		case member:
			return nil
		case unknown:
			return errUnknownDevice
		}
		if !wait.For(ctx, askAgain) {
			return errUndecided
		}
	}
}

func (a *authority) question(ctx context.Context, imei string) verdict {
	q := question{imei, make(chan verdict, 1)}
	a.mu.Lock()
	a.waiting = append(a.waiting, q)
	a.mu.Unlock()
	select {
	case a.asked <- struct{}{}:
	default:
	}
	select {
	case v := <-q.answer:
		return v
	case <-ctx.Done():
		return unsure
	}
}

func (a *authority) run(ctx context.Context, connected func() []string, expel func(imei string)) {
	recheck := time.NewTicker(recheckTime)
	defer recheck.Stop()
	for {
		select {
		case <-a.asked:
			a.answer(ctx)
		case <-recheck.C:
			a.recheck(ctx, connected(), expel)
		case <-ctx.Done():
			return
		}
	}
}

// answer stops asking Redis after a failure, so that remembered devices are served at once.
func (a *authority) answer(ctx context.Context) {
	a.mu.Lock()
	all := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	var err error
	for page := range slices.Chunk(all, askPage) {
		imeis := make([]string, len(page))
		for i, q := range page {
			imeis[i] = q.imei
		}
		var are []bool
		if err == nil {
			are, err = a.ask(ctx, imeis)
		}
		for i, q := range page {
			q.answer <- a.judge(q.imei, err == nil && are[i], err)
		}
	}
}

func (a *authority) judge(imei string, is bool, err error) verdict {
	_, known := a.known[imei]
	switch {
	case err != nil && known:
		return member
	case err != nil:
		return unsure
	case !is:
		delete(a.known, imei)
		return unknown
	}
	if !known && len(a.known) >= manyKnown {
		for other := range a.known {
			delete(a.known, other)
			break
		}
	}
	a.known[imei] = struct{}{}
	return member
}

// recheck expels devices that have left the set. A failure expels none.
func (a *authority) recheck(ctx context.Context, imeis []string, expel func(string)) {
	for page := range slices.Chunk(imeis, askPage) {
		are, err := a.ask(ctx, page)
		if err != nil {
			return
		}
		for i, imei := range page {
			if a.judge(imei, are[i], nil) == unknown {
				expel(imei)
			}
		}
		a.answer(ctx)
	}
}

func (a *authority) ask(ctx context.Context, imeis []string) ([]bool, error) {
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	args := make([]any, len(imeis))
	for i, imei := range imeis {
		args[i] = imei
	}
	are, err := a.client.SMIsMember(asking, a.set, args...).Result()
	if err == nil && len(are) != len(imeis) {
		err = fmt.Errorf("gateway: asked about %d devices, got %d answers", len(imeis), len(are))
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	a.asks.Note(err)
	if err != nil {
		a.failures.Inc()
		return nil, err
	}
	return are, nil
}

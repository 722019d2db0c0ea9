package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/streak"
)

// Allowed is the default name of the set of devices that may be served.
const Allowed = "devices:allowed"

const (
	// askTime bounds a question to Redis, askAgain is the time to the next one about a device of which
	// nothing is known.
	askTime, askAgain = time.Second, time.Second
	// undecidedTime is how long a device waits for Redis to say whether it may be served; it gives up
	// itself after 30 s.
	undecidedTime = 25 * time.Second
	// recheckTime is the time between two looks at the devices that are connected.
	recheckTime = time.Minute
	// askPage is the most devices a question: Redis answers it within a millisecond.
	askPage = 1000
	// manyKnown bounds the devices that are remembered.
	manyKnown = 100_000
)

// verdict is what is known of a device's right to be served.
type verdict uint8

const (
	unsure  verdict = iota // Redis cannot be asked now, and nothing is remembered
	member                 // in the set
	unknown                // not in a set that could be read
)

// authority tells which devices may be served: the members of a set in Redis. Each handshake asks,
// all that come meanwhile in one question, so that what is added or removed counts at once and
// nothing has to expire. What is remembered, members alone, so that nobody can fill it with
// inventions, is for when Redis cannot answer.
type authority struct {
	client   redis.UniversalClient
	set      string
	asks     *streak.Streak
	failures interface{ Inc() }

	mu      sync.Mutex
	waiting []*question
	known   map[string]struct{} // were members when Redis last said so
	asked   chan struct{}       // holds a token when somebody waits
}

type question struct {
	imei   string
	answer chan verdict
}

func newAuthority(client redis.UniversalClient, set string, log *slog.Logger, failures interface{ Inc() }) *authority {
	return &authority{
		client: client, set: set, failures: failures,
		asks: streak.New(log, "Redis does not say which devices may be served: known ones are, others wait",
			"Redis says again which devices may be served", "set", set),
		known: make(map[string]struct{}), asked: make(chan struct{}, 1),
	}
}

// decide says whether a device may be served. It takes as long as it must to be sure, at most until
// stopping is closed or the device's patience is over.
func (a *authority) decide(stopping <-chan struct{}, imei string) verdict {
	over := time.NewTimer(undecidedTime)
	defer over.Stop()
	for {
		q := &question{imei, make(chan verdict, 1)}
		a.mu.Lock()
		a.waiting = append(a.waiting, q)
		a.mu.Unlock()
		select {
		case a.asked <- struct{}{}:
		default:
		}
		var again <-chan time.Time
		for again == nil {
			select {
			case v := <-q.answer:
				if v != unsure {
					return v
				}
				again = time.After(askAgain)
			case <-over.C:
				return unsure
			case <-stopping:
				return unsure
			}
		}
		select {
		case <-again:
		case <-over.C:
			return unsure
		case <-stopping:
			return unsure
		}
	}
}

// run answers until ctx ends. Of the devices that are connected it expels, within a recheckTime,
// those that are no longer in the set.
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

// answer tells everybody who waits. Once Redis has failed it is not asked for the others, so that
// those who are remembered are served at once.
func (a *authority) answer(ctx context.Context) {
	a.mu.Lock()
	all := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	imeis := make([]string, len(all))
	for i, q := range all {
		imeis[i] = q.imei
	}
	var failed bool
	for len(all) > 0 {
		n := min(len(all), askPage)
		var are []bool
		if !failed {
			var err error
			are, err = a.ask(ctx, imeis[:n])
			failed = err != nil
		}
		for i, q := range all[:n] {
			q.answer <- a.judge(q.imei, are, i)
		}
		all, imeis = all[n:], imeis[n:]
	}
}

// judge remembers what Redis said of a device, or recalls it if Redis said nothing.
func (a *authority) judge(imei string, are []bool, i int) verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case are == nil:
		if _, ok := a.known[imei]; ok {
			return member
		}
		return unsure
	case !are[i]:
		delete(a.known, imei)
		return unknown
	}
	if _, ok := a.known[imei]; !ok && len(a.known) >= manyKnown {
		for other := range a.known { // any
			delete(a.known, other)
			break
		}
	}
	a.known[imei] = struct{}{}
	return member
}

// recheck looks at devices that are connected, and answers who waits between the pages.
func (a *authority) recheck(ctx context.Context, imeis []string, expel func(string)) {
	for len(imeis) > 0 {
		n := min(len(imeis), askPage)
		are, err := a.ask(ctx, imeis[:n])
		if err != nil {
			return // nobody is expelled on a guess; in a recheckTime there is another
		}
		for i, imei := range imeis[:n] {
			if a.judge(imei, are, i) == unknown {
				expel(imei)
			}
		}
		imeis = imeis[n:]
		a.answer(ctx)
	}
}

// ask asks Redis which of these are members.
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

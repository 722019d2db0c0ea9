package lease

import (
	"context"
	"sync"

	"github.com/rollcall-redis/rollcall/internal/subscribe"
)

// silence is after how many TTLs without a message it is asked whether anybody is there: many wait,
// and a release that is missed is seen when the lease can expire.
const silence = 4

// announce tells the waiters that the lease is free. They find out without it
// when it could have expired.
func (e *Elector) announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.pace.part())
	defer cancel()
	if err := e.client.Publish(ctx, e.channel, e.instance).Err(); err != nil {
		e.log.Debug("release was not announced", "error", err)
	}
}

// listen wakes the campaign at each release, in a goroutine, until ctx ends or stop is called,
// which waits for it. A waiter that is not subscribed looks at the lease more often.
func (e *Elector) listen(ctx context.Context) (stop func()) {
	wake := func() {
		select {
		case e.released <- struct{}{}:
		default: // awake already
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		subscribe.Channel{
			Client: e.client, Name: e.channel,
			Silence: silence * e.pace.ttl(), Retry: e.pace.nextLook, Log: e.log,
			Message: func(string) { wake() },
			Subscribed: func(is bool) {
				e.subscribed.Store(is)
				if is { // a subscription that has just begun may have missed a release
					wake()
				}
			},
		}.Run(ctx)
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

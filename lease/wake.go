package lease

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// silence is after how many TTLs without a message it is asked whether anybody is there: many wait, and a release that
// is missed is seen when the lease can expire.
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

// listen hears of releases, in a goroutine, until ctx ends or stop is called,
// which waits for it. Who is deaf looks at the lease more often: errors are for those
// who look closely.
func (e *Elector) listen(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			err := e.hear(ctx)
			if ctx.Err() != nil {
				return
			}
			e.log.Debug("not subscribed to releases", "error", err)
			if !wait.For(ctx, e.pace.nextLook()) {
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// hear subscribes and wakes the campaign at each release, until the connection
// fails or ctx ends.
func (e *Elector) hear(ctx context.Context) error {
	sub := e.client.Subscribe(ctx, e.channel)
	defer sub.Close()
	defer e.hears.Store(false)
	// A read under way does not heed ctx; closing its connection ends it.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()

	for asked := false; ; {
		msg, err := sub.ReceiveTimeout(ctx, silence*e.pace.ttl())
		var nerr net.Error
		if errors.As(err, &nerr) && nerr.Timeout() && !asked {
			// Long silence is the rule. Is anybody there at all?
			asked = true
			err = sub.Ping(ctx)
		} else {
			asked = false
		}
		if err != nil {
			return err
		}
		if _, begun := msg.(*redis.Subscription); begun {
			e.hears.Store(true)
		}
		switch msg.(type) {
		// A subscription that has just begun may have missed a release.
		case *redis.Message, *redis.Subscription:
			select {
			case e.released <- struct{}{}:
			default: // awake already
			}
		}
	}
}

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

const otherIMEI = "352093081452251"

func TestOnlyDevicesInTheSetAreServed(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), func(c *Config) { c.Allowed = redistest.Prefix(t) + Allowed })
	set, ctx := b.cfg.Allowed, t.Context()
	refused := func(imei string) {
		w := b.dial(t)
		w.refused(imei)
		w.expectEnd()
	}
	refused(imei) // there is no set
	awaitCount(t, 1, b.metrics.handshakes.WithLabelValues("unknown_device"))
	require.NoError(t, b.rdb.SAdd(ctx, set, imei).Err())
	b.login(t, imei)
	refused(otherIMEI)
	require.Len(t, b.registrar.all(), 1)
	require.NoError(t, b.rdb.SRem(ctx, set, imei).Err())
	refused(imei)
	require.NoError(t, b.rdb.Set(ctx, set, "oops", 0).Err()) // this says nothing
	w := b.dial(t)
	w.send(handshake(otherIMEI))
	await(t, func() bool { return testutil.ToFloat64(b.metrics.authority) > 0 })
	require.NoError(t, b.rdb.Del(ctx, set).Err())
	require.NoError(t, b.rdb.SAdd(ctx, set, otherIMEI).Err())
	w.expect("01") // it was made to wait, not refused
}

var errBroken = errors.New("broken by the test")

func TestWhileRedisCannotSayKnownDevicesAreServedAndOthersWait(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	manyInBubble(t, breakable(&broken), func(t *testing.T, g *bubble) {
		require.NoError(t, g.cfg.Client.SAdd(t.Context(), Allowed, imei).Err())
		g.join().login(imei)
		broken.Store(true)
		again := g.join()
		again.login(imei)
		require.Zero(t, time.Since(again.began), "known: at once")

		late := g.join() // Redis comes back while it waits
		late.send(handshake(otherIMEI))
		<-time.After(10500 * time.Millisecond)
		require.NoError(t, g.cfg.Client.SAdd(t.Context(), Allowed, otherIMEI).Err())
		broken.Store(false)
		late.expect("01")
		require.Equal(t, 11*time.Second, time.Since(late.began))

		broken.Store(true)
		never := g.join()
		never.send(handshake("490154203237518"))
		never.endsAfter(undecidedTime) // no answer: it is not refused
		requireCount(t, 1, g.metrics.handshakes.WithLabelValues("undecided"))
		require.Len(t, never.registrar.all(), 3)
	})
}

func TestTheSocketOfADeviceThatWasRemovedIsClosedWithinAMinute(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	manyInBubble(t, breakable(&broken), func(t *testing.T, g *bubble) {
		require.NoError(t, g.cfg.Client.SAdd(t.Context(), Allowed, imei, otherIMEI).Err())
		stays, goes := g.join(), g.join()
		stays.login(imei)
		goes.login(otherIMEI)
		<-time.After(time.Second)
		require.NoError(t, g.cfg.Client.SRem(t.Context(), Allowed, otherIMEI).Err())
		broken.Store(true)
		<-time.After(time.Minute)
		require.Equal(t, 2, g.Connections(), "nobody goes on a guess")
		broken.Store(false)
		goes.endsAfter(2 * time.Minute)
		synctest.Wait() // its session is over too
		require.Equal(t, 1, g.Connections())
		requireCount(t, 1, g.metrics.disconnects.WithLabelValues(endUnknownDevice))
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	a := newAuthority(nil, Allowed, slog.New(slog.DiscardHandler), nil)
	for i := range manyKnown + 10 {
		a.learn(fmt.Sprintf("%015d", i), true)
		a.learn(fmt.Sprintf("9%014d", i), false)
	}
	require.Len(t, a.known, manyKnown)
	require.True(t, a.knows(fmt.Sprintf("%015d", manyKnown+9)), "the newest is remembered")
	a.learn(fmt.Sprintf("%015d", manyKnown+9), false)
	require.Len(t, a.known, manyKnown-1)
}

// breakable makes questions about the set fail while broken is set.
func breakable(broken *atomic.Bool) func(*Config) {
	return func(c *Config) {
		c.Allowed = Allowed
		c.Client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if broken.Load() && cmds[0].Name() == "smismember" {
				return errBroken
			}
			return send()
		}))
	}
}

package gateway

import (
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

func TestADeviceThatIsNotInTheSetIsRefusedAndCountsFromWhenItIs(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), func(c *Config) { c.Allowed = redistest.Prefix(t) + Allowed })
	set := b.cfg.Allowed
	require.NoError(t, b.rdb.SAdd(t.Context(), set, imei).Err())
	b.login(t, imei)
	refused := func() {
		w := b.dial(t)
		w.refused(otherIMEI)
		w.expectEnd()
	}
	refused()
	require.Len(t, b.registrar.all(), 1)
	awaitCount(t, 1, b.metrics.handshakes.WithLabelValues("unknown_device"))

	require.NoError(t, b.rdb.SAdd(t.Context(), set, otherIMEI).Err())
	b.login(t, otherIMEI)
	require.NoError(t, b.rdb.SRem(t.Context(), set, otherIMEI).Err())
	refused()
}

func TestASetThatIsNotThereAllowsNobodyAndAKeyThatIsNoSetSaysNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), func(c *Config) { c.Allowed = redistest.Prefix(t) + Allowed })
	w := b.dial(t)
	w.refused(imei)
	require.NoError(t, b.rdb.Set(t.Context(), b.cfg.Allowed, "oops", 0).Err())
	w = b.dial(t)
	w.send(handshake(imei))
	await(t, func() bool { return testutil.ToFloat64(b.metrics.authority) > 0 })
	require.NoError(t, b.rdb.Del(t.Context(), b.cfg.Allowed).Err())
	require.NoError(t, b.rdb.SAdd(t.Context(), b.cfg.Allowed, imei).Err())
	w.expect("01") // it was made to wait, not refused
}

var errBroken = errors.New("broken by the test")

func TestWhileRedisCannotSayKnownDevicesAreServedAndOthersWait(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	manyInBubble(t, nil, breakable(&broken), func(t *testing.T, g *Gateway, join func() *timed) {
		require.NoError(t, g.cfg.Client.SAdd(t.Context(), Allowed, imei).Err())
		join().login(t)
		broken.Store(true)
		again := join()
		again.login(t)
		require.Zero(t, time.Since(again.began), "known: at once")

		late := join() // Redis comes back while it waits
		late.write(t, handshake(otherIMEI))
		<-time.After(10500 * time.Millisecond)
		require.NoError(t, g.cfg.Client.SAdd(t.Context(), Allowed, otherIMEI).Err())
		broken.Store(false)
		require.Equal(t, []byte{1}, late.read(t, 1))
		require.Equal(t, 11*time.Second, time.Since(late.began))

		broken.Store(true)
		never := join()
		never.write(t, handshake("490154203237518"))
		never.endsAfter(t, undecidedTime) // no answer: it is not refused
		requireCount(t, 1, g.metrics.handshakes.WithLabelValues("undecided"))
		require.Len(t, never.registrar.all(), 3)
	})
}

func TestTheSocketOfADeviceThatWasRemovedIsClosedWithinAMinute(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	manyInBubble(t, nil, breakable(&broken), func(t *testing.T, g *Gateway, join func() *timed) {
		require.NoError(t, g.cfg.Client.SAdd(t.Context(), Allowed, imei, otherIMEI).Err())
		stays, goes := join(), join()
		stays.login(t)
		goes.comes(t, otherIMEI)
		<-time.After(time.Second)
		require.NoError(t, g.cfg.Client.SRem(t.Context(), Allowed, otherIMEI).Err())
		broken.Store(true)
		<-time.After(time.Minute)
		require.Equal(t, 2, g.Connections(), "nobody goes on a guess")
		broken.Store(false)
		goes.endsAfter(t, 2*time.Minute)
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
		c.Client.AddHook(hook(func(cmds []redis.Cmder, send func() error) error {
			if broken.Load() && cmds[0].Name() == "smismember" {
				return errBroken
			}
			return send()
		}))
	}
}

package lease

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// go-redis' own deadlines against a stalled server, which no fault in between can imitate. Tests in
// virtual time check how soon the term ends.
func TestServerThatStandsStillEndsTheTermInTime(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	b := newBench(t, srv.Options(), "leader", 1500*time.Millisecond)
	a, other := b.candidate("a").run(untilEnd), b.candidate("b")
	term := await(b, a.terms)
	other.run(untilEnd)

	srv.Stop()
	await(b, term.ctx.Done())
	require.ErrorIs(t, context.Cause(term.ctx), ErrLost)
	require.False(t, a.leads())
	srv.Cont()

	require.Eventually(t, func() bool { return a.leads() || other.leads() }, 10*time.Second, 5*time.Millisecond)
	require.Never(t, func() bool { return a.leads() == other.leads() }, b.ttl, 10*time.Millisecond, "exactly one leads")
}

func TestWaiterSubscribesAgainAfterItsConnectionBroke(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	b := newBench(t, srv.Options(), "leader", 10*time.Second)
	a := b.candidate("a").run(untilEnd)
	await(b, a.terms)
	waiter := b.candidate("b").run(untilEnd)
	subscribers := func() int64 {
		n, err := b.admin.PubSubNumSub(context.Background(), a.channel).Result()
		require.NoError(t, err)
		return n[a.channel]
	}
	require.Eventually(t, func() bool { return subscribers() == 2 }, 10*time.Second, 5*time.Millisecond)
	killed, err := b.admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result()
	require.NoError(t, err)
	require.EqualValues(t, 2, killed)
	steady := 0 // one of them may briefly be subscribed twice
	require.Eventually(t, func() bool {
		if steady++; subscribers() != 2 {
			steady = 0
		}
		return steady == 20
	}, 10*time.Second, 5*time.Millisecond)

	a.stop()
	require.NoError(t, await(b, a.ended))
	released := time.Now()
	await(b, waiter.terms)
	require.Less(t, time.Since(released), b.ttl*3/20, "well before its next look would do it")
}

func TestServerThatIsDownIsWaitedFor(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	b := newBench(t, srv.Options(), "leader", 1500*time.Millisecond)
	a := b.candidate("a").run(untilEnd)
	first := await(b, a.terms)
	srv.Kill()
	await(b, first.ctx.Done())
	srv.Restart()
	second := await(b, a.terms)
	require.Greater(t, second.Epoch(), first.Epoch(), "though nothing is left of it")
}

func TestAReleaseThatMayNotBeAnnouncedIsARelease(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	require.NoError(t, srv.Client().Do(t.Context(),
		"ACL", "SETUSER", "mute", "on", ">p", "~*", "&*", "+@all", "-publish").Err())
	o := srv.Options()
	o.Username, o.Password = "mute", "p"
	b := newBench(t, o, "leader", 1500*time.Millisecond)
	a := b.candidate("a").run(untilEnd)
	for range 3 {
		await(b, a.terms)
		a.Resign(0)
	}
	await(b, a.terms)
	waiter := b.candidate("b").run(untilEnd)
	require.Eventually(t, waiter.subscribed.Load, 10*time.Second, 5*time.Millisecond)
	a.stop()
	require.NoError(t, await(b, a.ended))
	require.NotContains(t, b.value(), "a/", "it is released")
	await(b, waiter.terms)
	require.Equal(t, []Event{Acquired, Released, Acquired, Released, Acquired, Released, Acquired, Released}, a.seen())
	require.Equal(t, 1, a.log.count(slog.LevelWarn), a.log.all())
}

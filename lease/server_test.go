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
	a.ends()
	require.NotContains(t, b.value(), "a/", "it is released")
	await(b, waiter.terms)
	require.Equal(t, []Event{Acquired, Released, Acquired, Released, Acquired, Released, Acquired, Released}, a.seen())
	require.Equal(t, 1, a.log.count(slog.LevelWarn), a.log.all())
}

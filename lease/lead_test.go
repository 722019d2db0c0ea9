package lease

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTermEndsBeforeTheLeaseCanExpireWhenRedisHangs(t *testing.T) {
	rows(t, map[string]fault{
		"requests do not arrive":               drop,
		"replies do not come":                  mute,
		"calls do not even heed their context": stuck,
	}, func(b *bench, f fault) {
		judged := make(chan struct{})
		a := b.candidate("a").run(func(ctx context.Context, _ *Term) error {
			<-ctx.Done()
			<-judged // everything after this is a release
			return nil
		})
		b.Cleanup(a.line.mend)
		term := await(b, a.terms)
		time.Sleep(time.Minute) // renewed since
		a.line.breaks(f)
		broken := time.Now()
		await(b, term.ctx.Done())
		require.Equal(b, term.Token(), b.value(), "it still stands")
		left := b.admin.PTTL(b.Context(), b.key).Val()
		require.GreaterOrEqual(b, left, b.ttl/10)
		close(judged)
		require.False(b, term.Valid())
		require.False(b, a.leads())
		require.GreaterOrEqual(b, time.Since(broken), b.ttl/2, "it was not given up early")
		require.ErrorIs(b, context.Cause(term.ctx), ErrLost)
		require.ErrorContains(b, context.Cause(term.ctx), "not renewed for 13.5s")
		if f != stuck {
			require.ErrorIs(b, context.Cause(term.ctx), context.DeadlineExceeded, "and why")
		}

		other, _ := b.leader("b")
		require.Less(b, time.Since(broken), 2*b.ttl)
		synctest.Wait()
		require.Len(b, a.terms, 0)
		a.line.mend()
		time.Sleep(time.Minute)
		require.True(b, other.leads(), "the old leader's late requests change nothing")
		require.False(b, a.leads())
		require.Equal(b, []Event{Acquired, Lost}, a.seen())
	})
}

func TestATermOutlivesItsRenewals(t *testing.T) {
	inBubble(t, func(b *bench) {
		a, term := b.leader("a")
		time.Sleep(10*b.ttl + time.Second)
		require.True(b, term.Valid())
		require.NoError(b, term.ctx.Err())
		require.Equal(b, term.Token(), b.value())
		require.Equal(b, 30, a.line.count("extend"), "one each third of a TTL")
		require.Equal(b, []Event{Acquired}, a.seen())
	})
}

// A process that was stopped for longer than its trust finds a renewal due before its alarm fires.
func TestARenewalThatIsDueAfterTheTrustHasEndedIsNotSentAndTheTermIsLost(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.candidate("a")
		l := newLock(a.client, b.key, "a", a.times)
		require.NoError(b, l.acquire(b.Context(), time.Second))
		term := newTerm(b.Context(), a.Elector, l, trustWindow{since: time.Now(), times: a.times}, 1)
		defer term.close()
		require.True(b, a.renew(term))
		require.Equal(b, b.ttl-b.ttl/10, term.Remaining())
		sent := a.line.count("extend")
		term.alarm.Stop()
		time.Sleep(b.ttl)
		require.False(b, a.renew(term))
		require.Equal(b, sent, a.line.count("extend"))
		require.ErrorIs(b, context.Cause(term.ctx), ErrLost)
		require.ErrorContains(b, context.Cause(term.ctx), "not renewed for 15s")
		require.True(b, term.lost())
	})
}

func TestLostReplyOfARenewalDoesNotEndTheTerm(t *testing.T) {
	for name, f := range map[string]fault{"it happened": mute, "it did not": drop} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				a, term := b.leader("a")
				for range 10 {
					time.Sleep(time.Minute)
					a.line.breaksOnce("extend", f)
				}
				time.Sleep(20 * b.ttl)
				require.True(b, term.Valid())
				require.Equal(b, []Event{Acquired}, a.seen())
			})
		})
	}
}

func TestRenewalThatIsAnsweredTakenEndsTheTermAtOnce(t *testing.T) {
	rows(t, map[string]string{
		"another holds it":                   "other/1",
		"the same instance, in a later life": "a/ANOTHERTOKEN",
		"nobody holds it":                    "",
	}, func(b *bench, value string) {
		a, term := b.leader("a")
		time.Sleep(time.Minute + time.Millisecond)
		if value == "" {
			require.NoError(b, b.admin.Del(b.Context(), b.key).Err())
		} else {
			b.writes(value, 8*time.Second)
		}
		taken := time.Now()
		await(b, term.ctx.Done())
		require.LessOrEqual(b, time.Since(taken), b.ttl/3, "with the next renewal")
		require.ErrorIs(b, context.Cause(term.ctx), ErrLost)
		require.ErrorIs(b, context.Cause(term.ctx), errNotMine)
		require.NotEqual(b, term.Token(), b.value())
		again := await(b, a.terms)
		require.NotEqual(b, term.Token(), again.Token(), "a term that was interrupted does not go on")
		require.Greater(b, again.Epoch(), term.Epoch())
		require.Equal(b, []Event{Acquired, Lost, Acquired}, a.seen())
		require.Zero(b, a.line.count("release"), "there is nothing of its own")
		if value != "" {
			require.GreaterOrEqual(b, time.Since(taken), 8*time.Second, "the other's lease was not touched")
		}
	})
}

func TestLeaseIsHeldUntilTheWorkIsBack(t *testing.T) {
	rows(t, map[string]func(*candidate){
		"resigned": func(c *candidate) { c.Resign(0) },
		"stopped":  func(c *candidate) { c.stop() },
	}, func(b *bench, leave func(*candidate)) {
		var back time.Time
		a := b.candidate("a").run(func(ctx context.Context, _ *Term) error {
			<-ctx.Done()
			time.Sleep(14 * time.Second) // nearly a TTL
			back = time.Now()
			return nil
		})
		term := await(b, a.terms)
		other := b.candidate("b").run(untilEnd)
		time.Sleep(4 * time.Second) // the lease is not fresh
		leave(a)
		require.False(b, a.leads(), "its work is called off")
		for range 13 {
			time.Sleep(time.Second)
			require.Equal(b, term.Token(), b.value())
			require.Greater(b, b.admin.PTTL(b.Context(), b.key).Val(), b.ttl/2)
		}
		await(b, other.terms)
		require.False(b, back.IsZero())
		require.LessOrEqual(b, time.Since(back), wakeJitter)
		require.Equal(b, []Event{Acquired, Released}, a.seen())
	})
}

func TestWorkThatDoesNotEndLosesTheLease(t *testing.T) {
	inBubble(t, func(b *bench) {
		free, let := context.WithCancel(context.WithoutCancel(b.Context()))
		a := b.candidate("a").run(func(context.Context, *Term) error { <-free.Done(); return nil })
		b.Cleanup(let)
		await(b, a.terms)
		other := b.candidate("b").run(untilEnd)
		time.Sleep(time.Second)
		a.stop()
		stopped := time.Now()
		term := await(b, other.terms)
		require.LessOrEqual(b, time.Since(stopped), 2*b.ttl+wakeJitter, "held for a TTL, lapsed after another")
		require.Contains(b, a.log.all(), "led function outlives its term; letting the lease expire")
		require.Zero(b, a.log.count(slog.LevelError))
		time.Sleep(20 * b.ttl)
		require.Empty(b, a.ended, "Run does not leave it behind")
		require.Equal(b, 1, a.log.count(slog.LevelError), "somebody has to look after it")
		let()
		require.NoError(b, await(b, a.ended))
		require.Equal(b, term.Token(), b.value(), "the successor's lease is untouched")
		require.Equal(b, []Event{Acquired, Lost}, a.seen())
	})
}

// Work on a stalled Redis ends by its calls' own deadlines, some time after its term.
func TestAStallOfRedisIsToldInFewLinesAndNoneIsAnError(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.candidate("a").run(func(ctx context.Context, _ *Term) error {
			<-ctx.Done()
			time.Sleep(40 * time.Second)
			return errors.New("i/o timeout, as it comes when Redis hangs")
		})
		await(b, a.terms)
		time.Sleep(time.Minute)
		a.line.breaks(drop)
		time.Sleep(10 * time.Minute)
		a.line.mend()
		await(b, a.terms)
		require.Zero(b, a.log.count(slog.LevelError))
		require.Equal(b, 1, a.log.count(slog.LevelWarn), "the lease is lost")
		require.LessOrEqual(b, a.log.count(slog.LevelInfo), 6)
	})
}

func TestLostReplyOfAReleaseIsAskedAgain(t *testing.T) {
	for name, f := range map[string]fault{"it happened": mute, "it did not": drop} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				a, _ := b.leader("a")
				a.line.breaksOnce("release", f)
				a.ends()
				require.Empty(b, b.value())
				require.Equal(b, []Event{Acquired, Released}, a.seen())
				require.Equal(b, 1, a.line.count("announce"))
			})
		})
	}
}

// A process that was stopped for an hour runs before its timers fire.
func TestTermOfAWokenProcessIsNotValidBeforeItsAlarmRings(t *testing.T) {
	t.Parallel()
	_, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	e := &Elector{}
	e.term = &Term{
		ctx: t.Context(), end: cancel,
		window: trustWindow{since: time.Now().Add(-time.Hour), times: timings(15 * time.Second)},
	}
	require.False(t, e.term.Valid())
	require.Zero(t, e.term.Remaining())
	_, leads := e.Term()
	require.False(t, leads)
}

package lease

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestLostReplyOfAnAcquireThatHappened(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("acquire", mute)
		began := time.Now()
		a.run(untilEnd)
		term := await(b, a.terms)
		require.Less(t, time.Since(began), b.ttl, "it did not wait for its own lease to lapse")
		require.Equal(t, 1, a.line.count("acquire"), "it found it its own")
		require.Equal(t, term.Token(), b.value())
		require.InDelta(t, b.ttl-b.ttl/10, term.Remaining(), float64(time.Millisecond), "trust counts from the look, not from the attempt")
		require.Equal(t, b.ttl, b.admin.PTTL(t.Context(), b.key).Val())
		time.Sleep(20 * b.ttl)
		require.True(t, term.Valid())
	})
}

func TestAcquireThatLandsLateIsFoundAndNotDeletedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("acquire", late)
		a.run(untilEnd)
		term := await(b, a.terms)
		require.Equal(t, 1, a.line.count("acquire"))
		time.Sleep(20 * b.ttl)
		require.Equal(t, term.Token(), b.value())
		require.True(t, term.Valid())
	})
}

// After a failed acquire redsync sends a script that deletes the token. If that arrived after the
// elector found the lease its own, nobody would hold it.
func TestNoDeletionIsUnderWayAfterAnAcquireOfUnknownFate(t *testing.T) {
	for name, f := range map[string]fault{"no reply comes": mute, "the connection breaks": cut} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				a := b.candidate("a")
				a.line.breaksOnce("acquire", f)
				l := newLock(a.client, b.key, "a", a.times)
				err := l.acquire(t.Context(), time.Second)
				require.ErrorContains(t, err, "acquire failed after")
				require.NotErrorIs(t, err, errNotMine)
				require.Equal(t, l.token, b.value())
				require.NoError(t, l.extend(t.Context(), time.Second))
			})
		})
	}
}

func TestSlowAcquireIsTrustedFromItsRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("acquire", stuck)
		a.run(untilEnd)
		time.Sleep(3 * time.Second)
		a.line.mend()
		term := await(b, a.terms)
		require.Equal(t, b.ttl-b.ttl/10-3*time.Second, term.Remaining())
	})
}

func TestAttemptOfUnknownFateIsReleasedAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("acquire", mute)
		a.run(untilEnd)
		time.Sleep(time.Second)
		require.NotEmpty(t, b.value())
		a.stop()
		require.NoError(t, await(b, a.ended))
		require.Empty(t, b.value())
		require.Empty(t, a.seen())
	})
}

func TestWaitersOnlyLook(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		waiter := b.candidate("b").run(untilEnd)
		time.Sleep(time.Minute)
		require.InDelta(t, 5, waiter.line.count("look"), 2, "as often as the lease could expire")
		require.Zero(t, waiter.line.count("acquire"))
		require.Zero(t, waiter.line.count("release"))
		require.Zero(t, waiter.line.count("cap"))
	})
}

func TestExpiredLeaseIsTakenAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.admin.Set(t.Context(), b.key, "gone/1", b.ttl).Err())
		began := time.Now()
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		require.LessOrEqual(t, time.Since(began), b.ttl+wakeJitter)
		require.Equal(t, 3, a.line.count("look"), "at the beginning, when it is subscribed, when the lease has expired")
	})
}

func TestEpochThatCannotBeDrawnGivesTheLeaseBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksIf(func(cmd redis.Cmder) fault {
			if kindOf(cmd) == "epoch" {
				return cut
			}
			return none
		})
		a.run(untilEnd)
		time.Sleep(b.ttl / 2)
		require.Empty(t, a.terms)
		require.Contains(t, a.log.all(), "cannot contend for the lease")
		require.Equal(t, 1, a.line.count("release"))
		a.line.mend()
		await(b, a.terms)
		require.Contains(t, a.log.all(), "contending for the lease again")
	})
}

func TestEpochRisesThoughTheStoredOneIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const epochKey = "{janitor:leader}:epoch"
		// Ahead of the server's clock, as after a failover to a slow one.
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		require.NoError(t, b.admin.Set(t.Context(), epochKey, ahead, 0).Err())
		a := b.candidate("a").run(untilEnd)
		term := await(b, a.terms)
		require.Equal(t, ahead+1, term.Epoch())
		waiter := b.candidate("b").run(untilEnd) // has only read it
		time.Sleep(5 * time.Second)
		require.NoError(t, b.admin.Del(t.Context(), epochKey).Err())
		a.Resign(0)
		require.Equal(t, ahead+2, await(b, waiter.terms).Epoch())
	})
}

func TestNoEpochThatSomebodyWritesEndsAllTerms(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const epochKey = "{janitor:leader}:epoch"
		for _, damage := range []string{
			"abc", "9007199254740993",
		} {
			x, y := b.candidate("x").run(untilEnd), b.candidate("y").run(untilEnd)
			time.Sleep(b.ttl) // one leads, and the other has met the epoch
			for range 3 {
				require.NoError(t, b.admin.Set(t.Context(), epochKey, damage, 0).Err())
				time.Sleep(b.ttl) // both have met this one
				leader := x
				if y.leads() {
					leader = y
				}
				leader.Resign(b.ttl)
				time.Sleep(b.ttl)
				require.True(t, x.leads() || y.leads(), damage)
			}
			for _, c := range []*candidate{x, y} {
				if term, leads := c.Term(); leads {
					require.LessOrEqual(t, term.Epoch(), uint64(time.Now().UnixMicro()), damage)
				}
				c.stop()
				require.NoError(t, await(b, c.ended))
			}
		}
	})
}

func TestALeaseOfAnotherTypeIsSetAsideAndTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.admin.RPush(t.Context(), b.key, "x").Err())
		x := b.candidate("x").run(untilEnd)
		time.Sleep(b.ttl)
		h, err := x.Holder(t.Context())
		require.NoError(t, err)
		require.Equal(t, mistyped, h.Instance)
		time.Sleep(b.ttl)
		require.True(t, x.leads())
		require.Len(t, b.admin.Keys(t.Context(), "{"+b.key+"}:aside:*").Val(), 1, "it may be somebody's")

		require.NoError(t, b.admin.Del(t.Context(), b.key).Err())
		require.NoError(t, b.admin.HSet(t.Context(), b.key, "x", "y").Err())
		time.Sleep(4 * b.ttl)
		require.True(t, x.leads())
		require.Equal(t, "string", b.admin.Type(t.Context(), b.key).Val())
		require.Len(t, b.admin.Keys(t.Context(), "{"+b.key+"}:aside:*").Val(), 2, "none overwrites another")
	})
}

func TestRedrawRaisesTheEpochWithinTheTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a").run(untilEnd)
		term := await(b, a.terms)
		first := term.Epoch()
		second, err := term.Redraw(t.Context(), 0)
		require.NoError(t, err)
		require.Greater(t, second, first)
		above := uint64(time.Now().Add(time.Hour).UnixMicro())
		third, err := term.Redraw(t.Context(), above)
		require.NoError(t, err)
		require.Equal(t, above+1, third)
		require.Equal(t, third, term.Epoch())
		require.True(t, term.Valid())

		fourth, err := term.Redraw(t.Context(), 1<<53)
		require.NoError(t, err)
		require.Equal(t, third+1, fourth, "nobody has drawn that")
		require.True(t, term.Valid())

		require.NoError(t, b.admin.Set(t.Context(), b.key, "other/1", time.Hour).Err())
		_, err = term.Redraw(t.Context(), 0)
		require.ErrorIs(t, err, ErrLost)
		require.False(t, term.Valid(), "the server has said so")
		require.ErrorIs(t, context.Cause(term.ctx), ErrLost)
	})
}

func TestLeaseThatWouldNotEndIsCapped(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.admin.Set(t.Context(), b.key, "by hand", 0).Err())
		began := time.Now()
		x, y := b.candidate("x").run(untilEnd), b.candidate("y").run(untilEnd)
		time.Sleep(b.ttl - time.Second)
		require.Zero(t, x.line.count("cap")+y.line.count("cap"), "not before a whole TTL")
		select {
		case <-x.terms:
		case <-y.terms:
		case <-time.After(3 * b.ttl):
		}
		require.Less(t, time.Since(began), 3*b.ttl)
		warned := strings.Join(append(x.log.all(), y.log.all()...), "\n")
		require.Equal(t, 1, strings.Count(warned, "capped a lease"))
	})
}

// setBack lengthens the lease as a server's clock does that is set back.
func (b *bench) setBack(by time.Duration) {
	left := b.admin.PTTL(b.t.Context(), b.key).Val()
	require.Positive(b.t, left)
	require.NoError(b.t, b.admin.PExpire(b.t.Context(), b.key, left+by).Err())
}

func TestALeaderThatDiesAsTheClockGoesBackHasASuccessorSoon(t *testing.T) {
	for _, by := range []time.Duration{3 * time.Minute, 50 * time.Minute, 24 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				a := b.candidate("a").run(untilEnd)
				await(b, a.terms)
				waiter, another := b.candidate("b").run(untilEnd), b.candidate("c").run(untilEnd)
				time.Sleep(b.ttl)
				a.line.breaks(drop)
				left := b.admin.PTTL(t.Context(), b.key).Val()
				b.setBack(by)
				// They look when it should have ended, watch it for a TTL, and then its last TTL
				// begins.
				time.Sleep(left + 2*b.ttl + b.ttl*6/25 + 2*wakeJitter)
				require.NotEqual(t, waiter.leads(), another.leads(), "one of them leads")
			})
		})
	}
}

func TestALiveHolderKeepsItsLeaseWhenTheClockGoesBack(t *testing.T) {
	for _, by := range []time.Duration{time.Second, 3 * time.Minute, 24 * time.Hour} {
		for _, times := range []time.Duration{1, 4, 9, 40} { // the same TTL as the waiter's
			t.Run(fmt.Sprint(by, " ", int(times)), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					longer := *b
					longer.ttl = times * b.ttl
					a := longer.candidate("a").run(untilEnd)
					term := await(b, a.terms)
					waiter := b.candidate("b").run(untilEnd)
					for range 10 {
						time.Sleep(longer.ttl * 4 / 5)
						b.setBack(by)
					}
					time.Sleep(10 * longer.ttl)
					require.True(t, term.Valid())
					require.Empty(t, waiter.terms)
				})
			})
		}
	}
}

func TestAReleaseThatIsHeardInTheMiddleOfAnAttemptIsNotForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a").run(untilEnd)
		await(b, a.terms)
		waiter := b.candidate("b").run(untilEnd)
		time.Sleep(b.ttl)
		waiter.line.breaksOnce("look", held)
		waiter.released <- struct{}{} // makes it look
		time.Sleep(time.Second)
		a.stop()
		require.NoError(t, await(b, a.ended))
		time.Sleep(time.Second)
		waiter.line.mend() // the lease was held when it looked
		mended := time.Now()
		await(b, waiter.terms)
		require.LessOrEqual(t, time.Since(mended), wakeJitter)
	})
}

func TestTheHighestEpochIsRememberedUnlessItIsDamaged(t *testing.T) {
	t.Parallel()
	e := &Elector{}
	for _, c := range [][2]uint64{{5, 5}, {3, 5}, {1 << 60, 5}, {9, 9}} {
		require.Equal(t, c[1], e.met(c[0]), c[0])
	}
}

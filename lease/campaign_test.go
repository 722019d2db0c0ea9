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

func TestACampaignThatMeetsOneFaultWinsAllTheSame(t *testing.T) {
	type row struct {
		kind  string
		fault fault
	}
	rows(t, map[string]row{
		"an acquire that happened has no reply": {"acquire", mute},
		"an acquire lands late":                 {"acquire", late},
		"an acquire is slow":                    {"acquire", stuck},
		"the line breaks as the epoch is drawn": {"epoch", cut},
	}, func(b *bench, c row) {
		a := b.candidate("a")
		a.line.breaksOnce(c.kind, c.fault)
		began := time.Now()
		a.run(untilEnd)
		if c.fault == stuck {
			time.Sleep(3 * time.Second)
			a.line.mend()
		}
		term := await(b, a.terms)
		require.Less(b, time.Since(began), b.ttl, "it did not wait for its own lease to lapse")
		require.Equal(b, 1, a.line.count("acquire"), "it found it its own")
		require.Equal(b, term.Token(), b.value())
		trusted := b.ttl - b.ttl/10
		switch c.fault {
		case mute:
			require.InDelta(b, trusted, term.Remaining(), float64(time.Millisecond), "from the look, not from the attempt")
			require.Equal(b, b.ttl, b.admin.PTTL(b.Context(), b.key).Val())
		case stuck:
			require.Equal(b, trusted-3*time.Second, term.Remaining(), "from its request")
		case cut:
			require.GreaterOrEqual(b, a.line.count("epoch"), 2)
			require.Zero(b, a.line.count("release"), "the lease is not given away")
		}
		time.Sleep(20 * b.ttl)
		require.Equal(b, term.Token(), b.value())
		require.True(b, term.Valid())
	})
}

// After a failed acquire redsync sends a script that deletes the token. If that arrived after the
// elector found the lease its own, nobody would hold it.
func TestNoDeletionIsUnderWayAfterAnAcquireOfUnknownFate(t *testing.T) {
	for name, f := range map[string]fault{"no reply comes": mute, "the connection breaks": cut} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				a := b.candidate("a")
				a.line.breaksOnce("acquire", f)
				l := newLock(a.client, b.key, "a", a.times)
				err := l.acquire(b.Context(), time.Second)
				require.ErrorContains(b, err, "acquire failed after")
				require.NotErrorIs(b, err, errNotMine)
				require.Equal(b, l.token, b.value())
				require.NoError(b, l.extend(b.Context(), time.Second))
			})
		})
	}
}

func TestAttemptOfUnknownFateIsReleasedAtTheEnd(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("acquire", mute)
		a.run(untilEnd)
		time.Sleep(time.Second)
		require.NotEmpty(b, b.value())
		a.ends()
		require.Empty(b, b.value())
		require.Empty(b, a.seen())
	})
}

func TestWaitersOnlyLook(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.leader("a")
		waiter := b.candidate("b").run(untilEnd)
		time.Sleep(time.Minute)
		require.InDelta(b, 5, waiter.line.count("look"), 2, "as often as the lease could expire")
		require.Zero(b, waiter.line.count("acquire"))
		require.Zero(b, waiter.line.count("release"))
		require.Zero(b, waiter.line.count("cap"))
	})
}

func TestExpiredLeaseIsTakenAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.writes("gone/1", b.ttl)
		began := time.Now()
		a, _ := b.leader("a")
		require.LessOrEqual(b, time.Since(began), b.ttl+wakeJitter)
		require.Equal(b, 3, a.line.count("look"), "at the beginning, when it is subscribed, when the lease has expired")
	})
}

func TestEpochThatCannotBeDrawnGivesTheLeaseBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.candidate("a")
		a.line.breaksIf(func(cmd redis.Cmder) fault {
			if kindOf(cmd) == "epoch" {
				return cut
			}
			return none
		})
		a.run(untilEnd)
		time.Sleep(b.ttl / 2)
		require.Empty(b, a.terms)
		require.Contains(b, a.log.all(), "cannot contend for the lease")
		require.Equal(b, 1, a.line.count("release"))
		a.line.mend()
		await(b, a.terms)
		require.Contains(b, a.log.all(), "contending for the lease again")
	})
}

func TestEpochRisesThoughTheStoredOneIsLost(t *testing.T) {
	inBubble(t, func(b *bench) {
		const epochKey = "{janitor:leader}:epoch"
		// Ahead of the server's clock, as after a failover to a slow one.
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		require.NoError(b, b.admin.Set(b.Context(), epochKey, ahead, 0).Err())
		a, term := b.leader("a")
		require.Equal(b, ahead+1, term.Epoch())
		waiter := b.candidate("b").run(untilEnd) // has only read it
		time.Sleep(5 * time.Second)
		require.NoError(b, b.admin.Del(b.Context(), epochKey).Err())
		a.Resign(0)
		require.Equal(b, ahead+2, await(b, waiter.terms).Epoch())
	})
}

func TestNoEpochThatSomebodyWritesEndsAllTerms(t *testing.T) {
	inBubble(t, func(b *bench) {
		const epochKey = "{janitor:leader}:epoch"
		for _, damage := range []string{
			"abc", "9007199254740993",
		} {
			x, y := b.candidate("x").run(untilEnd), b.candidate("y").run(untilEnd)
			time.Sleep(b.ttl) // one leads, and the other has met the epoch
			for range 3 {
				require.NoError(b, b.admin.Set(b.Context(), epochKey, damage, 0).Err())
				time.Sleep(b.ttl) // both have met this one
				leader := x
				if y.leads() {
					leader = y
				}
				leader.Resign(b.ttl)
				time.Sleep(b.ttl)
				require.True(b, x.leads() || y.leads(), damage)
			}
			for _, c := range []*candidate{x, y} {
				if term, leads := c.Term(); leads {
					require.LessOrEqual(b, term.Epoch(), uint64(time.Now().UnixMicro()), damage)
				}
				c.ends()
			}
		}
	})
}

func TestALeaseOfAnotherTypeIsSetAsideAndTaken(t *testing.T) {
	inBubble(t, func(b *bench) {
		require.NoError(b, b.admin.RPush(b.Context(), b.key, "x").Err())
		x := b.candidate("x").run(untilEnd)
		time.Sleep(b.ttl)
		h, err := x.Holder(b.Context())
		require.NoError(b, err)
		require.Equal(b, mistyped, h.Instance)
		time.Sleep(b.ttl)
		require.True(b, x.leads())
		require.Len(b, b.admin.Keys(b.Context(), "{"+b.key+"}:aside:*").Val(), 1, "it may be somebody's")

		require.NoError(b, b.admin.Del(b.Context(), b.key).Err())
		require.NoError(b, b.admin.HSet(b.Context(), b.key, "x", "y").Err())
		time.Sleep(4 * b.ttl)
		require.True(b, x.leads())
		require.Equal(b, "string", b.admin.Type(b.Context(), b.key).Val())
		require.Len(b, b.admin.Keys(b.Context(), "{"+b.key+"}:aside:*").Val(), 2, "none overwrites another")
	})
}

func TestRedrawRaisesTheEpochWithinTheTerm(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, term := b.leader("a")
		first := term.Epoch()
		second, err := term.Redraw(b.Context(), 0)
		require.NoError(b, err)
		require.Greater(b, second, first)
		above := uint64(time.Now().Add(time.Hour).UnixMicro())
		third, err := term.Redraw(b.Context(), above)
		require.NoError(b, err)
		require.Equal(b, above+1, third)
		require.Equal(b, third, term.Epoch())
		require.True(b, term.Valid())

		fourth, err := term.Redraw(b.Context(), 1<<53)
		require.NoError(b, err)
		require.Equal(b, third+1, fourth, "nobody has drawn that")
		require.True(b, term.Valid())

		b.writes("other/1", time.Hour)
		_, err = term.Redraw(b.Context(), 0)
		require.ErrorIs(b, err, ErrLost)
		require.False(b, term.Valid(), "the server has said so")
		require.ErrorIs(b, context.Cause(term.ctx), ErrLost)
	})
}

func TestLeaseThatWouldNotEndIsCapped(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.writes("by hand", 0)
		began := time.Now()
		x, y := b.candidate("x").run(untilEnd), b.candidate("y").run(untilEnd)
		time.Sleep(b.ttl - time.Second)
		require.Zero(b, x.line.count("cap")+y.line.count("cap"), "not before a whole TTL")
		select {
		case <-x.terms:
		case <-y.terms:
		case <-time.After(3 * b.ttl):
		}
		require.Less(b, time.Since(began), 3*b.ttl)
		warned := strings.Join(append(x.log.all(), y.log.all()...), "\n")
		require.Equal(b, 1, strings.Count(warned, "capped a lease"))
	})
}

// setBack lengthens the lease as a server's clock does that is set back.
func (b *bench) setBack(by time.Duration) {
	left := b.admin.PTTL(b.Context(), b.key).Val()
	require.Positive(b, left)
	require.NoError(b, b.admin.PExpire(b.Context(), b.key, left+by).Err())
}

func TestALeaderThatDiesAsTheClockGoesBackHasASuccessorSoon(t *testing.T) {
	rows(t, map[string]time.Duration{"3 m": 3 * time.Minute, "50 m": 50 * time.Minute, "a day": 24 * time.Hour},
		func(b *bench, by time.Duration) {
			a, _ := b.leader("a")
			waiter, another := b.candidate("b").run(untilEnd), b.candidate("c").run(untilEnd)
			time.Sleep(b.ttl)
			a.line.breaks(drop)
			left := b.admin.PTTL(b.Context(), b.key).Val()
			b.setBack(by)
			// They look when it should have ended, watch it for a TTL, and then its last TTL
			// begins.
			time.Sleep(left + 2*b.ttl + b.ttl*6/25 + 2*wakeJitter)
			require.NotEqual(b, waiter.leads(), another.leads(), "one of them leads")
		})
}

func TestALiveHolderKeepsItsLeaseWhenTheClockGoesBack(t *testing.T) {
	for _, by := range []time.Duration{time.Second, 3 * time.Minute, 24 * time.Hour} {
		for _, times := range []time.Duration{1, 4, 9, 40} { // the same TTL as the waiter's
			t.Run(fmt.Sprint(by, " ", int(times)), func(t *testing.T) {
				inBubble(t, func(b *bench) {
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
					require.True(b, term.Valid())
					require.Empty(b, waiter.terms)
				})
			})
		}
	}
}

func TestAReleaseThatIsHeardInTheMiddleOfAnAttemptIsNotForgotten(t *testing.T) {
	inBubble(t, func(b *bench) {
		a, _ := b.leader("a")
		waiter := b.candidate("b").run(untilEnd)
		time.Sleep(b.ttl)
		waiter.line.breaksOnce("look", held)
		waiter.released <- struct{}{} // makes it look
		time.Sleep(time.Second)
		a.ends()
		time.Sleep(time.Second)
		waiter.line.mend() // the lease was held when it looked
		mended := time.Now()
		await(b, waiter.terms)
		require.LessOrEqual(b, time.Since(mended), wakeJitter)
	})
}

func TestTheHighestEpochIsRememberedUnlessItIsDamaged(t *testing.T) {
	t.Parallel()
	e := &Elector{}
	for _, c := range [][2]uint64{{5, 5}, {3, 5}, {1 << 60, 5}, {9, 9}} {
		require.Equal(t, c[1], e.met(c[0]), c[0])
	}
}

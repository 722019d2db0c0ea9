package lease

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/panics"
	"github.com/stretchr/testify/require"
)

func TestHolderIsReadInOneRoundTrip(t *testing.T) {
	inBubble(t, func(b *bench) {
		c := b.candidate("zone/a")
		holder := func(of *candidate) Holder {
			h, err := of.Holder(b.Context())
			require.NoError(b, err)
			return h
		}
		require.Zero(b, holder(c))

		c.run(untilEnd)
		term := await(b, c.terms)
		other := b.candidate("b")
		require.Equal(b, Holder{Instance: "zone/a", Token: term.Token(), TTL: b.ttl, Epoch: term.Epoch()}, holder(other))
		require.Equal(b, 1, other.line.count("look"))

		for value, instance := range map[string]string{"": "", "by hand": "by hand", "/": "/", "a\x00\n/1": "a\x00\n"} {
			b.writes(value, 0)
			h := holder(other)
			require.Equal(b, instance, h.Instance)
			require.Negative(b, h.TTL, "it has no expiry")
		}
		require.NoError(b, b.admin.Del(b.Context(), b.key).Err())
		require.NoError(b, b.admin.HSet(b.Context(), b.key, "f", "v").Err())
		require.Equal(b, mistyped, holder(other).Instance)
		require.NoError(b, b.admin.Del(b.Context(), b.key).Err())
		require.Equal(b, Holder{Epoch: term.Epoch()}, holder(other))

		other.line.breaks(drop)
		_, err := other.Holder(b.Context())
		require.ErrorIs(b, err, context.DeadlineExceeded)
	})
}

func TestNilFromLeadResignsAndCampaignsAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		c := b.candidate("a").run(func(context.Context, *Term) error { return nil })
		first := await(b, c.terms)
		began := time.Now()
		second := await(b, c.terms)
		require.GreaterOrEqual(b, time.Since(began), b.ttl/5, "it stood back for a retry interval")
		require.Less(b, time.Since(began), b.ttl/5+100*time.Millisecond)
		require.Greater(b, second.Epoch(), first.Epoch())
		require.NotEqual(b, second.Token(), first.Token())
		require.False(b, first.Valid())
		require.ErrorIs(b, context.Cause(first.ctx), ErrResigned)
	})
}

func TestErrorFromInterruptedWorkIsNoFailure(t *testing.T) {
	inBubble(t, func(b *bench) {
		c := b.candidate("a").run(func(ctx context.Context, _ *Term) error {
			<-ctx.Done()
			return errors.New("i/o timeout, as it comes when Redis hangs")
		})
		await(b, c.terms)
		b.writes("other/1", time.Second)
		await(b, c.terms) // lost, and won again
		require.Contains(b, c.log.all(), "led function ended with an error after its term")
		c.ends()
	})
}

func TestPanicOfLeadReleasesAndGoesOn(t *testing.T) {
	inBubble(t, func(b *bench) {
		c := b.candidate("a")
		var value any
		func() {
			defer func() { value = recover() }()
			_ = c.Run(b.Context(), func(context.Context, *Term) error { panic("oh") })
		}()
		recovered, ok := value.(*panics.Recovered)
		require.True(b, ok)
		require.Equal(b, "oh", recovered.Value)
		require.Contains(b, string(recovered.Stack), "TestPanicOfLead")
		require.Empty(b, b.value())
	})
}

func TestFailureOfLeadEndsRunAfterTheRelease(t *testing.T) {
	for says, lead := range map[string]func(context.Context, *Term) error{
		"EOF":    func(context.Context, *Term) error { return io.EOF },
		"Goexit": func(context.Context, *Term) error { runtime.Goexit(); return nil },
	} {
		t.Run(says, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				c := b.candidate("a")
				var led []bool
				c.line.breaksIf(func(cmd redis.Cmder) fault {
					if kindOf(cmd) == "release" {
						led = append(led, c.leads())
					}
					return none
				})
				c.run(lead)
				require.ErrorContains(b, await(b, c.ended), says)
				require.Equal(b, []bool{false}, led, "its term is over before")
				require.Empty(b, b.value())
				require.Equal(b, []Event{Acquired, Released}, c.seen())
			})
		})
	}
}

func TestEndOfContextReleasesAndRunReturnsNil(t *testing.T) {
	inBubble(t, func(b *bench) {
		c, term := b.leader("a")
		require.ErrorContains(b, c.Run(b.Context(), untilEnd), "already running")
		c.ends()
		require.Empty(b, b.value())
		require.Equal(b, []Event{Acquired, Released}, c.seen())
		require.ErrorIs(b, context.Cause(term.ctx), context.Canceled)
		require.False(b, term.Valid())
		require.False(b, c.leads())
		require.Equal(b, 1, c.line.count("announce"))
		c.run(untilEnd) // consecutive runs are fine
		await(b, c.terms)
	})
}

func TestReleaseWakesTheWaiters(t *testing.T) {
	inBubble(t, func(b *bench) {
		a, _ := b.leader("a")
		waiter := b.candidate("b").run(untilEnd)
		for i := range 6 { // whenever it falls in the waiter's interval, and after long silence
			time.Sleep(1700 * time.Millisecond << (2 * i))
			a.ends()
			released := time.Now()
			await(b, waiter.terms)
			require.LessOrEqual(b, time.Since(released), wakeJitter)
			a, waiter = waiter, b.candidate("c").run(untilEnd)
		}
	})
}

func TestAReleaseThatWasNotHeardIsFoundByLooking(t *testing.T) {
	bounds := map[string]struct {
		deaf   bool
		within func(ttl time.Duration) time.Duration
	}{
		"a deaf waiter looks often":                                {true, func(ttl time.Duration) time.Duration { return ttl * 6 / 25 }},
		"one that believes to be subscribed, when it could expire": {false, func(ttl time.Duration) time.Duration { return ttl + wakeJitter }},
	}
	for name, c := range bounds {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				a, _ := b.leader("a")
				waiter := b.candidate("b").run(untilEnd)
				time.Sleep(10 * time.Second)
				waiter.subscribed.Store(!c.deaf)
				time.Sleep(b.ttl)
				a.line.breaksOnce("announce", drop)
				a.stop()
				released := time.Now()
				await(b, waiter.terms)
				require.LessOrEqual(b, time.Since(released), c.within(b.ttl))
			})
		})
	}
}

func TestResignedLeaderStandsBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		a, term := b.leader("a")
		waiter := b.candidate("b").run(untilEnd)
		synctest.Wait()
		for range 10 {
			a.Resign(0)
			require.False(b, a.leads(), "at once")
			require.ErrorIs(b, context.Cause(term.ctx), ErrResigned)
			term = await(b, waiter.terms)
			time.Sleep(20 * time.Second)
			require.Len(b, a.terms, 0, "it did not win its own release")
			a, waiter = waiter, a
		}
	})
}

func TestLonelyLeaderStandsBackForAsLongAsItSaid(t *testing.T) {
	inBubble(t, func(b *bench) {
		a, _ := b.leader("a")
		a.Resign(10 * time.Minute)
		a.Resign(time.Minute) // does not shorten it
		resigned := time.Now()
		time.Sleep(9 * time.Minute)
		await(b, a.terms)
		require.GreaterOrEqual(b, time.Since(resigned), 10*time.Minute)
		require.Less(b, time.Since(resigned), 10*time.Minute+time.Second)
	})
}

func TestResignWhileTheLeaseIsBeingWonKeepsTheTermFromBeginning(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.candidate("a")
		began := time.Now()
		a.line.breaksIf(func(cmd redis.Cmder) fault {
			if kindOf(cmd) == "epoch" && time.Now().Equal(began) {
				a.Resign(time.Minute)
			}
			return none
		})
		a.run(untilEnd)
		synctest.Wait()
		require.Empty(b, b.value())
		await(b, a.terms)
		require.GreaterOrEqual(b, time.Since(began), time.Minute)
	})
}

func TestNewNamesAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := New(Config{TTL: time.Nanosecond})
	require.ErrorContains(t, err, "Key is empty")
	require.ErrorContains(t, err, "Instance is empty")
	require.ErrorContains(t, err, "TTL is 1ns")

	plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer plain.Close()
	_, err = New(Config{Client: plain, Key: "k", Instance: "i"})
	require.ErrorIs(t, err, ErrUnsafeClient)
	require.ErrorContains(t, err, "shorter than 5s", "15 s is the default TTL")
	require.ErrorContains(t, err, "lease.Options makes a safe one")

	safe := redis.NewClient(Options(&redis.Options{Addr: "127.0.0.1:1"}))
	defer safe.Close()
	_, err = New(Config{Client: safe, Key: "k", Instance: "i", TTL: 3 * time.Second})
	require.NoError(t, err)
	_, err = New(Config{Client: safe, Key: "k", Instance: "i", TTL: 2 * time.Second})
	require.ErrorContains(t, err, "ReadTimeout is 900ms")
	require.NotContains(t, err.Error(), "makes a safe one", "it made this one")

	const short = 30 * time.Millisecond
	quick := redis.NewClient(Options(&redis.Options{
		Addr: "127.0.0.1:1", DialTimeout: short, ReadTimeout: short, WriteTimeout: short, PoolTimeout: short,
	}))
	defer quick.Close()
	_, err = New(Config{Client: quick, Key: "k", Instance: "i", TTL: minTTL})
	require.NoError(t, err, "the least there is")
}

func TestKeysOfALeaseShareItsSlot(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]struct{ prefix, err string }{
		"janitor:leader": {prefix: "{janitor:leader}"},
		"{fleet}:leader": {prefix: "{fleet}:leader"},
		"a{b}c{d}":       {prefix: "a{b}c{d}"},
		"":               {err: "empty"},
		"a{b":            {err: "no hash tag"},
		"a}b":            {err: "no hash tag"},
		"a}b{":           {err: "no hash tag"},
		"{}a":            {err: "no hash tag"},
	} {
		prefix, err := slotPrefix(key)
		require.Equal(t, c.prefix, prefix, key)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, key)
		} else {
			require.NoError(t, err, key)
		}
	}
}

// expired is a hook that lets the lease expire between the commands of each look.
type expired struct{ *line }

func (expired) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if left, ok := cmds[1].(*redis.DurationCmd); ok {
			left.SetVal(-2)
		}
		return err
	}
}

func TestALeaseThatExpiresWhileItIsReadIsHeldByNobody(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.candidate("a")
		a.client.AddHook(expired{&line{}})
		b.writes("other/1", time.Minute)
		h, err := a.Holder(b.Context())
		require.NoError(b, err)
		require.Zero(b, h)
	})
}

package lease

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Failed calls return the error of the server or the line, and name the operation.
func TestWhatAsksRedisReturnsItsErrorAndSaysWhatItAsked(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		do   func(ctx context.Context, e *Elector, l *lock, term *Term) error
	}{
		"Holder": {"lease: read the holder: ", func(ctx context.Context, e *Elector, _ *lock, _ *Term) error {
			_, err := e.Holder(ctx)
			return err
		}},
		"Redraw": {"lease: draw epoch: ", func(ctx context.Context, _ *Elector, _ *lock, term *Term) error {
			_, err := term.Redraw(ctx, 0)
			return err
		}},
		"cap": {"lease: cap: ", func(ctx context.Context, e *Elector, _ *lock, _ *Term) error {
			now := time.Now()
			e.stuckWatch = stuckWatch{token: "by hand", since: now.Add(-e.times.ttl()), last: now, left: -1}
			return e.capStuck(ctx, Holder{Token: "by hand", TTL: -1})
		}},
		"acquire": {"lease: acquire failed after 0s: ", func(ctx context.Context, _ *Elector, l *lock, _ *Term) error {
			return l.acquire(ctx, time.Second)
		}},
		"extend": {"lease: extend failed after 0s: ", func(ctx context.Context, _ *Elector, l *lock, _ *Term) error {
			return l.extend(ctx, time.Second)
		}},
		"release": {"lease: release failed after 0s: ", func(ctx context.Context, _ *Elector, l *lock, _ *Term) error {
			return l.release(ctx, time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				for fault, err := range map[fault]error{gone: io.ErrUnexpectedEOF, refused: errRefused} {
					a := b.candidate("a").run(untilEnd)
					term := await(b, a.terms)
					epoch := term.Epoch()
					a.line.breaks(fault)
					got := c.do(t.Context(), a.Elector, newLock(a.client, "other", "a", a.times), term)
					a.line.mend()
					require.ErrorIs(t, got, err)
					require.NotErrorIs(t, got, errNotMine)
					require.True(t, strings.HasPrefix(got.Error(), c.says), got)
					require.Equal(t, epoch, term.Epoch())
					require.True(t, term.Valid(), "an error is no answer")
					a.stop()
					require.NoError(t, await(b, a.ended))
				}
			})
		})
	}
}

func TestAWaiterAsksNoMoreOftenWhileRedisFails(t *testing.T) {
	for name, command := range map[string]string{"to be read": "look", "to be written": "acquire"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				a := b.candidate("a")
				a.line.breaksIf(func(cmd redis.Cmder) fault {
					if kindOf(cmd) == command {
						return gone
					}
					return none
				})
				a.run(untilEnd)
				time.Sleep(100 * a.times.retry())
				require.InDelta(t, 100, a.line.count(command), 20)
				a.line.mend()
				await(b, a.terms)
			})
		})
	}
}

func TestAnEndInTheMiddleOfAnAttemptIsNoTrouble(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaks(drop)
		a.run(untilEnd)
		synctest.Wait()
		a.stop()
		require.NoError(t, await(b, a.ended))
		require.Empty(t, a.log.all())
	})
}

func TestAReleaseThatFailsIsTriedAgainAfterAPause(t *testing.T) {
	for name, c := range map[string]struct {
		fails int
		want  Event
		waits time.Duration // multiples of the time between two tries
	}{
		"never":     {0, Released, 0},
		"once":      {1, Released, 1},
		"each time": {releaseTries, Released, releaseTries - 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				a := b.candidate("a").run(untilEnd)
				term := await(b, a.terms)
				tried := 0
				a.line.breaksIf(func(cmd redis.Cmder) fault {
					if kindOf(cmd) != "release" {
						return none
					}
					if tried++; tried > c.fails {
						return none
					}
					return refused
				})
				a.stop()
				stopped := time.Now()
				require.NoError(t, await(b, a.ended))
				require.Equal(t, c.waits*a.times.again(), time.Since(stopped))
				require.Equal(t, []Event{Acquired, c.want}, a.seen())
				want := ""
				if c.fails == releaseTries {
					want = term.Token()
				}
				require.Equal(t, want, b.value())
			})
		})
	}
}

func TestOneBlipWhileTheEpochIsDrawnDoesNotGiveTheLeaseAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("epoch", cut)
		a.run(untilEnd)
		term := await(b, a.terms)
		require.True(t, term.Valid())
		require.Equal(t, 1, a.line.count("acquire"))
		require.Zero(t, a.line.count("release"))
		require.GreaterOrEqual(t, a.line.count("epoch"), 2)
	})
}

func TestAnElectorThatIsFencedWhileItDrawsGivesNothingBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("epoch", cut)
		a.run(untilEnd)
		synctest.Wait()
		require.NoError(t, b.admin.Set(t.Context(), b.key, "other/1", time.Hour).Err())
		time.Sleep(b.ttl)
		require.Zero(t, a.line.count("release"), "there is nothing of its own")
		require.NotContains(t, a.log.all(), "cannot contend for the lease", "another was faster: no trouble")
	})
}

func TestALeaseThatCannotBeCappedIsCappedLater(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.admin.Set(t.Context(), b.key, "by hand", 0).Err())
		a := b.candidate("a")
		a.line.breaksOnce("cap", drop)
		began := time.Now()
		a.run(untilEnd)
		await(b, a.terms)
		require.Greater(t, time.Since(began), 2*b.ttl, "it watched for a TTL, and waited for one")
		require.GreaterOrEqual(t, a.line.count("cap"), 2)
		require.Contains(t, a.log.all(), "cannot contend for the lease")
		require.Contains(t, a.log.all(), "contending for the lease again")
	})
}

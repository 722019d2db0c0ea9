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
	type row struct {
		says string
		do   func(ctx context.Context, e *Elector, l *lock, term *Term) error
	}
	rows(t, map[string]row{
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
	}, func(b *bench, c row) {
		for fault, err := range map[fault]error{gone: io.ErrUnexpectedEOF, refused: errRefused} {
			a, term := b.leader("a")
			epoch := term.Epoch()
			a.line.breaks(fault)
			got := c.do(b.Context(), a.Elector, newLock(a.client, "other", "a", a.times), term)
			a.line.mend()
			require.ErrorIs(b, got, err)
			require.NotErrorIs(b, got, errNotMine)
			require.True(b, strings.HasPrefix(got.Error(), c.says), got)
			require.Equal(b, epoch, term.Epoch())
			require.True(b, term.Valid(), "an error is no answer")
			a.ends()
		}
	})
}

func TestAWaiterAsksNoMoreOftenWhileRedisFails(t *testing.T) {
	for name, command := range map[string]string{"to be read": "look", "to be written": "acquire"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				a := b.candidate("a")
				a.line.breaksIf(func(cmd redis.Cmder) fault {
					if kindOf(cmd) == command {
						return gone
					}
					return none
				})
				a.run(untilEnd)
				time.Sleep(100 * a.times.retry())
				require.InDelta(b, 100, a.line.count(command), 20)
				a.line.mend()
				await(b, a.terms)
			})
		})
	}
}

func TestAnEndInTheMiddleOfAnAttemptIsNoTrouble(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.candidate("a")
		a.line.breaks(drop)
		a.run(untilEnd)
		synctest.Wait()
		a.ends()
		require.Empty(b, a.log.all())
	})
}

func TestAReleaseThatFailsIsTriedAgainAfterAPause(t *testing.T) {
	type row struct {
		fails int
		want  Event
		waits time.Duration // multiples of the time between two tries
	}
	rows(t, map[string]row{
		"never":     {0, Released, 0},
		"once":      {1, Released, 1},
		"each time": {releaseTries, Released, releaseTries - 1},
	}, func(b *bench, c row) {
		a, term := b.leader("a")
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
		require.NoError(b, await(b, a.ended))
		require.Equal(b, c.waits*a.times.again(), time.Since(stopped))
		require.Equal(b, []Event{Acquired, c.want}, a.seen())
		want := ""
		if c.fails == releaseTries {
			want = term.Token()
		}
		require.Equal(b, want, b.value())
	})
}

func TestAnElectorThatIsFencedWhileItDrawsGivesNothingBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		a := b.candidate("a")
		a.line.breaksOnce("epoch", cut)
		a.run(untilEnd)
		synctest.Wait()
		b.writes("other/1", time.Hour)
		time.Sleep(b.ttl)
		require.Zero(b, a.line.count("release"), "there is nothing of its own")
		require.NotContains(b, a.log.all(), "cannot contend for the lease", "another was faster: no trouble")
	})
}

func TestALeaseThatCannotBeCappedIsCappedLater(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.writes("by hand", 0)
		a := b.candidate("a")
		a.line.breaksOnce("cap", drop)
		began := time.Now()
		a.run(untilEnd)
		await(b, a.terms)
		require.Greater(b, time.Since(began), 2*b.ttl, "it watched for a TTL, and waited for one")
		require.GreaterOrEqual(b, a.line.count("cap"), 2)
		require.Contains(b, a.log.all(), "cannot contend for the lease")
		require.Contains(b, a.log.all(), "contending for the lease again")
	})
}

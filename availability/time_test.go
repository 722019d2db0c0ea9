package availability

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// line is the way to a Redis, which can be cut.
type line struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (l *line) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return nil, errors.New("connection refused")
	}
	conn, err := l.dial(ctx, network, addr)
	l.conns = append(l.conns, conn)
	return conn, err
}

// cut ends all connections, and refuses others until it is mended.
func (l *line) cut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = cut
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

// inTime runs a test in a bubble, where hours are over at once, with a Redis inside it.
func inTime(t *testing.T, test func(t *testing.T, w redistest.World, l *line)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := redistest.Fake(t)
		// Nobody has to wait for a connection: go-redis does so with timers that bubbles would share.
		o.PoolSize = 1000
		direct := *o
		client := redis.NewClient(&direct)
		t.Cleanup(func() { _ = client.Close() })
		l := &line{dial: o.Dialer}
		o.Dialer = l.Dial
		test(t, redistest.World{Client: client, Options: o}, l)
	})
}

func TestAfterAnHoursOutageNobodyGoesOfflineWhoPingsAgainInTime(t *testing.T) {
	for name, c := range map[string]struct{ source, emptied bool }{
		"of Redis":                             {},
		"of Redis, which comes back empty":     {emptied: true},
		"of everything":                        {source: true},
		"of everything, and Redis lost it all": {source: true, emptied: true},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, w redistest.World, l *line) {
				const stale, mitras = 2 * time.Minute, 12
				source := newFake()
				source.settings.StaleAfter = stale
				for i := range mitras {
					source.put(online(fmt.Sprint("m", i)))
				}
				source.put(online("gone"))
				var away atomic.Bool
				source.fault.set(func(string) error {
					if away.Load() {
						return errors.New("no answer")
					}
					return nil
				})
				// Each script costs the Redis of a bubble much: what is not judged happens seldom.
				r := newRig(t, w, source, func(c *Config) { c.Tick = 15 * time.Second })
				r.patience = callTimeout
				r.run()
				r.leadsWith(w.Options, r.c.Layout, guard.Timing{
					Interval: registry.DefaultHeartbeatInterval, TTL: registry.DefaultHeartbeatTTL,
				}, janitor.Config{LeaseTTL: time.Minute})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var apps sync.WaitGroup
				defer apps.Wait()
				defer cancel()
				for i := range mitras {
					apps.Go(func() {
						// Each at its own phase, and so seldom that it may just not be taken for silent.
						pause := stale - 10*time.Second
						for ok := wait.For(ctx, pause*time.Duration(i)/mitras); ok; ok = wait.For(ctx, pause) {
							_, _ = r.Heartbeat(ctx, fmt.Sprint("m", i))
						}
					})
				}
				flipped := func() (ids []string) {
					source.mu.Lock()
					defer source.mu.Unlock()
					for _, f := range source.flips {
						ids = append(ids, f.ID)
					}
					return ids
				}
				wait.For(ctx, time.Minute)
				require.Empty(t, flipped())

				l.cut(true)
				away.Store(c.source)
				if c.emptied {
					require.NoError(t, w.Client.FlushAll(ctx).Err())
				}
				wait.For(ctx, time.Hour)
				require.Empty(t, flipped(), "nobody goes offline meanwhile")
				l.cut(false)
				away.Store(false)
				wait.For(ctx, 5*stale)
				require.Equal(t, []string{"gone"}, slices.Compact(flipped()), "and behind it who is silent alone")
			})
		})
	}
}

func TestAMinuteOfPollsAtManyReplicasIsSixComputations(t *testing.T) {
	inTime(t, func(t *testing.T, w redistest.World, _ *line) {
		const replicas = 4
		polls := 60_000
		if testing.Short() { // a poll in ten: computations are as many
			polls /= 10
		}
		source := newFake(online("a"), online("b"))
		source.settings.StaleAfter = time.Hour
		var rigs []*rig
		for range replicas {
			rigs = append(rigs, newRig(t, w, source))
		}
		rigs[0].seeded()
		rigs[0].listening(time.Hour)
		begun := time.Now()
		var work sync.WaitGroup
		for _, r := range rigs {
			work.Go(func() {
				for i := range polls / replicas {
					wait.For(t.Context(), time.Until(begun.Add(time.Duration(i)*time.Minute*replicas/time.Duration(polls))))
					a, err := r.Snapshot(t.Context())
					if err != nil || !a.Value.Available {
						t.Errorf("%+v %v", a, err)
					}
				}
			})
		}
		work.Wait()
		computed := 0.0
		for _, r := range rigs {
			computed += testutil.ToFloat64(r.metrics.computed)
		}
		require.InDelta(t, 6, computed, 0)
	})
}

func TestASnapshotIsNotServedLongAfterItsTime(t *testing.T) {
	inTime(t, func(t *testing.T, w redistest.World, _ *line) {
		source := newFake(online("a"))
		source.settings.StaleAfter = time.Hour
		r := newRig(t, w, source)
		r.seeded()
		r.listening(time.Hour)
		for _, pause := range []time.Duration{0, snapshotLasts, snapshotServed, 15 * time.Second, 2*snapshotLasts - time.Millisecond} {
			time.Sleep(pause) // nobody polls
			a, err := r.Snapshot(t.Context())
			require.NoError(t, err)
			require.Less(t, a.Age, snapshotServed, pause)
			if pause > snapshotLasts {
				require.Equal(t, FromValkey, a.From, "it is waited for")
			}
			time.Sleep(time.Second) // the computation is over
		}
	})
}

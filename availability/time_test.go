package availability

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
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
func inTime(t *testing.T, test func(r *rig, l *line), change ...func(*Config)) {
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
		test(newRig(t, redistest.World{Client: client, Options: o}, newFake(online("a")), change...), l)
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
			inTime(t, func(r *rig, l *line) {
				const stale, mitras = 2 * time.Minute, 12
				source := r.source
				source.settings.StaleAfter = stale
				for i := range mitras {
					source.put(online(fmt.Sprint("m", i)))
				}
				r.patience = callTimeout
				r.run()
				r.leads(r.c.Layout, janitor.Config{LeaseTTL: time.Minute})
				ctx, cancel := context.WithCancel(r.ctx)
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
				r.Empty(flipped())

				l.cut(true)
				if c.source {
					source.fault.set(func(string) error { return errors.New("no answer") })
				}
				if c.emptied {
					r.redis("FLUSHALL")
				}
				wait.For(ctx, time.Hour)
				r.Empty(flipped(), "nobody goes offline meanwhile")
				l.cut(false)
				r.mended()
				wait.For(ctx, 5*stale)
				r.Equal([]string{"a"}, slices.Compact(flipped()), "and behind it who is silent alone")
				// Each script costs the Redis of a bubble much: what is not judged happens seldom.
			}, func(c *Config) { c.Tick = 15 * time.Second })
		})
	}
}

func TestAMinuteOfPollsAtManyReplicasIsSixComputations(t *testing.T) {
	inTime(t, func(r *rig, _ *line) {
		const replicas = 4
		polls := 60_000
		if testing.Short() { // a poll in ten: computations are as many
			polls /= 10
		}
		r.source.settings.StaleAfter = time.Hour
		rigs := []*rig{r}
		for range replicas - 1 {
			rigs = append(rigs, r.another(r.source))
		}
		r.seeded()
		r.listening(time.Hour)
		begun := time.Now()
		var work sync.WaitGroup
		for _, r := range rigs {
			work.Go(func() {
				for i := range polls / replicas {
					wait.For(r.ctx, time.Until(begun.Add(time.Duration(i)*time.Minute*replicas/time.Duration(polls))))
					a, err := r.Snapshot(r.ctx)
					if err != nil || !a.Value.Available {
						r.t.Errorf("%+v %v", a, err)
					}
				}
			})
		}
		work.Wait()
		computed := 0.0
		for _, r := range rigs {
			computed += testutil.ToFloat64(r.metrics.computed)
		}
		r.InDelta(6, computed, 0)
	})
}

func TestASnapshotIsNotServedLongAfterItsTime(t *testing.T) {
	inTime(t, func(r *rig, _ *line) {
		r.source.settings.StaleAfter = time.Hour
		r.seeded()
		r.listening(time.Hour)
		for _, pause := range []time.Duration{0, snapshotLasts, snapshotServed, 15 * time.Second, 2*snapshotLasts - time.Millisecond} {
			time.Sleep(pause) // nobody polls
			a := r.snapshots()
			r.Less(a.Age, snapshotServed, pause)
			if pause > snapshotLasts {
				r.Equal(FromValkey, a.From, "it is waited for")
			}
			time.Sleep(time.Second) // the computation is over
		}
	})
}

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// The faults here are Redis' own: it stands still, is down, forgets, is full, or evicts. The members
// are whole replicas but for sockets, all in one process, so that each fault is met by a fleet.
const (
	outageInterval = time.Second
	outageTTL      = 3 * time.Second
	outageDevices  = 200 // of each member
	patience       = 60 * time.Second
)

// member is one replica without its sockets, in this process, behind a line of its own.
type member struct {
	*registry.Registry
	janitor *janitor.Janitor
	line    *line
	leave   context.CancelFunc // lets it end gracefully, if it can
	ended   chan struct{}      // closed when all of it has
	err     error              // why; read when it has ended
}

// newMember starts a replica. Its deadlines are shorter than usual, since the durations in here are. It ends with the
// test at the latest.
func newMember(t *testing.T, server *redistest.Server, deadline time.Duration, rc registry.Config, jc janitor.Config) *member {
	m := &member{line: newLine(t, server.Addr()), ended: make(chan struct{})}
	o := &redis.Options{Addr: m.line.addr(), DialTimeout: deadline, ReadTimeout: deadline, WriteTimeout: deadline, PoolTimeout: deadline}
	o = lease.Options(o)
	data, control := redis.NewClient(o), redis.NewClient(o)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("member", rc.Instance)
	var err error
	rc.Client, rc.Control, rc.Logger = data, control, log
	m.Registry, err = registry.New(rc)
	require.NoError(t, err)
	jc.Client, jc.Control, jc.Logger, jc.Registry = data, control, log, m.Registry
	m.janitor, err = janitor.New(jc)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.leave = cancel
	go func() {
		defer close(m.ended)
		g := pool.New().WithContext(ctx).WithCancelOnError()
		g.Go(m.Run)
		g.Go(m.janitor.Run)
		m.err = errors.Join(g.Wait(), data.Close(), control.Close())
	}()
	t.Cleanup(func() {
		cancel()
		<-m.ended
	})
	return m
}

func (m *member) over() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// audited: a leader among the members has finished an audit that began after since.
func audited(members []*member, since time.Time) bool {
	for _, m := range members {
		s := m.janitor.Status()
		for _, r := range s.Sweeps {
			if s.Leading && r.Sweep == "registry" && r.Outcome == janitor.Done && r.Started.After(since) {
				return true
			}
		}
	}
	return false
}

type outageFleet struct {
	*redis.Client
	registry.Layout
	t       *testing.T
	server  *redistest.Server
	members []*member
	devices map[string]*member // who holds what
}

func newOutageFleet(t *testing.T, server *redistest.Server) *outageFleet {
	f := &outageFleet{Client: server.Client(), t: t, server: server, devices: map[string]*member{}}
	for i := range 3 {
		m := f.join(fmt.Sprintf("member-%d", i))
		for d := range outageDevices {
			imei := fmt.Sprintf("%d%014d", i+1, d)
			require.NoError(t, m.Register(t.Context(), imei).Wait(t.Context()))
			f.devices[imei] = m
		}
	}
	f.audited()
	return f
}

func (f *outageFleet) join(id string) *member {
	m := newMember(f.t, f.server, 400*time.Millisecond,
		registry.Config{Instance: id, HeartbeatInterval: outageInterval, HeartbeatTTL: outageTTL, Drain: time.Second},
		janitor.Config{Interval: time.Second, LeaseTTL: 4 * time.Second, RedisShare: 1})
	f.t.Cleanup(func() {
		m.leave()
		<-m.ended
		require.NoError(f.t, m.err)
	})
	f.members = append(f.members, m)
	return m
}

// eventually waits for what must become true, as long as a slow machine may need.
func (f *outageFleet) eventually(cond func() bool, what string) time.Duration {
	f.t.Helper()
	begun := time.Now()
	require.Eventually(f.t, cond, patience, 50*time.Millisecond, what)
	return time.Since(begun).Round(10 * time.Millisecond)
}

// audited waits until the witness has listened long enough for an audit, and a leader has finished it.
func (f *outageFleet) audited() {
	f.t.Helper()
	since := time.Now()
	f.eventually(func() bool { return audited(f.members, since) }, "an audit is done")
}

// routable: every device is found at its member, and that member lives.
func (f *outageFleet) routable() bool {
	for imei, m := range f.devices {
		o, err := m.Lookup(f.t.Context(), imei)
		if err != nil || o.Instance != m.Instance() || !o.Live {
			return false
		}
	}
	return true
}

// nothingEvicted: no audit record counts anything.
func (f *outageFleet) nothingEvicted() {
	f.t.Helper()
	for _, r := range f.XRange(f.t.Context(), f.Audit(), "-", "+").Val() {
		require.Contains(f.t, []any{nil, "0"}, r.Values["count"], r)
	}
}

// sweepsARealDeath: after the fault a member that dies without goodbye is swept, and nobody else.
func (f *outageFleet) sweepsARealDeath() {
	f.t.Helper()
	dead := f.members[0]
	f.members = f.members[1:]
	for imei, m := range f.devices {
		if m == dead {
			delete(f.devices, imei)
		}
	}
	dead.line.hold()
	dead.leave()
	took := f.eventually(func() bool {
		return int(f.HLen(f.t.Context(), f.Registry()).Val()) == len(f.devices)
	}, "the dead member's entries go")
	<-dead.ended
	require.True(f.t, f.routable())
	f.t.Logf("a real death afterwards: swept %v later; the TTL is %v", took, outageTTL)
}

// lasts lets a fault last longer than the TTL.
func lasts() { <-time.After(outageTTL + outageInterval) }

func TestNothingLiveIsSweptWhateverRedisDoes(t *testing.T) {
	cases := []struct {
		name  string
		args  []string
		fault func(f *outageFleet)
	}{
		{"it stands still for longer than the TTL", nil, func(f *outageFleet) {
			f.server.Stop()
			lasts()
			f.server.Cont()
		}},
		{"it is down for longer than the TTL, with an append-only file", []string{"--appendonly", "yes", "--appendfsync", "always"}, func(f *outageFleet) {
			f.server.Kill()
			lasts()
			f.server.Restart()
		}},
		{"it is down and comes back empty", nil, func(f *outageFleet) {
			f.server.Kill()
			lasts()
			f.server.Restart()
		}},
		{"it is flushed", nil, func(f *outageFleet) {
			require.NoError(f.t, f.FlushAll(f.t.Context()).Err())
		}},
		{"its memory is full and nothing is evicted", []string{"--maxmemory-policy", "noeviction"}, func(f *outageFleet) {
			require.NoError(f.t, f.ConfigSet(f.t.Context(), "maxmemory", "1").Err())
			require.ErrorContains(f.t, f.Set(f.t.Context(), "x", "y", 0).Err(), "OOM")
			lasts()
			for _, m := range f.members {
				require.Positive(f.t, f.PTTL(f.t.Context(), f.Heartbeat(m.Instance())).Val(), "PEXPIRE keeps the heartbeat")
			}
			require.NoError(f.t, f.ConfigSet(f.t.Context(), "maxmemory", "0").Err())
		}},
		{"a shared cache evicts the heartbeats", []string{"--maxmemory-policy", "volatile-ttl"}, func(f *outageFleet) {
			// At this limit every write evicts what expires soonest: heartbeats, and the lease.
			require.NoError(f.t, f.ConfigSet(f.t.Context(), "maxmemory", "1").Err())
			f.eventually(func() bool {
				for _, m := range f.members {
					if f.Exists(f.t.Context(), f.Heartbeat(m.Instance())).Val() == 1 {
						return false
					}
				}
				return true
			}, "the heartbeats are evicted")
			lasts()
			require.NoError(f.t, f.ConfigSet(f.t.Context(), "maxmemory", "0").Err())
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newOutageFleet(t, redistest.Start(t, c.args...))
			require.True(t, f.routable())
			c.fault(f)
			took := f.eventually(f.routable, "all devices are routable again")
			t.Logf("routable %v after the fault's end; the heartbeat interval is %v", took, outageInterval)
			f.nothingEvicted()
			f.audited()
			f.nothingEvicted()
			f.sweepsARealDeath()
		})
	}
}

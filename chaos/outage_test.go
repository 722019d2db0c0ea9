package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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

// member is one replica of an outageFleet.
type member struct {
	*registry.Registry
	janitor *janitor.Janitor
	cut     atomic.Bool // nothing it sends arrives any more
	leave   context.CancelFunc
	ended   chan error
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
	t := f.t
	m := &member{ended: make(chan error, 1)}
	o := f.server.Options()
	deadline := 400 * time.Millisecond // the durations here ask for shorter ones than usual
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = deadline, deadline, deadline, deadline
	o = lease.Options(o)
	var dialer net.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cuttable{Conn: conn, cut: &m.cut}, nil
	}
	data, control := redis.NewClient(o), redis.NewClient(o)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("member", id)
	var err error
	m.Registry, err = registry.New(registry.Config{
		Client: data, Control: control, Instance: id, Logger: log,
		HeartbeatInterval: outageInterval, HeartbeatTTL: outageTTL, Drain: time.Second,
	})
	require.NoError(t, err)
	m.janitor, err = janitor.New(janitor.Config{
		Client: data, Control: control, Registry: m.Registry, Logger: log,
		Interval: time.Second, LeaseTTL: 4 * time.Second, RedisShare: 1,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.leave = cancel
	swept := make(chan error, 1)
	go func() { swept <- m.janitor.Run(ctx) }()
	go func() {
		err := errors.Join(m.Run(ctx), <-swept)
		m.ended <- errors.Join(err, data.Close(), control.Close())
		close(m.ended)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-m.ended)
	})
	f.members = append(f.members, m)
	return m
}

// cuttable is a connection of a replica that can die without goodbye.
type cuttable struct {
	net.Conn
	cut *atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cuttable) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return 0, errCut
	}
	return c.Conn.Write(b)
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
	f.eventually(func() bool {
		for _, m := range f.members {
			s := m.janitor.Status()
			for _, r := range s.Sweeps {
				if s.Leading && r.Sweep == "registry" && r.Outcome == janitor.Done && r.Started.After(since) {
					return true
				}
			}
		}
		return false
	}, "an audit is done")
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
	dead.cut.Store(true)
	dead.leave()
	took := f.eventually(func() bool {
		return int(f.HLen(f.t.Context(), f.Registry()).Val()) == len(f.devices)
	}, "the dead member's entries go")
	require.NoError(f.t, <-dead.ended)
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

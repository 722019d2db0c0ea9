package harness

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// Between those of whole processes and the storm's.
const (
	memberInterval = time.Second
	memberTTL      = 3 * time.Second
)

// Member is a replica without sockets.
type Member struct {
	*registry.Registry
	Janitor *janitor.Janitor
	Proxy   *Proxy
	Leave   context.CancelFunc // gracefully if possible
	Ended   chan struct{}      // all of it has ended
	Err     error              // after Ended
}

// Clients do not retry: each answer belongs to one question. within is every deadline; 0: the
// usual.
func Clients(addr string, within time.Duration) (data, control *redis.Client) {
	o := &redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: within, ReadTimeout: within, WriteTimeout: within, PoolTimeout: within,
	}
	return redis.NewClient(o), redis.NewClient(lease.Options(o))
}

// NewMember has shorter deadlines than usual. It ends with the test.
func NewMember(
	t *testing.T, server *redistest.Server, deadline time.Duration, rc registry.Config, jc janitor.Config,
) *Member {
	m := &Member{Proxy: NewProxy(t, server.Addr()), Ended: make(chan struct{})}
	data, control := Clients(m.Proxy.Addr(), deadline)
	options := &slog.HandlerOptions{Level: slog.LevelWarn}
	log := slog.New(slog.NewTextHandler(t.Output(), options)).With("member", rc.Instance)
	var err error
	rc.Client, rc.Control, rc.Logger = data, control, log
	m.Registry, err = registry.New(rc)
	require.NoError(t, err)
	jc.Client, jc.Control, jc.Logger, jc.Registry = data, control, log, m.Registry
	m.Janitor, err = janitor.New(jc)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.Leave = cancel
	go func() {
		defer close(m.Ended)
		g := pool.New().WithContext(ctx).WithCancelOnError()
		g.Go(m.Run)
		g.Go(m.Janitor.Run)
		m.Err = errors.Join(g.Wait(), data.Close(), control.Close())
	}()
	t.Cleanup(func() {
		cancel()
		<-m.Ended
	})
	return m
}

// Over reports whether it has ended.
func (m *Member) Over() bool {
	select {
	case <-m.Ended:
		return true
	default:
		return false
	}
}

// FullScanned looks for a leader's full scan that began after since and is done.
func FullScanned(members []*Member, since time.Time) bool {
	for _, m := range members {
		s := m.Janitor.Status()
		for _, r := range s.Sweeps {
			if s.Leading && r.Sweep == "registry" && r.Outcome == janitor.Done && r.Started.After(since) {
				return true
			}
		}
	}
	return false
}

// Nobody is a socket that nobody minds.
var Nobody = registry.Socket{Close: func() error { return nil }}

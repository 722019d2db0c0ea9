package chaos

import (
	"context"
	"errors"
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

// Durations of members: shorter than those of whole processes, longer than the storm's.
const (
	memberInterval = time.Second
	memberTTL      = 3 * time.Second
)

// member is one replica without its sockets, in this process, behind a line of its own.
type member struct {
	*registry.Registry
	janitor *janitor.Janitor
	proxy   *redisProxy
	leave   context.CancelFunc // lets it end gracefully, if it can
	ended   chan struct{}      // closed when all of it has
	err     error              // why; read when it has ended
}

// newMember starts a replica. Its deadlines are shorter than usual, since the durations in here are. It ends with the
// test at the latest.
func newMember(t *testing.T, server *redistest.Server, deadline time.Duration, rc registry.Config, jc janitor.Config) *member {
	m := &member{proxy: newProxy(t, server.Addr()), ended: make(chan struct{})}
	o := &redis.Options{Addr: m.proxy.Addr(), DialTimeout: deadline, ReadTimeout: deadline, WriteTimeout: deadline, PoolTimeout: deadline}
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

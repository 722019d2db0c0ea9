package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/embedded"
	"github.com/rollcall-redis/rollcall/internal/settings"
	"github.com/rollcall-redis/rollcall/lease"
)

// clients are this replica's ways to Redis: one for the load, a small one
// for lease, ticks and heartbeats, which no load can starve, and one for reads
// that wait, which hold up nobody but themselves.
type clients struct {
	data, control *redis.Client
	blocking      *redis.Client
	server        string           // its name, without credentials
	embedded      *embedded.Server // nil on a Redis of its own
}

// blockingPool is enough for one reader, and for a connection that is given up.
const blockingPool = 2

// connect makes the clients, and starts the embedded server if no other was
// named. It does not speak to Redis. The caller closes what it returns.
func connect(s *settings.Settings) (*clients, error) {
	target := s.Redis
	c := &clients{server: target.String()}
	if target.Embedded() {
		var err error
		if c.embedded, err = embedded.Start(); err != nil {
			return nil, err
		}
		c.server = "embedded at " + c.embedded.Addr()
		if target, err = settings.ParseRedis("redis://" + c.embedded.Addr()); err != nil {
			c.embedded.Close()
			return nil, fmt.Errorf("ingest: %w", err)
		}
	}
	within := controlDeadline(s)
	if target.Sentinel != nil {
		c.data = redis.NewFailoverClient(target.Sentinel)
		ctl := *target.Sentinel
		shorten(within, &ctl.DialTimeout, &ctl.ReadTimeout, &ctl.WriteTimeout, &ctl.PoolTimeout)
		c.control = redis.NewFailoverClient(lease.FailoverOptions(&ctl))
		few := *target.Sentinel
		few.PoolSize, few.MinIdleConns = blockingPool, 0
		c.blocking = redis.NewFailoverClient(&few)
		return c, nil
	}
	c.data = redis.NewClient(target.Single)
	few := *target.Single
	few.PoolSize, few.MinIdleConns = blockingPool, 0
	c.blocking = redis.NewClient(&few)
	ctl := *target.Single
	shorten(within, &ctl.DialTimeout, &ctl.ReadTimeout, &ctl.WriteTimeout, &ctl.PoolTimeout)
	c.control = redis.NewClient(lease.Options(&ctl))
	return c, nil
}

// close ends every connection, and the embedded server with its data.
func (c *clients) close() error {
	var errs []error
	for _, client := range []*redis.Client{c.data, c.blocking, c.control} {
		// It may have been closed before, to end calls that hung or wait.
		if err := client.Close(); !errors.Is(err, redis.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if c.embedded != nil {
		c.embedded.Close()
	}
	return errors.Join(errs...)
}

// controlDeadline bounds each of the control client's steps, so that a call that
// hangs leaves time for another within the shortest period that depends on it:
// a heartbeat's interval, a third of the lease, half of the witness' GAP.
func controlDeadline(s *settings.Settings) time.Duration {
	gap := (s.HeartbeatTTL - s.HeartbeatInterval) / 2
	return min(s.HeartbeatInterval, s.JanitorLeaseTTL/3, gap/2) * 9 / 10
}

// shorten makes deadlines at most d; lease.Options leaves those alone that are shorter than its own.
func shorten(d time.Duration, deadlines ...*time.Duration) {
	for _, deadline := range deadlines {
		*deadline = min(*deadline, d)
	}
}

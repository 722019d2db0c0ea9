package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// mortal is a replica in a bubble. While dead is true, nothing of it reaches the server.
type mortal struct {
	id      string
	dead    atomic.Bool
	sent    atomic.Int64
	reg     *Registry
	janitor *Janitor // nil: no janitor
}

var errDead = errors.New("dead")

func (m *mortal) meets(_ context.Context, cmds []redis.Cmder, send func() error) error {
	m.sent.Add(1)
	if m.dead.Load() {
		return redistest.Fail(cmds, errDead)
	}
	return send()
}

// crew is a fleet in a bubble, with the default intervals.
type crew struct {
	*testing.T
	admin      *redis.Client
	partitions int
	fixed      bool // ids may have had former lives
	all        []*mortal
}

func inBubble(t *testing.T, partitions int, f func(c *crew)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := redistest.Fake(t)
		c := &crew{T: t, admin: redis.NewClient(o), partitions: partitions}
		defer func() { require.NoError(t, c.admin.Close()) }()
		f(c)
	})
}

// start starts n replicas of a kind. The end of the test stops them.
func (c *crew) start(kind string, n int, sweeps bool) {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	quiet := slog.New(slog.DiscardHandler)
	for i := range n {
		m := &mortal{id: fmt.Sprintf("%s-%d", kind, i)}
		o := lease.Options(c.admin.Options())
		o.PoolSize = 100 // waiting for a connection would use a timer that go-redis shares with clients outside
		client := redis.NewClient(o)
		client.AddHook(redistest.Intercept(m.meets))
		var err error
		m.reg, err = NewRegistry(registry.Config{
			Client: client, Control: client, Instance: m.id, Unique: !c.fixed,
			Layout: guard.Layout{Prefix: "{kills}:"}, Drain: time.Millisecond, Logger: quiet,
		}, c.partitions)
		require.NoError(c, err)
		work.Go(func() { _ = m.reg.Run(ctx) })
		if sweeps {
			m.janitor, err = NewJanitor(janitor.Config{Client: client, Control: client, Logger: quiet}, m.reg)
			require.NoError(c, err)
			work.Go(func() { _ = m.janitor.Run(ctx) })
		}
		c.Cleanup(func() { require.NoError(c, client.Close()) })
		c.all = append(c.all, m)
	}
	c.Cleanup(func() { cancel(); work.Wait() })
}

// register has replicas hold all devices between them, for a minute.
func (c *crew) register(all ...*mortal) {
	nobody := registry.Socket{Close: func() error { return nil }}
	for i := range devices {
		claim := all[i%len(all)].reg.Register(fmt.Sprintf("35%013d", i), nobody)
		require.NoError(c, claim.Wait(c.Context()))
	}
	time.Sleep(time.Minute)
}

// kill ends replicas at one instant, without a goodbye.
func (c *crew) kill(which ...*mortal) {
	for _, m := range which {
		m.dead.Store(true)
	}
}

func (c *crew) layout(k int) guard.Layout {
	return guard.Layout{Prefix: "{kills}:"}.Partition(k, c.partitions)
}

// led returns how many living replicas lead partitions.
func (c *crew) led() (n int) {
	for _, m := range c.all {
		if m.janitor != nil && !m.dead.Load() {
			n += len(m.janitor.Leads())
		}
	}
	return n
}

// until waits for cond, which must come within this time.
func (c *crew) until(what string, within time.Duration, cond func() bool) (took time.Duration) {
	c.Helper()
	began := time.Now()
	for !cond() {
		require.LessOrEqual(c, time.Since(began), within, what)
		time.Sleep(250 * time.Millisecond)
	}
	return time.Since(began)
}

func (c *crew) holds(since time.Time) (reasons []string) {
	for k := range c.partitions {
		w, err := guard.ReadWitness(c.Context(), c.admin, c.layout(k))
		require.NoError(c, err)
		if w.LastHold.After(since) {
			reasons = append(reasons, w.Reason)
		}
	}
	return slices.Compact(reasons)
}

func (c *crew) entries() (n int) {
	for k := range c.partitions {
		n += int(c.admin.HLen(c.Context(), c.layout(k).Registry()).Val())
	}
	return n
}

// ranked returns the contenders in the order of a partition's ranks.
func (c *crew) ranked(k int) []*mortal {
	var all []*mortal
	for _, m := range c.all {
		if m.janitor != nil {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *mortal) int {
		if before(a.id, b.id, k) {
			return -1
		}
		return 1
	})
	return all
}

const (
	ttl      = janitor.DefaultLeaseTTL
	retry    = ttl/5*6/5 + time.Second // plus the time to look
	beatTTL  = registry.DefaultHeartbeatTTL
	grace    = beatTTL + 2*time.Second
	moment   = 5 * time.Second // to find and sweep the dead
	devices  = 64
	warmedUp = 2 * time.Minute
)

func TestWhoeverDiesAtOnceSomebodyLeadsAndTheDeadGo(t *testing.T) {
	for _, c := range []struct {
		partitions, replicas, killed int
		within                       time.Duration // until everything is led again
		long                         bool          // not in a short run
	}{
		{1, 10, 3, ttl + retry, false},
		{1, 10, 9, ttl + retry, false},
		{8, 10, 3, 2 * ttl, true},
		{8, 7, 6, 2 * ttl, false},
		{8, 40, 33, 2 * ttl, true},
	} {
		if c.long && testing.Short() {
			continue
		}
		t.Run(fmt.Sprintf("%d of %d, %d partitions", c.killed, c.replicas, c.partitions), func(t *testing.T) {
			inBubble(t, c.partitions, func(f *crew) {
				f.start("gw", c.replicas, true)
				time.Sleep(warmedUp)
				require.Equal(f, c.partitions, f.led())
				doomed := f.ranked(0)[:c.killed]
				f.register(doomed...)
				require.Equal(f, devices, f.entries())
				died := time.Now()
				f.kill(doomed...)
				took := f.until("all is led", c.within, func() bool { return f.led() == c.partitions })
				f.Logf("led after %s", took.Round(10*time.Millisecond))
				for range 60 {
					time.Sleep(time.Second)
					if c.replicas-c.killed == 1 {
						require.Equal(f, c.partitions, f.led(), "a lease was given up to the dead")
					}
				}
				gone := beatTTL + grace + moment // all that held anything are dead
				f.until("the entries of the dead", gone-time.Since(died), func() bool { return f.entries() == 0 })
				f.Logf("dead entries gone after %s, holds %v", time.Since(died).Round(time.Second), f.holds(died))
				require.Empty(f, f.holds(died))
			})
		})
	}
}

// Leaders die one after the other, each after the ranks were read again.
func TestWhenOneDiesTheNextLeadsWithinTheLeaseAndOneRetry(t *testing.T) {
	inBubble(t, 4, func(f *crew) {
		f.start("gw", 8, true)
		time.Sleep(warmedUp)
		for range 3 {
			var leader *mortal
			for _, m := range f.all {
				if !m.dead.Load() && len(m.janitor.Leads()) > 0 {
					leader = m
				}
			}
			f.kill(leader)
			f.until("all is led", ttl+retry, func() bool { return f.led() == 4 })
			time.Sleep(warmedUp)
		}
	})
}

// Former lives of those that embed the registry alone contended, and died without a goodbye.
func TestReplicasThatEmbedTheRegistryAloneTakeNoSeat(t *testing.T) {
	const partitions, alone = 4, 20
	inBubble(t, partitions, func(f *crew) {
		f.fixed = true
		for k := range partitions {
			for i := range alone {
				id := fmt.Sprint("alone-", i)
				require.NoError(f, f.admin.SAdd(f.Context(), f.layout(k).Contenders(), id).Err())
			}
		}
		f.start("alone", alone, false)
		time.Sleep(time.Minute)
		f.start("sweeps", 3, true)
		f.until("all is led", ttl, func() bool { return f.led() == partitions })
		time.Sleep(2 * warmedUp) // leases are given up after a heartbeat's TTL
		for range 600 {
			require.Equal(f, partitions, f.led())
			time.Sleep(100 * time.Millisecond)
		}
		for _, m := range f.ranked(0) {
			s := m.janitor.seats
			s.mu.Lock()
			require.Equal(f, 3, s.peers)
			s.mu.Unlock()
			require.LessOrEqual(f, len(m.janitor.Leads()), fair(partitions, 3)+1)
		}
		dies := f.all[0]
		f.register(dies)
		died := time.Now()
		f.kill(dies, f.ranked(0)[0]) // one of each
		f.until("all is led", ttl+retry, func() bool { return f.led() == partitions })
		f.until("the entries of the dead", beatTTL+moment-time.Since(died), func() bool { return f.entries() == 0 })
		require.Empty(f, f.holds(died))
	})
}

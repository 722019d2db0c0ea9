package search

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/replies"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// pair is two replicas that sweep, with short times, on a real server.
type pair struct {
	t *testing.T
	*redis.Client
	guard.Layout
	janitors []*partition.Janitor
	metrics  *prometheus.Registry
	ghosts   int
}

const deadline = 350 * time.Millisecond

// mostReply is what a client reads of one reply, as a program has it, scaled down with the values.
const mostReply = 256 << 10

func newPair(t *testing.T, o *redis.Options, prefix string) *pair {
	own := lease.Options(o)
	own.ReadTimeout = time.Minute // large values take long where others have the processors
	f := &pair{
		t: t, Client: redis.NewClient(own), Layout: guard.Layout{Prefix: prefix},
		metrics: prometheus.NewRegistry(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	log := slog.New(slog.DiscardHandler)
	var clients []io.Closer
	quick := *o // a control client's deadlines are below the interval
	quick.MaxRetries, quick.ContextTimeoutEnabled, quick.DialerRetries = -1, true, 1
	quick.DialTimeout, quick.ReadTimeout, quick.WriteTimeout, quick.PoolTimeout = deadline, deadline, deadline, deadline
	for _, id := range []string{"one", "two"} {
		quick.Dialer = replies.Bounding((&net.Dialer{}).DialContext, mostReply)
		data, control := redis.NewClient(&quick), redis.NewClient(lease.Options(&quick))
		clients = append(clients, data, control)
		reg, err := partition.NewRegistry(registry.Config{
			Client: data, Control: control, Instance: id, Layout: f.Layout, HeartbeatInterval: 400 * time.Millisecond,
			HeartbeatTTL: 2 * time.Second, Logger: log,
			Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"replica": id}, f.metrics),
		}, 1)
		require.NoError(t, err)
		jan, err := partition.NewJanitor(janitor.Config{
			Client: data, Control: control, Interval: 300 * time.Millisecond, LeaseTTL: 1500 * time.Millisecond, Logger: log,
		}, reg)
		require.NoError(t, err)
		work.Go(func() { _ = reg.Run(ctx) })
		work.Go(func() { _ = jan.Run(ctx) })
		for n := range 3 {
			reg.Register(fmt.Sprint(id, n), registry.Socket{Close: func() error { return nil }})
		}
		f.janitors = append(f.janitors, jan)
	}
	t.Cleanup(func() {
		cancel()
		work.Wait()
		for _, c := range append(clients, io.Closer(f.Client)) {
			require.NoError(t, c.Close())
		}
	})
	return f
}

// whole reports whether every living entry is there.
func (f *pair) whole() bool {
	for _, id := range []string{"one", "two"} {
		for n := range 3 {
			if f.HGet(f.t.Context(), f.Registry(), fmt.Sprint(id, n)).Val() != id {
				return false
			}
		}
	}
	return true
}

// sweeps puts an entry of a dead owner there, and waits until it is swept.
func (f *pair) sweeps(after ...any) {
	f.ghosts++
	ctx, ghost, there := f.t.Context(), fmt.Sprint("ghost", f.ghosts), false
	waittest.Until(f.t, 10*time.Millisecond, func() bool {
		if !there {
			there = f.HSet(ctx, f.Registry(), ghost, ghost).Err() == nil
			_ = f.SAdd(ctx, f.Roster(), ghost).Err() // a roster of another type is done without
			return false
		}
		is, err := f.HExists(ctx, f.Registry(), ghost).Result()
		return err == nil && !is
	}, after...)
}

func (f *pair) resign() {
	for _, j := range f.janitors {
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
		_ = j.Resign(ctx) // the other leads
		cancel()
	}
}

// livingEvicted is how many entries of the living went.
func (f *pair) livingEvicted() (n float64) {
	families, err := f.metrics.Gather()
	require.NoError(f.t, err)
	for _, family := range families {
		if family.GetName() != "teltonika_registry_janitor_evicted_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "instance_id" && (l.GetValue() == "one" || l.GetValue() == "two") {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// poisons is how many values the test writes into the keys of a real server in all; 0: a few.
var poisons = flag.Int("poisons", 0, "values that are written into keys of a real server")

// Whatever somebody writes into a key, a fleet that is never restarted sweeps again, after one DEL
// at most, and nothing of the living goes.
func TestAnyValueInAnyKeyOfARealServerIsSurvived(t *testing.T) {
	t.Parallel()
	values := *poisons / (len(keys) * len(kinds))
	if values == 0 {
		values = 1
		if redistest.Asked() {
			values = 3
		}
	}
	for i, name := range slices.Sorted(maps.Keys(keys)) {
		t.Run(name, func(t *testing.T) {
			redistest.OnReal(t, func(t *testing.T, w redistest.World) {
				f := newPair(t, w.Options, "{"+w.Prefix+"}:")
				f.sweeps()
				rng := rand.New(rand.NewPCG(uint64(i), 5))
				for _, kind := range kinds {
					for range values {
						p := newPoison(rng, name, kind, f.Layout, []string{"one", "ghost"}[rng.IntN(2)], time.Now())
						if rng.IntN(10) == 0 {
							p.words[len(p.words)-1] = strings.Repeat("9", 3*mostReply)
						}
						require.NoError(t, p.write(t.Context(), f))
						if name == "log" || name == "epoch" {
							f.resign()
						}
						if p.step() || p.life > 0 {
							require.NoError(t, f.Del(t.Context(), p.key).Err())
						}
						f.sweeps(p)
						waittest.Until(t, 10*time.Millisecond, f.whole, p)
						require.Zero(t, f.livingEvicted(), p)
					}
				}
			})
		})
	}
}

// The largest id that a stream can have, in the middle of a term and before one.
func TestALogThatTakesNoMoreRecordsIsSetAside(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		f := newPair(t, w.Options, "{"+w.Prefix+"}:")
		ctx := t.Context()
		f.sweeps()
		const last = "18446744073709551615-18446744073709551615"
		for _, resigns := range []bool{false, true} {
			require.NoError(t, f.XAdd(ctx, &redis.XAddArgs{Stream: f.Log(), ID: last, Values: []string{"a", "b"}}).Err())
			if resigns {
				f.resign()
			}
			f.sweeps()
			aside := f.Keys(ctx, f.Log()+":aside:*").Val()
			slices.Sort(aside)
			newest := f.XRevRangeN(ctx, aside[len(aside)-1], "+", "-", 1).Val()
			require.Equal(t, last, newest[0].ID, "it is kept, for people")
			opened := f.XRangeN(ctx, f.Log(), "-", "+", 1).Val()
			require.Equal(t, "its newest id is "+last, opened[0].Values["aside"])
			require.Greater(t, f.XLen(ctx, f.Log()).Val(), int64(1))
		}
	})
}

package chaos

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// memoryRows: memory is short. A cache that others fill evicts what can expire: heartbeats, and the
// lease. A server that evicts nothing refuses to write.
var memoryRows = []row{
	{24, "CacheEvictsLRU", false, 60, nil, evictedBy("volatile-lru")},
	{24, "CacheEvictsAtRandom", false, 60, nil, evictedBy("volatile-random")},
	{24, "CacheEvictsByTTL", false, 60, nil, evictedBy("volatile-ttl")},
	{24, "MemoryFull", false, 60, nil, under(func() fault { return &memoryFull{} }, nothingWent)},
}

func evictedBy(policy string) func(w *environment) {
	return under(func() fault { return &sharedCache{policy: policy} }, func(w *environment, v *judge.Verdict) {
		nothingWent(w, v)
		for _, r := range w.All {
			require.Contains(w.T, r.Log(), "maxmemory-policy is "+policy, "warned at start")
		}
	})
}

// sharedCache has somebody fill the server with keys that expire, and as many heartbeats evicted as
// there are replicas, over more than a TTL. Few and large, so that it is not always the other's
// keys that go.
type sharedCache struct {
	calm
	policy string
}

const (
	cacheValue = 10 << 10
	cacheRoom  = 100 << 10
)

func (f *sharedCache) setup(w *environment) {
	w.Serve(append(history.AppendOnly(), "--maxmemory-policy", f.policy, "--maxmemory", "1gb", "--notify-keyspace-events", "Ee")...)
}

func (f *sharedCache) fail(w *environment) {
	ctx := w.T.Context()
	sub := w.Subscribe(ctx, "__keyevent@0__:evicted")
	_, err := sub.Receive(ctx)
	require.NoError(w.T, err)
	var others atomic.Int64
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for message := range sub.Channel() {
			if strings.HasPrefix(message.Payload, w.Heartbeat("")) {
				f.hit(1)
			} else {
				others.Add(1)
			}
		}
	}()
	w.config("maxmemory", w.used(cacheRoom))
	value, begun := strings.Repeat("v", cacheValue), time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for time.Since(begun) < harness.TTL+harness.Interval/2 || f.hits() < len(w.Replicas()) && time.Since(begun) < harness.Patience {
		_ = w.Set(ctx, "cache:"+time.Now().String(), value, time.Hour).Err() // refused when nothing can be evicted any more
		<-tick.C
	}
	w.doubted("redis_evicting")
	w.config("maxmemory", "0")
	require.NoError(w.T, sub.Close())
	<-heard
	w.T.Logf("%d heartbeats and %d other keys were evicted", f.hits(), others.Load())
	w.heals(time.Now())
}

// used is how much memory the server uses, and some room.
func (w *environment) used(room int) string {
	n, err := strconv.Atoi(harness.InfoOf(w.T, w.Client, "memory", "used_memory"))
	require.NoError(w.T, err)
	return strconv.Itoa(n + room)
}

// memoryFull: every write that needs memory is refused for longer than the TTL. Heartbeats are
// extended, which needs none.
type memoryFull struct{ calm }

func (*memoryFull) setup(w *environment) {
	w.Serve(append(history.AppendOnly(), "--maxmemory-policy", "noeviction")...)
}

func (f *memoryFull) fail(w *environment) {
	asked, begun := w.asked(), time.Now()
	w.config("maxmemory", "1")
	outlast()
	require.True(w.T, w.beating(), "PEXPIRE keeps heartbeats")
	w.config("maxmemory", "0")
	f.hit(asked.errors("OOM"))
	asked.noStorm(w, time.Since(begun))
	w.heals(time.Now())
}

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// commandsWaitForDevices: commands wait for devices that come and go, while replicas are killed,
// stopped and restarted, replies are lost, and once everything is. A device executes each at most
// once, and each has one outcome, unless Redis lost it (C9).
func commandsWaitForDevices(w *environment) {
	met := w.opens()
	w.Listened()
	w.Executed()
	var whole sync.RWMutex // an entry that is added twice is so on one side of the loss
	o := w.orders(2*time.Second, func(ctx context.Context, backend int, given *atomic.Int64) {
		w.queues(ctx, backend, given, &whole)
	})
	defer o.stop()
	more := func() { o.more(80) }

	more()
	whole.Lock()
	w.Meddle("everything is lost", func(p redis.Pipeliner) { p.FlushAll(w.Context()) })
	whole.Unlock()
	met.hit(1)
	for range 5 {
		more()
		back := w.Follower() // back at once: its devices may be elsewhere by then
		w.Kill(back)
		more()
		w.Start(back.ID)
		met.hit(1)
	}
	for _, r := range w.Replicas() {
		r.Proxy.LoseReply(settles, 5)
		r.Proxy.LoseReplySilently(claims, 2)
	}
	more()
	cont := w.Stop(w.Follower())
	harness.Lasting(harness.Interval)
	cont()
	met.hit(1)
	more()
	leads := w.Leader()
	w.Kill(leads)
	more()
	w.Start(leads.ID)
	ends := w.Follower()
	require.Zero(w, w.Terminate(ends), ends.Log())
	w.Start(ends.ID)
	met.hit(2)
	more()

	o.settle("answered", "timeout", "expired", "instance_lost")
}

func queue(l registry.Layout) string { return l.Prefix + "commands:queue" }

// settles and claims tell the scripts of those names, by their keys.
func settles(r proxy.Request) bool {
	keys, _ := r.Script()
	return len(keys) == 3 && keys[1] == queue(harness.KeyNames) && keys[2] == responses(harness.KeyNames)
}

func claims(r proxy.Request) bool {
	keys, _ := r.Script()
	return len(keys) == 3 && keys[1] == queue(harness.KeyNames) && keys[2] == harness.KeyNames.Registry()
}

// queues gives commands to the queue, and now and then to an instance that may not have the device.
func (w *environment) queues(ctx context.Context, backend int, given *atomic.Int64, whole *sync.RWMutex) {
	rnd := rand.New(rand.NewPCG(w.Seed, uint64(2000+backend)))
	for n := 0; wait.For(ctx, time.Duration(rnd.IntN(200))*time.Millisecond); n++ {
		id := fmt.Sprintf("order-%d-%d", backend, n)
		add := &redis.XAddArgs{Stream: queue(w.Layout), Values: []any{
			"id", id, "imei", w.Fleet.IMEI(rnd.IntN(w.Fleet.Len())), "text", id, "codec", 12 + rnd.IntN(2)*2, "queue", "true",
			"expires", time.Now().Add(time.Duration(rnd.IntN(8000)) * time.Millisecond).UnixMilli(),
		}}
		if live := w.Replicas(); rnd.IntN(4) == 0 {
			add.Stream = outbound(w.Layout, live[rnd.IntN(len(live))].ID)
		}
		whole.RLock()
		err := w.XAdd(ctx, add).Err()
		if err == nil && rnd.IntN(10) == 0 { // its reply was lost, as far as the backend knows
			_ = w.XAdd(ctx, add).Err()
		}
		whole.RUnlock()
		if err == nil {
			given.Add(1)
		}
	}
}

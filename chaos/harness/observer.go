package harness

import (
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// watched is how many devices an observer asks for: few, often, so that porcupine has a dense
// history of each.
const watched = 12

// observe asks as a backend would who holds some devices, over and over, until the returned
// function is called. What it is told is checked against the history (C8).
func (w *Environment) observe() (end func()) {
	w.T.Helper()
	// Retries of the client are off: an answer belongs to one question.
	opt := &redis.Options{Addr: w.Proxy().Addr(), MaxRetries: -1, ContextTimeoutEnabled: true}
	opt.ReadTimeout, opt.DialTimeout = time.Second, time.Second
	data, control := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	r, err := registry.New(registry.Config{Client: data, Control: control, Instance: "observer", HeartbeatInterval: Interval * 10, HeartbeatTTL: TTL * 10})
	require.NoError(w.T, err)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			imei := w.Fleet.IMEI(i % min(watched, w.Fleet.Len()))
			asked := time.Now()
			owner, err := r.Lookup(w.T.Context(), imei)
			if err != nil && !errors.Is(err, registry.ErrNotRegistered) {
				continue
			}
			w.tells(func(f *judge.Facts) {
				f.Lookups = append(f.Lookups, judge.Lookup{IMEI: imei, Instance: owner.Instance, Call: asked, Return: time.Now()})
			})
		}
	})
	return sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
		_ = errors.Join(data.Close(), control.Close())
	})
}

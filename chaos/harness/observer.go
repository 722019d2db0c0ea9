package harness

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// watched is how many devices an observer asks for: few, often, so that porcupine has a dense
// history of each.
const watched = 12

// observe asks as a backend would who holds some devices, over and over, until the returned
// function is called. What it is told is checked against the history (C8).
func (w *Environment) observe() (end func()) {
	w.T.Helper()
	data, control := Clients(w.Proxy().Addr(), time.Second)
	r, err := registry.New(registry.Config{Client: data, Control: control, Instance: "observer", HeartbeatInterval: Interval * 10, HeartbeatTTL: TTL * 10})
	require.NoError(w.T, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(w.T.Context())
	wg.Go(func() {
		for i := 0; wait.For(ctx, 5*time.Millisecond); i++ {
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
		cancel()
		wg.Wait()
		_ = errors.Join(data.Close(), control.Close())
	})
}

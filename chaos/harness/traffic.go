package harness

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// traffic moves devices. Every second one is silent and stays, so that only its open socket proves
// that it lives.
type traffic struct {
	cancel context.CancelFunc
	blind  func() // the observer's end
	wg     sync.WaitGroup
	acts   atomic.Int64
}

// ActWithin bounds an act: a stopped replica accepts, and does not answer.
const (
	ActWithin = time.Second
	workers   = 8
)

func (t *traffic) Start(w *Environment) {
	ctx, cancel := context.WithCancel(w.Context())
	t.cancel, t.blind = cancel, w.observe()
	for worker := range workers {
		rnd := rand.New(rand.NewPCG(w.Seed, uint64(worker)))
		t.wg.Go(func() {
			for wait.For(ctx, 10*time.Millisecond) {
				// Two workers never share a device, and no worker has a silent one.
				if i := 2*(rnd.IntN(w.Fleet.Len()/2/workers+1)*workers+worker) + 1; i < w.Fleet.Len() {
					t.act(ctx, w, i, rnd)
				}
			}
		})
	}
}

func (t *traffic) act(ctx context.Context, w *Environment, i int, rnd *rand.Rand) {
	w.Gate.RLock()
	defer w.Gate.RUnlock()
	fleet := w.Replicas()
	if len(fleet) == 0 {
		return
	}
	to := fleet[rnd.IntN(len(fleet))]
	ctx, cancel := context.WithTimeout(ctx, ActWithin)
	defer cancel()
	var err error
	switch n := rnd.IntN(20); {
	case w.Fleet.At(i) == "":
		if n < 5 { // no hurry
			err = w.Fleet.Connect(ctx, i, to)
		}
	case n < 12:
		err = w.Fleet.Send(ctx, i)
	case n < 16:
		err = w.Fleet.Connect(ctx, i, to)
	case n < 19:
		w.Fleet.DropStale(i)
	default:
		w.Fleet.LeaveAll([]int{i})
	}
	if err == nil {
		t.acts.Add(1)
	}
}

// Moves waits until there has been traffic.
func (w *Environment) Moves() {
	w.Helper()
	before := w.Traffic.Done()
	Eventually(w, "devices move", func() bool { return w.Traffic.Done() >= before+w.Fleet.Len()/4 })
}

// Done counts the acts that succeeded.
func (t *traffic) Done() int { return int(t.acts.Load()) }

func (t *traffic) Stop() {
	if t.cancel != nil {
		t.cancel()
		t.blind()
	}
	t.wg.Wait()
}

// watched devices are asked about often: porcupine has a dense history of each.
const watched = 12

// observe looks up devices as a backend would, for C8.
func (w *Environment) observe() (end func()) {
	w.Helper()
	data, control := Clients(w.Proxy().Addr(), time.Second)
	r, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: "observer",
		HeartbeatInterval: Interval * 10, HeartbeatTTL: TTL * 10,
	})
	require.NoError(w, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(w.Context())
	wg.Go(func() {
		for i := 0; wait.For(ctx, 5*time.Millisecond); i++ {
			imei := w.Fleet.IMEI(i % min(watched, w.Fleet.Len()))
			asked := time.Now()
			owner, err := r.Lookup(w.Context(), imei)
			if err != nil && !errors.Is(err, registry.ErrNotRegistered) {
				continue
			}
			w.tells(func(f *judge.Facts) {
				f.Lookups = append(f.Lookups, judge.Lookup{
					IMEI: imei, Instance: owner.Instance, Call: asked, Return: time.Now(),
				})
			})
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		_ = errors.Join(data.Close(), control.Close())
	})
}

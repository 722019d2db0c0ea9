package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// traffic is what devices do while things break: they report, move, reconnect, leave, and replicas notice their old sockets
// late. Every second device is silent and stays where it is: nothing but its open socket speaks for it.
type traffic struct {
	cancel context.CancelFunc
	blind  func() // ends the observer
	wg     sync.WaitGroup
	acts   atomic.Int64
}

// Each act has so long: a stopped replica accepts, and does not answer.
const (
	actWithin = time.Second
	workers   = 8
)

func (t *traffic) start(w *base) {
	ctx, cancel := context.WithCancel(w.t.Context())
	t.cancel, t.blind = cancel, w.observe()
	for worker := range workers {
		rnd := rand.New(rand.NewPCG(w.seed, uint64(worker)))
		t.wg.Go(func() {
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				// Two workers never have the same device, and the silent ones are nobody's.
				if i := 2*(rnd.IntN(w.devices.Len()/2/workers+1)*workers+worker) + 1; i < w.devices.Len() {
					t.act(ctx, w, i, rnd)
				}
			}
		})
	}
}

// act lets device i do something.
func (t *traffic) act(ctx context.Context, w *base, i int, rnd *rand.Rand) {
	w.gate.RLock()
	defer w.gate.RUnlock()
	fleet := w.fleet()
	if len(fleet) == 0 {
		return
	}
	to := fleet[rnd.IntN(len(fleet))]
	ctx, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	var err error
	switch n := rnd.IntN(20); {
	case w.devices.at(i) == "":
		if n < 5 { // it does not hurry
			err = w.devices.move(ctx, i, to)
		}
	case n < 12:
		err = w.devices.report(ctx, i)
	case n < 16:
		err = w.devices.move(ctx, i, to)
	case n < 19:
		w.devices.DropStale(i)
	default:
		w.devices.leaveAll([]int{i})
	}
	if err == nil {
		t.acts.Add(1)
	}
}

// moves waits until there has been traffic.
func (w *base) moves() {
	w.t.Helper()
	before := w.traffic.done()
	eventually(w.t, "devices move", func() bool { return w.traffic.done() >= before+w.devices.Len()/4 })
}

// done is how many acts succeeded.
func (t *traffic) done() int { return int(t.acts.Load()) }

func (t *traffic) stop() {
	if t.cancel != nil {
		t.cancel()
		t.blind()
	}
	t.wg.Wait()
}

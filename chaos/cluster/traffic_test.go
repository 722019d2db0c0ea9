package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// moves: one device moves each.
const moves = 30 * time.Millisecond

func imei(n int) string { return fmt.Sprintf("86%013d", n) }

// connect connects all devices, to the replicas by turns.
func (w *world) connect() {
	w.Helper()
	var all []string
	for i := range w.row.devices {
		all = append(all, imei(i))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spread(all, w.replicas)
}

// joins starts as many replicas as are missing. They take all devices that are nowhere.
func (w *world) joins() {
	w.Helper()
	w.mu.Lock()
	missing := w.row.replicas - len(w.replicas)
	w.mu.Unlock()
	if missing == 0 {
		return
	}
	w.launch(w.env, missing)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spread(w.homeless, w.replicas[len(w.replicas)-missing:])
	w.homeless = nil
}

// spread connects devices that are nowhere, to replicas by turns. mu is held.
func (w *world) spread(imeis []string, over []*replica) {
	w.Helper()
	parts := make([][]string, len(over))
	for i, one := range imeis {
		parts[i%len(over)] = append(parts[i%len(over)], one)
	}
	for i, r := range over {
		for _, one := range parts[i] {
			w.connects(one, r)
		}
		_, err := r.order("claim", parts[i]...)
		require.NoError(w, err)
	}
}

// connects notes that a device connects to a replica. mu is held.
func (w *world) connects(imei string, to *replica) {
	s := &socket{owner: to.id, from: time.Now()}
	w.present[imei] = s
	w.told.sockets[imei] = append(w.told.sockets[imei], s)
}

// claim lets a device connect to a replica, away from where it is. mu is held.
func (w *world) claim(imei string, to *replica) error {
	was := w.present[imei]
	if was != nil {
		was.until = time.Now()
	}
	w.connects(imei, to)
	_, err := to.order("claim", imei)
	if err != nil || was == nil {
		return err
	}
	from := w.replica(was.owner)
	if from == nil || from.stopped || from == to {
		return nil
	}
	_, err = from.order("stale", imei)
	w.late = append(w.late, departure{imei, from})
	return err
}

// departure is a device that left a replica, which is to notice it.
type departure struct {
	imei string
	from *replica
}

// notice has replicas notice at most so many devices that left them. mu is held.
func (w *world) notice(most int) (err error) {
	var later []departure
	for i, d := range w.late {
		back := w.present[d.imei]
		switch {
		case i >= most || d.from.stopped:
			later = append(later, d)
		case !d.from.Runs() || back != nil && back.owner == d.from.id:
		default:
			_, failed := d.from.order("release", d.imei)
			err = errors.Join(err, failed)
		}
	}
	w.late = later
	return err
}

// replica is the running one of an id, nil if there is none. mu is held.
func (w *world) replica(id string) *replica {
	for _, r := range w.replicas {
		if r.id == id {
			return r
		}
	}
	return nil
}

// traffic has devices move among the replicas that run, until the function that it returns is
// called. Then every device that is to be somewhere is there.
func (w *world) traffic() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(moves)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				w.move()
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(end)
		<-ended
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = errors.Join(w.err, w.notice(len(w.late)))
	})
	w.Cleanup(stop)
	return stop
}

// move lets one device move, another come back, and a replica notice one that left.
func (w *world) move() {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := w.running()
	if w.err != nil || len(open) == 0 {
		return
	}
	to := open[w.rand.IntN(len(open))]
	one := imei(w.rand.IntN(w.row.devices))
	if is := w.present[one]; is != nil {
		if at := w.replica(is.owner); at != to && at != nil && !at.stopped {
			w.err = w.claim(one, to)
		}
	} else if len(w.homeless) > w.row.devices/20 && w.rand.IntN(5) == 0 { // some never come back
		i := w.rand.IntN(len(w.homeless))
		one := w.homeless[i]
		w.homeless = slices.Delete(w.homeless, i, i+1)
		w.err = errors.Join(w.err, w.claim(one, to))
	}
	w.err = errors.Join(w.err, w.notice(w.rand.IntN(3)))
}

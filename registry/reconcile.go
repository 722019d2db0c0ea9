package registry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// scanCount is the page of a scan of the index or of the registry.
const scanCount = 1000

// surprises are what Redis lost or met that this owner did not do. It is told the time.
type surprises struct {
	lost   string    // the witness' last hold that may have lost entries
	missed *reply    // a surprise that everything is yet to be looked at for
	looked time.Time // when everything was last looked at
}

// note looks at a reply. standing: there are entries that are believed to stand.
func (s *surprises) note(got reply, standing bool) {
	held := s.lost != "" && got.lost != s.lost
	s.lost = got.lost
	if s.missed == nil && (got.absent || held || got.gone && standing) {
		s.missed = &got
	}
}

// due returns the surprise that everything is to be looked at for now: at once, but once an
// interval at most, whatever comes. Heartbeats that Redis evicts again and again must not make it
// look at everything again and again. What is lost soon after the last time is still looked at
// within one interval of its loss.
func (s *surprises) due(now time.Time, interval time.Duration) *reply {
	missed := s.missed
	if missed != nil && now.Sub(s.looked) >= interval {
		s.missed, s.looked = nil, now
		return missed
	}
	return nil
}

// read looks at a reply: a surprise reconciles everything, and so does an index of another size
// than the claims make it. Caller holds mu.
func (r *Registry) read(got reply, now time.Time) {
	r.surprises.note(got, r.table.count[standing] > 0)
	r.reconcileAll(now)
	if r.ready && r.table.indexDiffers(got.size, now) {
		nudge(r.scan)
	}
}

// reconcileAll has everything looked at if a surprise is due. Caller holds mu.
func (r *Registry) reconcileAll(now time.Time) {
	missed := r.surprises.due(now, r.cfg.HeartbeatInterval)
	if missed == nil {
		return
	}
	level := slog.LevelInfo
	if missed.absent || missed.gone {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "Redis may have lost entries, reconciling everything",
		"instance", r.id, "heartbeat_absent", missed.absent, "registry_absent", missed.gone, "devices", r.table.held())
	for i := range r.table.shards {
		r.table.checkShard(i)
	}
	nudge(r.scan)
}

// reconcile compares the index with the claims, both ways, whenever they are found to differ. The
// first time, and after devices had to be forgotten, it hands back all that names this instance and
// is not held: see compareAll. What fails, or stays different, is tried again ever more seldom,
// down to once an interval.
func (r *Registry) reconcile(ctx context.Context) error {
	var pass uint64
	pause := r.retryDelay()
	longer := func() { pause = min(2*pause, r.cfg.HeartbeatInterval) }
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.scan:
		}
		pass++
		for {
			err := r.compareAll(ctx, pass)
			if err == nil {
				r.mu.Lock()
				r.scanFails = false // retry tells that it is over
				r.mu.Unlock()
				break
			}
			if ctx.Err() != nil {
				return nil
			}
			r.mu.Lock()
			r.scanFails = true
			r.fail("heal", err, 1)
			closeOnce(r.started) // sockets need not wait for a Redis that went away
			r.mu.Unlock()
			wait.For(ctx, pause)
			longer()
		}
		wait.For(ctx, pause) // a difference that stays must not make this a busy loop
		if longer(); len(r.scan) == 0 {
			pause = r.retryDelay() // no answer since then has shown a difference
		}
	}
}

// compareAll compares the index with the claims. A former life is looked for in the whole registry
// too: it may have kept no index. What this life has forgotten is there only if the index is kept
// by nobody: no set, or NoReverseIndex. Else whatever writes an entry writes the index in the same
// step.
func (r *Registry) compareAll(ctx context.Context, pass uint64) error {
	r.mu.Lock()
	begun, landing := time.Now(), r.table.landing
	search := r.table.owesSearch(begun)
	first := !r.ready
	r.mu.Unlock()
	broken := r.scanIndex(ctx, pass)
	noIndex := r.cfg.NoReverseIndex || redis.HasErrorPrefix(broken, "WRONGTYPE ")
	if broken != nil && !noIndex || !first && !search {
		return broken
	}
	if first && !r.unique || search && noIndex { // a made up id has no former life
		if err := r.scanRegistry(ctx); err != nil {
			return err
		}
	}
	if first {
		if err := r.handedBack(ctx, 0); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = true
	if broken == nil {
		r.recovered("heal")
	}
	closeOnce(r.started)
	if search {
		r.table.searchedFor(landing, begun)
		r.changed.Broadcast() // see drained
	}
	return broken
}

// scanIndex hands back members that are not held, and puts back held devices that are no members.
func (r *Registry) scanIndex(ctx context.Context, pass uint64) error {
	if r.cfg.NoReverseIndex {
		return nil
	}
	r.mu.Lock()
	begun := r.table.batches
	r.mu.Unlock()
	err := r.meet(ctx, pass, func(ctx context.Context, cursor uint64) ([]string, uint64, error) {
		key := r.keys.Devices(r.id)
		members, next, err := r.cfg.Client.SScan(ctx, key, cursor, "", scanCount).Result()
		if err == nil {
			failpoint.Hit(failpoint.Reconciling)
		}
		return members, next, err
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.compareIndex(pass, begun)
	return nil
}

// scanRegistry hands back entries that name this instance and are not held: those that no index
// remembers.
func (r *Registry) scanRegistry(ctx context.Context) error {
	return r.meet(ctx, 0, func(ctx context.Context, cursor uint64) ([]string, uint64, error) {
		var imeis []string
		pairs, next, err := r.cfg.Client.HScan(ctx, r.keys.Registry(), cursor, "", scanCount).Result()
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] == r.id {
				imeis = append(imeis, pairs[i])
			}
		}
		return imeis, next, err
	})
}

// page is one page of a scan.
type page func(ctx context.Context, cursor uint64) (imeis []string, next uint64, err error)

// meet meets every IMEI of a scan.
func (r *Registry) meet(ctx context.Context, pass uint64, next page) error {
	for cursor := uint64(0); ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		imeis, after, err := next(call, cursor)
		cancel()
		if err != nil {
			return err
		}
		r.mu.Lock()
		for _, imei := range imeis {
			r.table.met(imei, pass)
		}
		r.mu.Unlock()
		if err := r.handedBack(ctx, r.table.spare); err != nil {
			return err
		}
		if cursor = after; cursor == 0 {
			return nil
		}
	}
}

// handedBack waits until at most so many devices are left to be written, and if that is none until
// all is written: what a scan meets is not remembered faster than it is taken out.
func (r *Registry) handedBack(ctx context.Context, most int) error {
	var done bool
	var failure error
	err := r.await(ctx, func() bool {
		done = r.table.urgent.len() <= most && (most > 0 || r.table.idle())
		failure = r.failing["release"]
		return done || failure != nil
	})
	if err == nil && !done {
		err = fmt.Errorf("registry: hand back what is not held: %w", failure)
	}
	return err
}

package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// beats meets Redis first (boot), then beats every interval; what failed is tried again every
// interval/10. Each such tenth is also when unsettled devices are looked at again.
func (r *Registry) beats(ctx context.Context) error {
	tenth := time.NewTicker(r.cfg.HeartbeatInterval / 10)
	defer tenth.Stop()
	var due time.Time
	var turn int // the shard whose claims are looked at next
	for {
		if now := time.Now(); !now.Before(due) {
			err := r.beat(ctx)
			if err == nil {
				due = now.Add(r.cfg.HeartbeatInterval * 19 / 20) // the tick at the interval's end may come a little early
				r.check(turn)
				turn = (turn + 1) % shards
			}
			r.failed(err)
		}
		r.retry()
		select {
		case <-ctx.Done():
			return nil
		case <-tenth.C:
		}
	}
}

// beat asserts life once. While memory is full it extends the heartbeat that is there.
func (r *Registry) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(r.cfg.HeartbeatInterval/2, 2*time.Second))
	defer cancel()
	r.mu.Lock()
	met, before := r.boot != "", r.batches
	r.mu.Unlock()

	var got signs
	var err error
	if !met {
		err = r.meet(ctx)
	} else {
		got, err = r.own(ctx, r.cfg.Control, beatScript, millis(r.Timing().Grace()))
		if outOfMemory(err) {
			if got, err = r.own(ctx, r.cfg.Control, extendScript); err == nil && got.count == 0 {
				err = fmt.Errorf("OOM and no heartbeat left to extend")
			}
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if refused(err) {
			r.refused = err
		}
		r.fail("heartbeat", err, 1)
		r.start(false)
		return err
	}
	r.beaten, r.refused = time.Now(), nil
	r.recovered("heartbeat")
	if r.owesSearch(r.beaten) {
		nudge(r.scan)
	}
	if met {
		if before%2 == 1 || before != r.batches {
			got.size, got.gone = r.indexed, false // a batch was under way: what it did is not to be compared
		}
		r.read(got)
	}
	return nil
}

// meet draws the boot token with the first heartbeat, and has the former life handed back.
func (r *Registry) meet(ctx context.Context) error {
	keys := []string{r.keys.Heartbeat(r.id), r.keys.Roster(), r.keys.Witness()}
	token, err := bootScript.Run(ctx, r.cfg.Control, keys, r.id, r.random,
		millis(r.cfg.HeartbeatTTL), millis(r.Timing().Grace())).Text()
	if err != nil {
		return err
	}
	if err := r.sameServer(ctx, token); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boot = token
	r.log.Info("instance lives", "instance", r.id, "boot", token)
	nudge(r.wake)
	nudge(r.scan)
	return nil
}

// start closes Started: at the first failure to meet Redis, or (handedBack) once the former life's
// entries are handed back. Caller holds mu.
func (r *Registry) start(handedBack bool) {
	if !handedBack && r.boot != "" {
		return // met: the hand-back is under way
	}
	select {
	case <-r.started:
	default:
		close(r.started)
	}
}

// goodbye ends this life gracefully: see goodbye.lua. It is tried a few times; the TTL is the safety net.
func (r *Registry) goodbye(ctx context.Context) error {
	r.mu.Lock()
	met, left := r.boot != "", r.held+r.unreleased
	if r.astray() {
		left++
	}
	r.mu.Unlock()
	if !met {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(r.cfg.HeartbeatInterval, 3*time.Second))
	defer cancel()
	for {
		_, err := r.own(ctx, r.cfg.Control, goodbyeScript, fmt.Sprint(left))
		switch {
		case err == nil:
			r.log.Info("said goodbye", "instance", r.id, "left", left)
			return nil
		case errors.Is(err, ErrSuperseded):
			return err
		case ctx.Err() != nil:
			r.log.Warn("goodbye failed, the heartbeat is left to expire", "instance", r.id, "ttl", r.cfg.HeartbeatTTL, "error", err)
			return nil
		}
		wait.For(ctx, r.retryDelay())
	}
}

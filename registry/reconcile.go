package registry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// scanCount is the page of a scan of the index or of the registry.
const scanCount = 1000

// read looks at the signs of an answer. A surprise, Redis having lost or met something that this
// owner did not do, reconciles everything at once. Caller holds mu.
func (r *Registry) read(s signs) {
	surprise := s.absent || (r.since != "" && s.since != r.since) || (s.gone && r.held > len(r.watched))
	r.since = s.since
	if surprise {
		level := slog.LevelInfo
		if s.absent || s.gone {
			level = slog.LevelWarn
		}
		r.log.Log(context.Background(), level, "Redis may have lost entries, reconciling everything",
			"instance", r.id, "heartbeat_absent", s.absent, "registry_absent", s.gone, "devices", r.held)
		for i := range r.shards {
			r.checkShard(i)
		}
	}
	if surprise || (!r.cfg.NoReverseIndex && s.size != r.indexed && r.ready && r.certain()) {
		nudge(r.scan)
	}
}

// certain: no write of unknown fate makes the size of the index unpredictable. Caller holds mu.
func (r *Registry) certain() bool {
	now := time.Now()
	for d := range r.watched {
		if !d.settled && d.unsure.After(now) {
			return false
		}
	}
	return true
}

// check has a tenth of the claims looked at.
func (r *Registry) check(shard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkShard(shard)
}

func (r *Registry) checkShard(shard int) {
	for _, d := range r.shards[shard] {
		if d.settled && d.claim != nil {
			r.enqueue(d, false)
		}
	}
}

// reconcile compares the index with the claims, both ways, whenever they are found to differ. The first
// time it hands back what the former life of a fixed instance id left: index first, then one
// HSCAN for what the index lacks.
func (r *Registry) reconcile(ctx context.Context) error {
	var pass uint64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.scan:
		}
		pass++
		for {
			err := r.scanIndex(ctx, pass)
			if err == nil && !r.isReady() {
				err = r.handBack(ctx)
			}
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
			r.start(true) // sockets need not wait for a Redis that went away
			r.mu.Unlock()
			wait.For(ctx, r.retryDelay())
		}
		wait.For(ctx, r.retryDelay()) // a difference that stays must not make this a busy loop
	}
}

func (r *Registry) isReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// scanIndex hands back members that are not held, and puts back held devices that are no members.
func (r *Registry) scanIndex(ctx context.Context, pass uint64) error {
	if r.cfg.NoReverseIndex {
		return nil
	}
	r.mu.Lock()
	begun := r.batches
	r.mu.Unlock()
	for cursor := uint64(0); ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		members, next, err := r.cfg.Client.SScan(call, r.keys.Devices(r.id), cursor, "", scanCount).Result()
		cancel()
		if err != nil {
			return err
		}
		failpoint.Hit(failpoint.Reconciling)
		r.mu.Lock()
		for _, imei := range members {
			r.metMember(imei, pass)
		}
		r.mu.Unlock()
		if cursor = next; cursor == 0 {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.devices {
		// A member throughout the scan is met by it; what was written meanwhile need not be.
		member := d.scanned == pass
		if d.claim == nil || d.wrote >= begun || d.indexed == member {
			continue
		}
		if d.settled && d.indexed {
			r.unsettle(d)
			r.enqueue(d, true)
			continue
		}
		// Held, but the entry names another: nothing is to be written, and the belief is what was wrong. Left
		// so, the sizes would differ for as long as that socket stays, and every answer would scan again.
		r.index(d, member)
	}
	return nil
}

// metMember notes that the index, or the registry, names imei as this instance's. Caller holds mu.
func (r *Registry) metMember(imei string, pass uint64) {
	d := r.device(imei)
	d.scanned = pass
	if d.claim == nil && !d.queued {
		r.unsettle(d)
		r.enqueue(d, true)
	}
}

// handBack finishes the hand-back of a former life and closes Started.
func (r *Registry) handBack(ctx context.Context) error {
	if !r.unique {
		if err := r.scanRegistry(ctx); err != nil {
			return err
		}
	}
	if err := r.await(ctx, func() bool { return r.idle() || r.failing["release"] != nil }); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.idle() {
		return fmt.Errorf("registry: hand back the former life's entries: %w", r.failing["release"])
	}
	r.ready = true
	r.recovered("heal")
	r.start(true)
	return nil
}

// scanRegistry hands back entries that name this instance and are not held: those that no index
// remembers.
func (r *Registry) scanRegistry(ctx context.Context) error {
	for cursor := uint64(0); ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		pairs, next, err := r.cfg.Client.HScan(call, r.keys.Registry(), cursor, "", scanCount).Result()
		cancel()
		if err != nil {
			return err
		}
		r.mu.Lock()
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] == r.id {
				r.metMember(pairs[i], 0)
			}
		}
		r.mu.Unlock()
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

package registry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// scanCount is the page of a scan of the index or of the registry.
const scanCount = 1000

// read looks at the signs of an answer. A surprise, Redis having lost or met something that this
// owner did not do, reconciles everything. Caller holds mu.
func (r *Registry) read(s signs) {
	held := r.lost != "" && s.lost != r.lost
	r.lost = s.lost
	if r.missed == nil && (s.absent || held || s.gone && r.held > len(r.watched)) {
		r.missed = &s
	}
	r.reconcileAll()
	if !r.cfg.NoReverseIndex && s.size != r.indexed && r.ready && r.certain() {
		nudge(r.scan)
	}
}

// reconcileAll has everything looked at after a surprise: at once, but once an interval at most, whatever comes. Heartbeats
// that Redis evicts again and again must not make it look at everything again and again. What is lost soon after the
// last time is still looked at within one interval of its loss. Caller holds mu.
func (r *Registry) reconcileAll() {
	now := time.Now()
	if r.missed == nil || now.Sub(r.reconciled) < r.cfg.HeartbeatInterval {
		return
	}
	level := slog.LevelInfo
	if r.missed.absent || r.missed.gone {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "Redis may have lost entries, reconciling everything", "instance", r.id,
		"heartbeat_absent", r.missed.absent, "registry_absent", r.missed.gone, "devices", r.held)
	r.missed, r.reconciled = nil, now
	for i := range r.shards {
		r.checkShard(i)
	}
	nudge(r.scan)
}

// certain: no write of unknown fate makes the size of the index unpredictable. Caller holds mu.
func (r *Registry) certain() bool { return r.vague == 0 || time.Now().After(r.vagueUntil) }

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

// mislay notes that a device was forgotten although something of it may stand in Redis, or may yet land there. That is
// looked for as soon as Redis answers, and again when nothing can land any more. Caller holds mu.
func (r *Registry) mislay() {
	r.landing, r.searched = time.Now().Add(r.cfg.HeartbeatTTL), false
}

// astray: something may stand in Redis that nobody has looked for yet. Caller holds mu.
func (r *Registry) astray() bool { return !r.landing.IsZero() && !r.searched }

// owesSearch: it is time to look for what was forgotten. Caller holds mu.
func (r *Registry) owesSearch(now time.Time) bool {
	return !r.landing.IsZero() && (!r.searched || now.After(r.landing))
}

// reconcile compares the index with the claims, both ways, whenever they are found to differ. The first
// time, and after devices had to be forgotten, it hands back all that names this instance and is not held: see compareAll.
// What fails, or stays different, is tried again ever more seldom, down to once an interval.
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
			r.start(true) // sockets need not wait for a Redis that went away
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

// compareAll compares the index with the claims. A former life is looked for in the whole registry too: it may have kept no
// index. What this life has forgotten is there only if the index is kept by nobody: no set, or NoReverseIndex. Else whatever
// writes an entry writes the index in the same step.
func (r *Registry) compareAll(ctx context.Context, pass uint64) error {
	r.mu.Lock()
	begun, landing, search := time.Now(), r.landing, r.owesSearch(time.Now())
	first := !r.ready
	r.mu.Unlock()
	broken := r.scanIndex(ctx, pass)
	noIndex := r.cfg.NoReverseIndex || broken != nil && strings.HasPrefix(broken.Error(), "WRONGTYPE")
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
	r.start(true)
	if search && r.landing.Equal(landing) { // else more was forgotten meanwhile
		r.searched = true
		if begun.After(landing) {
			r.landing = time.Time{}
		}
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
		if err := r.handedBack(ctx, r.spare); err != nil {
			return err
		}
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
	if d.claim == nil && d.in == nil {
		d.written = true
		r.unsettle(d)
		r.enqueue(d, true)
	}
}

// handedBack waits until at most so many devices are left to be written, and if that is none until all is written: what a
// scan meets is not remembered faster than it is taken out.
func (r *Registry) handedBack(ctx context.Context, most int) error {
	done := func() bool { return r.urgent.len() <= most && (most > 0 || r.idle()) }
	if err := r.await(ctx, func() bool { return done() || r.failing["release"] != nil }); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !done() {
		return fmt.Errorf("registry: hand back what is not held: %w", r.failing["release"])
	}
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
		if err := r.handedBack(ctx, r.spare); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

package registry

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// An entry of a held device that names a dead instance is overwritten without evidence, whoever
// sweeps: the sweep is held, paused, or does not take place at all, and the device is here. "Dead"
// is what the guard would call so, and heal.lua asks for it with the guard's own conditions, in the
// step that overwrites. While these keep it from that, its attempts are what listens: an owner of a
// fleet without janitors gets there a grace period later.

// silent notes whether the other instance of a dispute had a heartbeat when it was asked.
func (t *table) silent(owner string, claims []*Claim, silent bool) {
	for _, c := range claims {
		if d := c.d; d.claim == c && d.dispute != nil && d.dispute.owner == owner {
			d.dispute.silent = silent
		}
	}
}

// outlived reports whether the entry of a held device is to be overwritten if the instance that it
// names is dead. While the guard would not call it dead one batch at each retry is enough to listen
// and to find out.
func (t *table) outlived(d *device, now time.Time) bool {
	return d.dispute != nil && d.dispute.silent && d.state != contested && !now.Before(t.outliveAt)
}

// outliving reports whether the instance of an operation is still the one in dispute.
func (o op) outliving() bool { return o.d.dispute != nil && o.d.dispute.owner == o.dead }

// notYet notes that none of the instances named by these operations can be called dead. What their
// entries are is looked up instead.
func (t *table) notYet(ops []op, now time.Time) {
	t.outliveAt = now.Add(t.interval / 20)
	for _, o := range ops {
		if o.d.claim == o.claim && o.d.state.disputed() {
			t.enqueue(o.d, false)
		}
	}
}

// overDead returns what a heal over dead instances needs besides pairs: their heartbeats, once
// each, the timing for listening, and whether this owner's heartbeat should exist. It should if a
// beat landed within half a TTL: a batch that is delayed then does not find it expired.
func (r *Registry) overDead(ops []op) (keys []string, args []any) {
	seen := map[string]bool{}
	for _, o := range ops {
		if !seen[o.dead] {
			seen[o.dead] = true
			keys = append(keys, r.keys.Heartbeat(o.dead))
		}
	}
	r.mu.Lock()
	beats := age(r.lastBeat, time.Now()) < r.cfg.HeartbeatTTL/2
	r.mu.Unlock()
	timing := r.Timing()
	return keys, []any{timing.Gap().Milliseconds(), timing.Grace().Milliseconds(), beats}
}

// tellOutlived logs what was taken over from dead instances, once an interval at most. Caller holds
// mu.
func (r *Registry) tellOutlived(now time.Time) {
	if r.outlived > 0 && now.Sub(r.toldOutlived) >= r.cfg.HeartbeatInterval {
		r.log.Info("devices taken over from instances that are dead", "devices", r.outlived)
		r.outlived, r.toldOutlived = 0, now
	}
}

// canBeInstance reports whether an entry may name an instance. One that names something else has an
// unknown writer, and is kept.
func canBeInstance(id string) bool {
	return id != "" && len(id) <= 256 && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}

package registry

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// If the entry of a held id names a dead instance, it is overwritten without evidence. heal.lua
// checks the guard's own conditions. Its attempts also listen: without janitors, an owner may take
// over after a grace period.

func (t *table) silent(owner string, claims []*Claim, silent bool) {
	for _, c := range claims {
		if h := c.h; h.claim == c && h.dispute != nil && h.dispute.owner == owner {
			h.dispute.silent = silent
		}
	}
}

// outlived reports whether to overwrite the entry of a held id if the instance that it names is
// dead. One batch per retry is enough to listen and find out.
func (t *table) outlived(h *holding, now time.Time) bool {
	return h.dispute != nil && h.dispute.silent && h.state != contested && !now.Before(t.outliveAt)
}

func (o op) outliving() bool { return o.h.dispute != nil && o.h.dispute.owner == o.dead }

func (t *table) notYet(ops []op, now time.Time) {
	t.outliveAt = now.Add(t.interval / 20)
	for _, o := range ops {
		if o.h.claim == o.claim && o.h.state.disputed() {
			t.enqueue(o.h, false)
		}
	}
}

// overDead returns the additional arguments of a heal over dead instances: their heartbeats, the
// timing for listening, and whether this owner's heartbeat should exist, as after a beat within
// half a TTL.
func (r *Registry) overDead(ops []op) (keys []string, args []any) {
	seen := map[string]bool{}
	for _, o := range ops {
		if !seen[o.dead] {
			seen[o.dead] = true
			keys = append(keys, r.keys.Heartbeat(o.dead))
		}
	}
	r.mu.Lock()
	beats := wait.Age(r.lastBeat, time.Now()) < r.cfg.HeartbeatTTL/2
	r.mu.Unlock()
	timing := r.Timing()
	return keys, []any{timing.Gap().Milliseconds(), timing.Grace().Milliseconds(), beats}
}

func (r *Registry) tellOutlived(now time.Time) {
	if r.outlived > 0 && now.Sub(r.toldOutlived) >= r.cfg.HeartbeatInterval {
		r.log.Info("took over devices from dead instances", "devices", r.outlived)
		r.outlived, r.toldOutlived = 0, now
	}
}

func canBeInstance(id string) bool {
	return id != "" && len(id) <= 256 && utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}

package registry

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// If the entry of a held id names a dead instance, it is overwritten without evidence. heal.lua
// decides by its record. Its attempts also listen: without janitors, an owner may take over, too.

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

// heartbeats returns those of the instances that may be dead.
func (r *Registry) heartbeats(ops []op) (keys []string) {
	for _, o := range ops {
		if key := r.keys.Heartbeat(o.dead); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
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

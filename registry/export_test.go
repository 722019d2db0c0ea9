package registry

import "fmt"

// Remembered is the largest number of devices that any structure holds.
func (r *Registry) Remembered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	placed := 0
	for _, s := range r.shards {
		placed += len(s)
	}
	return max(len(r.devices), len(r.watched), len(r.owed), placed, r.urgent.n+r.checks.n, len(r.asks), len(r.moves))
}

// Miscounted says which counter differs from what a walk over all devices finds; "": none.
func (r *Registry) Miscounted() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var held, pending, unreleased, vague, disputed, indexed, queued, placed int
	for _, d := range r.devices {
		for n, is := range map[*int]bool{
			&held: d.claim != nil, &pending: !d.settled, &unreleased: !d.settled && d.claim == nil,
			&vague: !d.settled && !d.unsure.IsZero(), &disputed: d.dispute != nil,
			&indexed: d.indexed && !r.cfg.NoReverseIndex, &queued: d.in != nil,
		} {
			if is {
				*n++
			}
		}
		if r.shards[d.shard][d.place] == d {
			placed++
		}
		if _, watched := r.watched[d]; !d.settled && !watched {
			return d.imei + " is neither settled nor watched"
		}
	}
	for what, n := range map[string][2]int{
		"held": {r.held, held}, "pending": {r.pending, pending}, "unreleased": {r.unreleased, unreleased},
		"vague": {r.vague, vague}, "disputed": {r.disputed, disputed}, "indexed": {r.indexed, indexed},
		"queued": {r.urgent.n + r.checks.n, queued}, "placed": {len(r.devices), placed},
	} {
		if n[0] != n[1] {
			return fmt.Sprintf("%s is %d, and there are %d", what, n[0], n[1])
		}
	}
	return ""
}

package registry

import "fmt"

// RememberFewer has a Registry that does not run yet remember no more than n devices besides as many as are held.
func (r *Registry) RememberFewer(n int) { r.spare = n }

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
		add := func(n *int, is bool) {
			if is {
				*n++
			}
		}
		add(&held, d.claim != nil)
		add(&pending, !d.settled)
		add(&unreleased, !d.settled && d.claim == nil)
		add(&vague, !d.settled && !d.unsure.IsZero())
		add(&disputed, d.dispute != nil)
		add(&indexed, d.indexed && !r.cfg.NoReverseIndex)
		add(&queued, d.in != nil)
		add(&placed, r.shards[d.shard][d.place] == d)
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

package registry

import "fmt"

// RememberFewer sets how many more unheld than held devices a Registry that does not run yet
// remembers.
func (r *Registry) RememberFewer(n int) { r.table.spare = n }

// Remembered is the largest number of devices in any of the table's structures.
func (r *Registry) Remembered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.table
	placed := 0
	for _, s := range t.shards {
		placed += len(s)
	}
	return max(len(t.holdings), len(t.again), placed, t.queued(), len(t.asks), len(t.heard), len(t.lost))
}

// Miscounted returns the counter that differs from a walk over all devices, or "".
func (r *Registry) Miscounted() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table.miscounted()
}

func (t *table) miscounted() string {
	var count [states]int
	var held, indexed, queued, placed int
	for _, d := range t.holdings {
		add := func(n *int, is bool) {
			if is {
				*n++
			}
		}
		count[d.state]++
		add(&held, d.claim != nil)
		add(&indexed, d.indexed)
		add(&queued, d.in != nil)
		add(&placed, t.shards[d.shard][d.place] == d)
		_, again := t.again[d]
		switch {
		case !d.state.agreed() && !again:
			return d.id + " is not as it should be, and is not tried again"
		case d.state.held() != (d.claim != nil), (d.state == foreign) != (d.dispute != nil):
			return fmt.Sprintf("%s has state %d, claim %v, dispute %v", d.id, d.state, d.claim, d.dispute)
		}
	}
	count[forgotten] = -len(t.holdings)
	if count != t.count {
		return fmt.Sprintf("states are counted as %d, and are %d", t.count, count)
	}
	for what, n := range map[string][2]int{
		"held": {t.held(), held}, "indexed": {t.indexed, indexed},
		"queued": {t.queued(), queued}, "placed": {len(t.holdings), placed},
	} {
		if n[0] != n[1] {
			return fmt.Sprintf("%s is %d, and there are %d", what, n[0], n[1])
		}
	}
	return ""
}

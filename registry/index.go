package registry

import "time"

func (t *table) index(h *holding, in bool) {
	h.wrote = t.batches
	if h.indexed != in {
		h.indexed = in
		if in {
			t.indexed++
		} else {
			t.indexed--
		}
	}
}

func (t *table) unindex(h *holding) {
	if h.indexed && h.state.disputed() {
		t.enqueue(h, true)
	}
}

// named records that a scan of the index or the registry found id as this instance's. If it is
// not held, it is handed back.
func (t *table) named(id string, pass uint64) {
	h := t.holdings[id]
	if h == nil {
		h = t.add(id, releasing)
	}
	h.scanned = pass
	if h.claim == nil && h.in == nil {
		t.set(h, releasing)
		t.enqueue(h, true)
	}
}

// begun is the value of batches before the scan with number pass.
func (t *table) compareIndex(pass, begun uint64) {
	for _, h := range t.holdings {
		// A scan finds the members that were there from its start to its end; it may miss later
		// ones.
		member := h.scanned == pass
		switch {
		case h.claim == nil || h.wrote >= begun || h.indexed == member:
		case h.state == standing && h.indexed:
			t.set(h, unconfirmed)
			t.enqueue(h, true)
		default:
			// Held, but the entry names another: nothing to write, but the belief was wrong.
			// Uncorrected, the sizes would differ for as long as the socket is open, and every
			// reply would cause a scan.
			t.index(h, member)
			t.unindex(h)
		}
	}
}

// indexDiffers reports whether an index of this size differs from the claims. While a write of
// unknown fate may change the size, it returns false.
func (t *table) indexDiffers(size int, now time.Time) bool {
	return size != t.indexed && (t.pending() == 0 || now.After(t.lateUntil))
}

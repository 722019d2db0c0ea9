package registry

import "time"

func (t *table) index(d *device, in bool) {
	d.wrote = t.batches
	if d.indexed != in {
		d.indexed = in
		if in {
			t.indexed++
		} else {
			t.indexed--
		}
	}
}

func (t *table) unindex(d *device) {
	if d.indexed && d.state.disputed() {
		t.enqueue(d, true)
	}
}

// named records that a scan of the index or the registry found imei as this instance's. If it is
// not held, it is handed back.
func (t *table) named(imei string, pass uint64) {
	d := t.devices[imei]
	if d == nil {
		d = t.add(imei, releasing)
	}
	d.scanned = pass
	if d.claim == nil && d.in == nil {
		t.set(d, releasing)
		t.enqueue(d, true)
	}
}

// compareIndex compares the index with the claims after a scan. pass is the scan's number, and
// begun the value of batches before it.
func (t *table) compareIndex(pass, begun uint64) {
	for _, d := range t.devices {
		// A scan finds the members that were there from its start to its end; it may miss later
		// ones.
		member := d.scanned == pass
		switch {
		case d.claim == nil || d.wrote >= begun || d.indexed == member:
		case d.state == standing && d.indexed:
			t.set(d, unconfirmed)
			t.enqueue(d, true)
		default:
			// Held, but the entry names another: nothing to write, but the belief was wrong.
			// Uncorrected, the sizes would differ for as long as the socket is open, and every
			// reply would cause a scan.
			t.index(d, member)
			t.unindex(d)
		}
	}
}

// indexDiffers reports whether an index of this size differs from the claims. While a write of
// unknown fate may change the size, it returns false.
func (t *table) indexDiffers(size int, now time.Time) bool {
	return size != t.indexed && (t.pending() == 0 || now.After(t.lateUntil))
}

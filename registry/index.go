package registry

import "time"

// index notes whether a device is in the index.
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

// unindex has a device that names another instance taken out of the index.
func (t *table) unindex(d *device) {
	if d.indexed && d.state.disputed() {
		t.enqueue(d, true)
	}
}

// named notes that a scan of the index, or of the registry, found imei there as this instance's. It
// is handed back if it is not held.
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
// begun is what batches was before it.
func (t *table) compareIndex(pass, begun uint64) {
	for _, d := range t.devices {
		// A scan finds what is a member from its beginning to its end, and need not find what was
		// written meanwhile.
		member := d.scanned == pass
		switch {
		case d.claim == nil || d.wrote >= begun || d.indexed == member:
		case d.state == standing && d.indexed:
			t.set(d, unconfirmed)
			t.enqueue(d, true)
		default:
			// Held, but the entry names another: nothing is to be written, and the belief was wrong.
			// Were it left so, the sizes would differ for as long as the socket stays, and every
			// reply would cause a scan.
			t.index(d, member)
			t.unindex(d)
		}
	}
}

// indexDiffers reports whether an index of this size differs from the claims. That cannot be told
// while a write of unknown fate may change the size.
func (t *table) indexDiffers(size int, now time.Time) bool {
	return size != t.indexed && (t.pending() == 0 || now.After(t.lateUntil))
}

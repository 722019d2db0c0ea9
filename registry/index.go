package registry

import "time"

// met notes that the index, or the registry, names imei as this instance's, and has it handed back
// if it is not held.
func (t *table) met(imei string, pass uint64) {
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

// compareIndex compares the index with the claims after a scan: pass is the scan's number, begun
// what batches was before it.
func (t *table) compareIndex(pass, begun uint64) {
	for _, d := range t.devices {
		// A member throughout the scan is met by it; what was written meanwhile need not be.
		member := d.scanned == pass
		if d.claim == nil || d.wrote >= begun || d.indexed == member {
			continue
		}
		if d.state == standing && d.indexed {
			t.set(d, unconfirmed)
			t.enqueue(d, true)
			continue
		}
		// Held, but the entry names another: nothing is to be written, and the belief is what was
		// wrong. Left so, the sizes would differ for as long as that socket stays, and every answer
		// would scan again.
		t.index(d, member)
	}
}

// indexDiffers reports whether an index of this size differs from the claims. While writes of
// unknown fate make the size unpredictable that cannot be told.
func (t *table) indexDiffers(size int, now time.Time) bool {
	return t.indexKept && size != t.indexed && (t.vague == 0 || now.After(t.lateUntil))
}

// mislay notes that a device was forgotten although something of it may stand in Redis, or may yet
// land there. That is looked for as soon as Redis answers, and again when nothing can land any
// more.
func (t *table) mislay(now time.Time) { t.landing, t.searched = now.Add(t.ttl), false }

// astray: something may stand in Redis that nobody has looked for yet.
func (t *table) astray() bool { return !t.landing.IsZero() && !t.searched }

// owesSearch: it is time to look for what was forgotten.
func (t *table) owesSearch(now time.Time) bool {
	return !t.landing.IsZero() && (!t.searched || now.After(t.landing))
}

// searchedFor notes that a search, begun at this time, has looked for what was forgotten before
// landing.
func (t *table) searchedFor(landing, begun time.Time) {
	if !t.landing.Equal(landing) {
		return // more was forgotten meanwhile
	}
	t.searched = true
	if begun.After(landing) {
		t.landing = time.Time{}
	}
}

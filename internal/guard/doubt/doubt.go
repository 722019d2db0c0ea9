package doubt

// Doubt is what speaks against sweeping an owner.
type Doubt string

// The doubts, as status, metrics and the guard's answers name them.
const (
	None    Doubt = ""        // its entries may go
	Held    Doubt = "held"    // Redis has not been heard for long enough
	Alive   Doubt = "alive"   // it may have a beat in time
	Refused Doubt = "refused" // the server turns clients away
	Most    Doubt = "most"    // most others were off with it
)

// bound ends a doubt that anybody can cause, in GRACE.
const bound = 10

// Verdict returns what speaks against sweeping an owner without a heartbeat. since is when the
// server was first heard without a gap, refused when it last turned somebody away; most is
// Fleet.Together.
func (r Record) Verdict(now, since, refused int64, most bool) Doubt {
	quiet := now - max(r.Fell(), since)
	if r.State == Plain {
		quiet -= r.Due // one beat may have been evicted before it was read
	}
	switch {
	case r.State == Bye:
	case r.Fell() > now:
		return Alive // its heartbeat was evicted or deleted
	case quiet < bound*r.Grace() && now-refused < r.Grace():
		return Refused
	case quiet < r.Grace() && most:
		return Most
	}
	if now-since < r.Grace() {
		return Held // last: it may be over before the guard decides, and the others not
	}
	return None
}

// Ends returns when a doubt that Verdict has given ends at the latest; None: the silence.
func (r Record) Ends(since int64, why Doubt) int64 {
	at := max(r.Fell(), since)
	if r.State == Plain && why != None {
		at += r.Due
	}
	switch why {
	case Most:
		at += r.Grace()
	case Refused:
		at += bound * r.Grace()
	}
	return at
}

// Takes reports whether an owner that holds a device's socket may overwrite the entry that names
// this one, which has no heartbeat. Doubts about the many do not matter here: if this owner lived,
// it would have beaten since Redis is heard again. A Plain owner's record proves nothing while no
// leader reads.
func (r Record) Takes(now, since int64) bool {
	return !r.none() && r.State != Plain && now-since >= r.Due && (r.State == Bye || r.Fell() <= now)
}

// Fleet is one reading of all records.
type Fleet map[string]Record

// Together reports whether most holders were off at a time when id was off too.
func (f Fleet) Together(id string, now, since int64) bool {
	x, off, known := f[id], 0, 0
	heard := x.Last
	if x.State == Plain { // a blind leader may have moved that
		heard -= x.TTL
	}
	for other, y := range f {
		// y may beat less often than x; then it is not known to be on until it has beaten.
		silent := y.Last+y.Due <= now || y.Last < x.Last+x.Due
		switch {
		case y.Back > heard:
			off++ // it was off while x was off, whatever it is now
		case other != id && (y.State == Idle || y.State == Bye):
			continue // nobody misses it
		case y.Born >= heard && !silent && other != id:
			continue // it came later, and proves nothing about what hit x
		case silent && max(y.Fell(), since+y.Due)+x.Grace() < max(heard+x.TTL, since):
			continue // dead long before x: it could have beaten since the server is heard
		case silent:
			off++
		}
		known++
	}
	return off >= 2 && 2*off > known
}

// Spent returns those whose records no verdict on another needs any more. The leader deletes them,
// unless they are on the roster or have entries.
func (f Fleet) Spent(now, since int64) (ids []string) {
	longest := int64(0)
	for _, r := range f {
		longest = max(longest, r.Grace())
	}
	for id, r := range f {
		if max(r.Fell(), since+r.Due)+2*longest < now {
			ids = append(ids, id)
		}
	}
	return ids
}

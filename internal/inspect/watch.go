package inspect

import (
	"context"
	"maps"
	"slices"
	"time"
)

// How often a Watch reads what seldom changes.
const (
	serverEvery = 10 * time.Second // INFO, and a sample of the registry
	aboutEvery  = 10 * time.Second // what replicas say of themselves, but the leader's
)

// A Watch reads one fleet again and again. What seldom changes it reads seldom, and of the logs only
// what is new. It is for one goroutine at a time.
type Watch struct {
	*Reader
	reading  int // the number of the last one
	seldom   seldom
	seldomAt time.Time
	known    map[string]About
	asked    map[string]bool // ids in known, or that say nothing
	askedAt  time.Time

	log, stream string // ids of the newest read
	last        map[string]Last
	events      []Event // the oldest first
}

// Watch returns a Watch of the fleet. It has read nothing yet.
func (r *Reader) Watch() *Watch {
	w := &Watch{Reader: r}
	w.forget()
	return w
}

// forget begins the timeline anew.
func (w *Watch) forget() {
	w.log, w.stream, w.last, w.events = "", "0-0", map[string]Last{}, nil
}

// Status is Reader.Status; what it says of the server and of owners that are on no roster may be ten
// seconds old. It reads the timeline too.
func (w *Watch) Status(ctx context.Context) (Status, error) {
	now, err := w.now(ctx)
	if err != nil {
		return Status{}, err
	}
	if now.Sub(w.seldomAt).Abs() >= serverEvery {
		k := seldom{abouts: w.aboutsSeldom}
		if k.server, err = w.server(ctx); err != nil {
			return Status{}, err
		}
		if k.counted, k.whole, err = w.sample(ctx); err != nil {
			return Status{}, err
		}
		w.seldom, w.seldomAt = k, now
	}
	w.reading++
	if err := w.readLogs(ctx, now); err != nil {
		return Status{}, err
	}
	k := w.seldom
	k.sweeps = []Last{}
	for _, sweep := range slices.Sorted(maps.Keys(w.last)) {
		k.sweeps = append(k.sweeps, w.last[sweep])
	}
	if now.Sub(w.askedAt).Abs() >= aboutEvery {
		w.known, w.asked, w.askedAt = map[string]About{}, map[string]bool{}, now
	}
	s, err := w.status(ctx, now, k)
	if err != nil || s.Leader == nil {
		return s, err
	}
	delete(w.asked, s.Leader.Instance) // it is asked each time
	if s.Leader.Epoch > 0 && epochOf(w.log) > s.Leader.Epoch {
		w.forget() // the log was lost with the epochs, and begins anew with lower ones
	}
	return s, nil
}

// aboutsSeldom asks whom it has not asked lately.
func (w *Watch) aboutsSeldom(ctx context.Context, ids []string) (map[string]About, error) {
	var ask []string
	for _, id := range ids {
		if !w.asked[id] {
			ask = append(ask, id)
		}
	}
	said, err := w.abouts(ctx, ask)
	if err != nil {
		return nil, err
	}
	for _, id := range ask {
		delete(w.known, id)
		w.asked[id] = true
	}
	maps.Copy(w.known, said)
	return w.known, nil
}

// Timeline returns what happened in the last hour, the oldest first, as of the last Status.
func (w *Watch) Timeline() []Event { return slices.Clone(w.events) }

// New returns the events that the last Status found, or that it changed.
func (w *Watch) New() (found []Event) {
	for _, e := range w.events {
		if e.told == w.reading {
			found = append(found, e)
		}
	}
	return found
}

// logMost bounds how many records of the log one reading reads: the rest is read the next time, or
// at the first reading never. logLeast are read at first also if they are older than an hour: they
// say when a sweep last evicted something.
const logMost, logLeast = 20 * headsPage, 2 * headsPage

// readLogs reads what is new in the eviction log and in the timeline's own stream.
func (w *Watch) readLogs(ctx context.Context, now time.Time) error {
	read := w.readNew
	if w.log == "" {
		read = w.readBack
	}
	records, err := read(ctx, now)
	if err != nil {
		return err
	}
	found, err := w.happened(ctx, w.stream)
	if err != nil {
		return err
	}
	for _, rec := range records {
		w.log = rec.ID
		w.recorded(rec, now)
	}
	for _, e := range found {
		w.stream = e.ID
		w.add(e, now)
	}
	slices.SortStableFunc(w.events, func(a, b Event) int { return a.At.Compare(b.At) })
	old := 0
	for old < len(w.events) && (now.Sub(w.events[old].At) > Hour || len(w.events)-old > mostEvents) {
		old++
	}
	w.events = slices.Delete(w.events, 0, old)
	return nil
}

// readNew reads the records behind the newest read, the oldest first.
func (w *Watch) readNew(ctx context.Context, now time.Time) (records []Record, err error) {
	for after := w.log; len(records) < logMost; after = records[len(records)-1].ID {
		page, err := w.heads(ctx, "XRANGE", "("+after, "+", now)
		if err != nil {
			return nil, err
		}
		records = append(records, page...)
		if len(page) < headsPage {
			break
		}
	}
	return records, nil
}

// readBack reads the records of the last hour, the oldest first.
func (w *Watch) readBack(ctx context.Context, now time.Time) (records []Record, err error) {
	for from := "+"; len(records) < logMost; from = "(" + records[len(records)-1].ID {
		page, err := w.heads(ctx, "XREVRANGE", from, "-", now)
		if err != nil {
			return nil, err
		}
		records = append(records, page...)
		if len(page) < headsPage || len(records) >= logLeast && now.Sub(page[len(page)-1].At) > Hour {
			break
		}
	}
	slices.Reverse(records)
	return records, nil
}

// recorded takes a record of the eviction log.
func (w *Watch) recorded(rec Record, now time.Time) {
	if rec.Count > 0 {
		w.last[rec.Sweep] = Last{rec.Sweep, rec.At, rec.Epoch, rec.Leader, rec.Owner, rec.Count}
	}
	switch {
	case rec.Term != "":
		w.add(Event{ID: rec.ID, At: rec.At, Kind: KindTerm, Instance: rec.Leader, By: rec.Leader, Epoch: rec.Epoch}, now)
	case rec.Count > 0:
		for i := range w.events { // the batches of one owner are one event
			e := &w.events[i]
			if e.Kind == KindEviction && e.Epoch == rec.Epoch && e.Sweep == rec.Sweep && e.Instance == rec.Owner &&
				(rec.Owner != "" || rec.At.Sub(e.At) < time.Minute) {
				e.Count += rec.Count
				e.told = w.reading
				e.say()
				return
			}
		}
		w.add(Event{ID: rec.ID, At: rec.At, Kind: KindEviction, Instance: rec.Owner, By: rec.Leader, Epoch: rec.Epoch,
			Sweep: rec.Sweep, Count: rec.Count}, now)
	}
}

// add adds an event of the last hour.
func (w *Watch) add(e Event, now time.Time) {
	if now.Sub(e.At) > Hour {
		return
	}
	e.told = w.reading
	e.say()
	w.events = append(w.events, e)
}

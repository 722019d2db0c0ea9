package inspect

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// How often a Watch reads what seldom changes.
const (
	serverEvery = 10 * time.Second // INFO, and a sample of the registry
	aboutEvery  = 10 * time.Second // what replicas say of themselves, but the leader's
	aboutTries  = 3                // in that time, of who says nothing
)

// A Watch reads one fleet again and again. What seldom changes it reads seldom, and of the logs
// only what is new. It is for one goroutine at a time.
type Watch struct {
	*Reader
	reading  int // the number of the last one
	seldom   seldom
	seldomAt time.Time
	known    map[string]About
	asked    map[string]int // how often somebody was asked lately
	askedAt  time.Time

	log, stream string // ids of the newest read
	last        map[string]Last
	events      []event         // the oldest first
	paused      *timeline.Event // the pause that the events speak of last
}

// event is one of the timeline, and the reading that last changed it.
type event struct {
	timeline.Event
	told int
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
	w.paused = nil
}

// Status is Reader.Status; what it says of the server and of owners that are on no roster may be
// ten seconds old. It reads the timeline too.
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
		w.known, w.asked, w.askedAt = map[string]About{}, map[string]int{}, now
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

// aboutsSeldom asks whom it has not asked lately. Who says nothing may have just begun, and is
// asked a few times.
func (w *Watch) aboutsSeldom(ctx context.Context, ids []string) (map[string]About, error) {
	var ask []string
	for _, id := range ids {
		if _, said := w.known[id]; w.asked[id] == 0 || !said && w.asked[id] < aboutTries {
			ask = append(ask, id)
		}
	}
	said, err := w.abouts(ctx, ask)
	if err != nil {
		return nil, err
	}
	for _, id := range ask {
		delete(w.known, id)
		w.asked[id]++
	}
	maps.Copy(w.known, said)
	return w.known, nil
}

// Timeline returns what happened in the last hour, the oldest first, as of the last Status.
func (w *Watch) Timeline() []timeline.Event { return w.since(0) }

// New returns the events that the last Status found, or that it changed.
func (w *Watch) New() []timeline.Event { return w.since(w.reading) }

func (w *Watch) since(reading int) (found []timeline.Event) {
	for _, e := range w.events {
		if e.told >= reading {
			e.Sentence = sentence(e.Event)
			found = append(found, e.Event)
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
	found, err := timeline.Read(ctx, w.client, w.keys.Timeline(), w.stream)
	if err != nil && !Refused(err) && !wrongType(err) { // the rest is true without it; doctor names it
		return err
	}
	for _, rec := range records {
		w.log = rec.ID
		w.recorded(rec, now)
	}
	for _, e := range found {
		w.stream = e.ID
		w.happened(e, now)
	}
	if p := w.paused; p != nil && !p.Until.IsZero() && !now.Before(p.Until) {
		w.paused = nil
		w.add(timeline.Event{ID: p.ID + "-over", At: p.Until, Kind: timeline.Resume,
			Why: "the pause ran out"}, now)
	}
	slices.SortStableFunc(w.events, func(a, b event) int { return a.At.Compare(b.At) })
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
	e := timeline.Event{ID: rec.ID, At: rec.At, By: rec.Leader, Epoch: rec.Epoch}
	switch {
	case rec.Term != "":
		e.Kind, e.Instance = timeline.Term, rec.Leader
	case rec.Count > 0:
		e.Kind, e.Instance, e.Sweep, e.Count = timeline.Eviction, rec.Owner, rec.Sweep, rec.Count
		for i := range w.events { // the batches of one owner are one event
			if o := &w.events[i]; o.Kind == e.Kind && o.Epoch == e.Epoch && o.Sweep == e.Sweep &&
				o.Instance == e.Instance && e.At.Sub(o.At) < oneEviction {
				o.Count, o.told = o.Count+e.Count, w.reading
				return
			}
		}
	default:
		return
	}
	w.add(e, now)
}

// oneEviction is for how long an eviction of one owner in one term is told as one.
const oneEviction = 5 * time.Minute

// happened takes an event of the timeline's own stream, unless it was told already: a new leader
// cannot know what the one before has written.
func (w *Watch) happened(e timeline.Event, now time.Time) {
	known := false
	for _, o := range slices.Backward(w.events) {
		same := e.Instance != "" && o.Instance == e.Instance && o.Kind != timeline.Eviction
		if e.Instance == "" {
			same = o.Reason == e.Reason && (o.Kind == timeline.Hold || o.Kind == timeline.HoldOver)
		}
		if same {
			known = o.Kind == e.Kind || e.Kind == timeline.Death && o.Kind == timeline.Left
			break
		}
	}
	switch {
	case e.Found && known:
		return
	case e.Kind == timeline.Pause:
		w.paused = &e
	case e.Kind == timeline.Resume:
		w.paused = nil
	}
	w.add(e, now)
}

// add adds an event of the last hour.
func (w *Watch) add(e timeline.Event, now time.Time) {
	if now.Sub(e.At) <= Hour {
		w.events = append(w.events, event{e, w.reading})
	}
}

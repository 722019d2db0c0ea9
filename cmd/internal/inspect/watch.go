package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// Watch reads one fleet repeatedly: of the registry rarely a sample, and of the logs only new
// records. It is for one goroutine at a time.
type Watch struct {
	*Reader
	looks []look

	back time.Duration
	most int

	logs   []string // newest ids, by partition
	stream string
	last   map[string]Record
	events []timeline.Event
	untold error // the rest is true, and doctor reports it
	paused *timeline.Event
}

// Watch returns a Watch that has read nothing yet.
func (r *Reader) Watch() *Watch {
	w := &Watch{Reader: r, back: hourBack, most: mostEvents}
	w.forget()
	return w
}

func (w *Watch) forget() {
	w.logs, w.stream, w.last, w.events = make([]string, len(w.looks)), "0-0", map[string]Record{}, nil
	w.paused = nil
}

// Status is Reader.Status, but its owners on no roster may be ten seconds old. Several partitions
// may take a few calls.
func (w *Watch) Status(ctx context.Context) (Status, error) {
	to, err := w.reach(ctx)
	if err != nil {
		return Status{}, err
	}
	return w.status(ctx, to)
}

func (w *Watch) status(ctx context.Context, to reached) (Status, error) {
	if len(w.looks) != len(to.all) {
		w.looks = make([]look, len(to.all))
		w.forget()
	}
	now := to.now(to.parts[0])
	servers, err := servers(ctx, to.parts)
	if err != nil {
		return Status{}, err
	}
	var hour []timeline.Minute
	if to.fleet {
		hour, err = timeline.ReadMinutes(ctx, w.client, w.keys.Minutes(), now)
		if err != nil && !answered(err) { // the right is missing, or a key of another type
			return Status{}, err
		}
	}
	if err := w.readLogs(ctx, to, now); err != nil {
		return Status{}, err
	}
	s, err := w.read(ctx, to, servers)
	if err != nil {
		return s, err
	}
	s.Losses, s.overwritten = w.losses(now, s.Instances), w.overwritten(len(to.all))
	s.hour, s.taken = hour, map[string]int{}
	for _, e := range w.events {
		switch ago := now.Sub(e.At); {
		case e.Kind != timeline.Eviction:
		case isEntries(e.Sweep): // others delete no entries
			if s.gone += e.Count; ago <= lately {
				s.evicted += e.Count
			}
		case e.Instance == "" && ago <= lately:
			s.taken[e.Sweep] += e.Count
		}
	}
	for k, l := range w.looks {
		if l.leader != nil && l.leader.Epoch > 0 && epochOf(w.logs[k]) > l.leader.Epoch {
			w.forget() // lost with the epochs, it restarts with lower ones
		}
	}
	return s, nil
}

// Timeline returns the last hour's events, oldest first, as of the last Status.
func (w *Watch) Timeline() []timeline.Event {
	found := make([]timeline.Event, len(w.events))
	for i, e := range w.events {
		e.Sentence = sentence(e)
		found[i] = e
	}
	return found
}

// logMost bounds a reading's records. The first reads at least logLeast, to find each sweep's last
// eviction.
const headsPage, logMost, logLeast = timeline.HeadsPage, 20 * headsPage, 2 * headsPage

func (w *Watch) readLogs(ctx context.Context, to reached, now time.Time) error {
	ends := slices.Clone(w.logs)
	records, err := to.records(ctx, func(ctx context.Context, part *Reader) ([]Record, error) {
		after, most := w.logs[part.number], logMost
		if after == "" {
			most = max(1, logMost*w.most/mostEvents/len(to.all))
		}
		n := 0
		records, err := part.read(ctx, after, now, headsPage, func(rec Record) bool {
			n++
			return n >= most || after == "" && n >= logLeast && now.Sub(rec.At) > w.back
		})
		if len(records) > 0 {
			ends[part.number] = records[len(records)-1].ID
		}
		return records, err
	})
	if err != nil {
		return err
	}
	var told []timeline.Event
	if to.fleet {
		told, err = timeline.Read(ctx, w.client, w.keys.Timeline(), w.stream)
	}
	if w.untold = err; err != nil && !Refused(err) && !wrongType(err) {
		return err
	}
	w.logs = ends
	for _, rec := range records {
		w.recorded(rec, now)
	}
	for _, e := range told {
		w.stream = e.ID
		w.happened(e, now)
	}
	if p := w.paused; p != nil && !p.Until.IsZero() && !now.Before(p.Until) {
		w.paused = nil
		w.add(timeline.Event{ID: p.ID + "-over", At: p.Until, Kind: timeline.Resume,
			Why: "the pause ran out"}, now)
	}
	slices.SortStableFunc(w.events, func(a, b timeline.Event) int { return a.At.Compare(b.At) })
	old := 0
	for old < len(w.events) && (now.Sub(w.events[old].At) > w.back || len(w.events)-old > w.most) {
		old++
	}
	w.events = slices.Delete(w.events, 0, old)
	return nil
}

func (w *Watch) recorded(rec Record, now time.Time) {
	if rec.Count > 0 {
		w.last[rec.Sweep] = rec
	}
	e := timeline.Event{ID: rec.ID, At: rec.At, By: rec.Leader, Epoch: rec.Epoch}
	if rec.Partition != nil { // another may have the same id
		e.ID, e.Epoch = fmt.Sprintf("%d/%s", *rec.Partition, rec.ID), 0
	}
	switch {
	case rec.Term != "":
		e.Kind, e.Instance = timeline.Term, rec.Leader
		if rec.Partition != nil {
			e.Count = 1
		}
	case rec.Count > 0:
		e.Kind, e.Instance, e.Sweep, e.Count = timeline.Eviction, rec.Owner, rec.Sweep, rec.Count
	default:
		return
	}
	if e.Count > 0 {
		for i := range w.events { // merge batches of one owner, and terms in many partitions
			if o := &w.events[i]; o.Kind == e.Kind && o.Epoch == e.Epoch && o.Sweep == e.Sweep &&
				o.Instance == e.Instance && e.At.Sub(o.At) < oneEviction {
				o.Count += e.Count
				return
			}
		}
	}
	w.add(e, now)
}

const oneEviction = 5 * time.Minute

// Another leader may have reported an event already.
func (w *Watch) happened(e timeline.Event, now time.Time) {
	known, several := false, len(w.looks) > 1
	for _, o := range slices.Backward(w.events) {
		same := e.Instance != "" && o.Instance == e.Instance && o.Kind != timeline.Eviction
		if e.Instance == "" {
			same = o.Reason == e.Reason && (o.Kind == timeline.Hold || o.Kind == timeline.HoldOver)
		}
		if same && several {
			same = o.Kind != timeline.Term
		}
		if same {
			known = o.Kind == e.Kind || e.Kind == timeline.Death && o.Kind == timeline.Left
			several = several && e.At.Sub(o.At) < oneEviction
			break
		}
	}
	switch {
	case (e.Found || several) && known:
		return
	case e.Kind == timeline.Pause:
		w.paused = &e
	case e.Kind == timeline.Resume:
		w.paused = nil
	}
	w.add(e, now)
}

func (w *Watch) add(e timeline.Event, now time.Time) {
	if now.Sub(e.At) <= w.back {
		w.events = append(w.events, e)
	}
}

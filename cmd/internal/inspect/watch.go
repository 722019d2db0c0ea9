package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/internal/timeline"
)

const (
	serverEvery = 10 * time.Second // INFO, a sample of the registry
	aboutEvery  = 10 * time.Second // the leader's is read each time
	aboutTries  = 3                // if it has none
)

// Watch reads one fleet repeatedly: rarely what seldom changes, and of the logs only new records.
// It is for one goroutine at a time.
type Watch struct {
	*Reader
	survey   *survey
	hour     []timeline.Minute
	serverAt time.Time
	known    map[string]About
	asked    map[string]int // tries since askedAt
	askedAt  time.Time

	back time.Duration
	most int

	logs   []string // newest ids, by partition
	stream string
	last   map[string]Last
	events []timeline.Event
	untold error // the rest is true, and doctor reports it
	paused *timeline.Event
}

// Watch returns a Watch that has read nothing yet.
func (r *Reader) Watch() *Watch {
	w := &Watch{Reader: r, back: Hour, most: mostEvents}
	w.forget()
	return w
}

func (w *Watch) forget() {
	w.logs, w.stream, w.last, w.events = nil, "0-0", map[string]Last{}, nil
	w.paused = nil
}

// Status is Reader.Status, but its values of the server, and of owners on no roster, may be ten
// seconds old. Several partitions may take a few calls.
func (w *Watch) Status(ctx context.Context) (Status, error) {
	parts, to, err := w.reachParts(ctx)
	if err != nil {
		return Status{}, err
	}
	var now time.Time
	if len(parts) > 1 {
		now = to.nows[to.parts[0].number]
	} else if now, err = w.now(ctx); err != nil {
		return Status{}, err
	}
	if w.survey == nil || len(w.survey.parts) != len(parts) {
		w.survey, w.serverAt = newSurvey(w.Reader, parts), time.Time{}
		w.forget()
	}
	if now.Sub(w.serverAt).Abs() >= serverEvery {
		if w.survey.server, err = to.parts[0].server(ctx); err != nil {
			return Status{}, err
		}
		w.serverAt = now
		w.hour, err = timeline.ReadMinutes(ctx, w.client, w.keys.Minutes(), now)
		if err != nil && !answered(err) && len(parts) == 1 { // the right is missing, or a key of another type
			return Status{}, err
		}
	}
	if err := w.readLogs(ctx, to, now); err != nil {
		return Status{}, err
	}
	w.survey.sweeps = []Last{}
	for _, sweep := range slices.Sorted(maps.Keys(w.last)) {
		w.survey.sweeps = append(w.survey.sweeps, w.last[sweep])
	}
	if now.Sub(w.askedAt).Abs() >= aboutEvery {
		w.known, w.asked, w.askedAt = map[string]About{}, map[string]int{}, now
	}
	s, err := w.survey.read(ctx, to, now, w.aboutsSeldom)
	if err != nil {
		return s, err
	}
	s.Losses, s.overwritten = w.losses(now, s.Instances), w.overwritten(len(parts))
	s.hour, s.taken = w.hour, map[string]int{}
	for _, e := range w.events {
		switch ago := now.Sub(e.At); {
		case e.Kind != timeline.Eviction:
		case e.Sweep == "owners" || e.Sweep == "registry": // others delete no entries
			if s.gone += e.Count; ago <= Lately {
				s.evicted += e.Count
			}
		case e.Instance == "" && ago <= Lately:
			s.taken[e.Sweep] += e.Count
		}
	}
	for k, l := range w.survey.looks {
		if l.leader == nil {
			continue
		}
		delete(w.asked, l.leader.Instance)
		if l.leader.Epoch > 0 && k < len(w.logs) && epochOf(w.logs[k]) > l.leader.Epoch {
			w.forget() // lost with the epochs, it restarts with lower ones
		}
	}
	return s, nil
}

func (w *Watch) aboutsSeldom(ctx context.Context, ids []string) (map[string]About, error) {
	var ask []string
	for _, id := range ids {
		if _, said := w.known[id]; w.asked[id] == 0 || !said && w.asked[id] < aboutTries {
			ask = append(ask, id)
		}
	}
	said, err := w.Abouts(ctx, ask)
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
	parts := w.survey.parts
	if w.logs == nil {
		w.logs = make([]string, len(parts))
	}
	found, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) ([]Record, error) {
		after, most := w.logs[part.number], logMost
		if after == "" {
			most = max(1, logMost*w.most/mostEvents/len(parts))
		}
		return part.read(ctx, after, now, w.back, most)
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
	for i, records := range found {
		if k := to.parts[i].number; len(records) > 0 {
			w.logs[k] = records[len(records)-1].ID
		}
	}
	records := slices.Concat(found...)
	if len(parts) > 1 {
		slices.SortStableFunc(records, func(a, b Record) int { return a.At.Compare(b.At) })
	}
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

// read returns the records after an id, or, without one, at least logLeast and those since then;
// the oldest first.
func (r *Reader) read(
	ctx context.Context, after string, now time.Time, back time.Duration, most int,
) (records []Record, err error) {
	for rec, err := range r.walk(ctx, after, now, headsPage) {
		if err != nil {
			return nil, err
		}
		if after == "" && len(records) >= logLeast && now.Sub(rec.At) > back {
			break
		}
		if records = append(records, rec); len(records) >= most {
			break
		}
	}
	if after == "" {
		slices.Reverse(records)
	}
	return records, nil
}

func (w *Watch) recorded(rec Record, now time.Time) {
	if rec.Count > 0 {
		w.last[rec.Sweep] = Last{rec.Sweep, rec.At, rec.Epoch, rec.Leader, rec.Owner, rec.Count}
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
	known, several := false, len(w.survey.parts) > 1
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

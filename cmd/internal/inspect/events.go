package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// Event is an event of a fleet's past.
type Event struct {
	timeline.Event
	// Lasted is how long a hold, a pause or a silence lasted; "": so far, or unknown.
	Lasted string `json:"lasted,omitempty"`
}

// mostPast: the timeline's stream has about a thousand, the eviction log the rest.
const mostPast = 25 * mostEvents

// Events returns what happened since then, oldest first, as far back as Redis keeps it: terms and
// evictions from the eviction log, and about a thousand deaths, goodbyes, holds and pauses. With an
// error that is [Partial], or if this user may not read them, it lacks what could not be read.
func (r *Reader) Events(ctx context.Context, since time.Time) ([]Event, error) {
	to, err := r.reach(ctx)
	if err != nil {
		return nil, err
	}
	w := r.Watch()
	w.back, w.most = to.now(to.parts[0]).Sub(since), mostPast
	if _, err := w.status(ctx, to); err != nil {
		return nil, err
	}
	told := w.Timeline()
	events := make([]Event, len(told))
	for i, e := range told {
		events[i].Event = e
	}
	measure(events)
	if w.untold != nil {
		return events, fmt.Errorf("inspect: deaths, goodbyes, holds and pauses: %w", w.untold)
	}
	return events, to.err()
}

var ends = map[timeline.Kind]timeline.Kind{
	timeline.Hold: timeline.HoldOver, timeline.Pause: timeline.Resume, timeline.Death: timeline.Alive,
}

func measure(events []Event) {
	for i := range events {
		e := &events[i]
		end, lasts := ends[e.Kind]
		if !lasts || e.Found {
			continue
		}
		for _, later := range events[i+1:] {
			if later.Instance != e.Instance || later.Reason != e.Reason {
				continue
			}
			if later.Kind == end {
				e.Lasted = Short(later.At.Sub(e.At))
			}
			if later.Kind == end || later.Kind == e.Kind {
				break
			}
		}
	}
}

// hourBack is how far back a timeline goes.
const hourBack = time.Hour

const mostEvents = 1000

func sentence(e timeline.Event) string {
	switch e.Kind {
	case timeline.Term:
		switch {
		case e.Count == 1:
			return e.Instance + " leads one more partition"
		case e.Count > 1:
			return fmt.Sprintf("%s leads %d more partitions", e.Instance, e.Count)
		}
		return fmt.Sprintf("%s leads, term %d", e.Instance, e.Epoch)
	case timeline.Eviction:
		if e.Instance == "" {
			return fmt.Sprintf("%d orphans taken by %s", e.Count, e.Sweep)
		}
		return fmt.Sprintf("%d evicted of %s, which had no heartbeat (%s)", e.Count, e.Instance, e.Sweep)
	case timeline.Alive:
		return e.Instance + " lives"
	case timeline.Death:
		if e.Found { // since when is unknown
			return e.Instance + " fell silent before this term"
		}
		return e.Instance + " fell silent"
	case timeline.Left:
		return e.Instance + " said goodbye"
	case timeline.Hold:
		return "nothing is deleted: " + or(holdMeaning[e.Reason], e.Reason)
	case timeline.HoldOver:
		return "the hold " + e.Reason + " is over"
	case timeline.Pause:
		until := ""
		if !e.Until.IsZero() {
			until = " until " + e.Until.UTC().Format("15:04:05Z")
		}
		return fmt.Sprintf("paused by %s (%s)%s", or(e.Who, "somebody"), or(e.Why, "no reason given"), until)
	case timeline.Resume:
		if e.Who != "" {
			return "resumed by " + e.Who
		}
		return or(e.Why, "resumed")
	case timeline.Resign:
		return fmt.Sprintf("%s resigned (%s)", e.Instance, or(e.Why, "no reason given"))
	}
	return ""
}

// lately is how long an event remains a problem.
const lately = 10 * time.Minute

// loss is an instance that lately fell silent without a goodbye, or lost entries to an eviction.
type loss struct {
	Instance string `json:"instance"`
	// At is when it fell silent, or its first entry was evicted.
	At time.Time `json:"at"`
	// Silent is false if nobody knows since when it is silent.
	Silent  bool `json:"silent"`
	Evicted int  `json:"evicted"`
	Back    bool `json:"back,omitempty"`

	dead bool // its death was seen
	left bool // in good order, after all
}

// losses belong to a life: a death, not a name, has evictions, and only a goodbye without a return
// before it takes one back.
func (w *Watch) losses(now time.Time, instances []Instance) (found []loss) {
	open := map[string]*loss{} // the last of each instance
	var all []*loss
	begin := func(e timeline.Event) *loss {
		l := &loss{Instance: e.Instance, At: e.At}
		open[e.Instance], all = l, append(all, l)
		return l
	}
	left := map[string]bool{}
	for _, e := range w.events {
		if now.Sub(e.At) > lately || e.Instance == "" {
			continue
		}
		l := open[e.Instance]
		switch e.Kind {
		case timeline.Death:
			if l == nil || l.Back || !l.dead { // what was evicted before is of another life
				l = begin(e)
			}
			l.dead, l.Silent, left[e.Instance] = true, !e.Found, false
			if !e.Found {
				l.At = e.At
			}
		case timeline.Eviction:
			if !isEntries(e.Sweep) || left[e.Instance] { // others delete no entries
				continue
			}
			if l == nil {
				l = begin(e)
			}
			l.Evicted += e.Count
		case timeline.Left:
			if left[e.Instance] = true; l != nil && !l.Back {
				l.Back, l.left = true, true
			}
		case timeline.Alive:
			if left[e.Instance] = false; l != nil {
				l.Back = true
			}
		}
	}
	for _, l := range all {
		never := slices.ContainsFunc(instances, func(in Instance) bool { // of a backup that was restored
			return in.ID == l.Instance && in.Alive && !l.Silent && !in.Started.IsZero() && in.Started.Before(l.At)
		})
		if !l.left && !never {
			found = append(found, *l)
		}
	}
	slices.SortFunc(found, func(a, b loss) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Instance, b.Instance))
	})
	return found
}

func (l loss) sentence(now time.Time) string {
	ago := Ago(now.Sub(l.At))
	text := ""
	switch {
	case l.Silent:
		text = fmt.Sprintf("%s fell silent %s, without a goodbye", l.Instance, ago)
	default:
		text = fmt.Sprintf("%s was found silent %s, without a goodbye", l.Instance, ago)
	}
	if l.Back {
		text += ", and lives again"
	}
	return text
}

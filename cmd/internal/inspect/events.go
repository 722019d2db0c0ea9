package inspect

import (
	"context"
	"fmt"
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
// [UnreadError], or if this user may not read them, it lacks what could not be read.
func (r *Reader) Events(ctx context.Context, since time.Time) ([]Event, error) {
	parts, to, err := r.reachParts(ctx)
	if err != nil {
		return nil, err
	}
	now, err := to.parts[0].now(ctx)
	if err != nil {
		return nil, err
	}
	w := r.Watch()
	w.back, w.most, w.survey = now.Sub(since), mostPast, newSurvey(r, parts)
	if err := w.readLogs(ctx, to, now); err != nil {
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

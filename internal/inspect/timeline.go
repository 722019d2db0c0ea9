package inspect

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// Hour is how far back a timeline goes.
const Hour = time.Hour

// mostEvents bounds a timeline: the newest so many.
const mostEvents = 1000

// sentence says an event in plain words.
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
		if e.Found { // nobody knows since when
			return e.Instance + " fell silent before this term"
		}
		return e.Instance + " fell silent"
	case timeline.Left:
		return e.Instance + " stopped, and said goodbye"
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

//go:embed heads.lua
var headsLua string

var headsScript = redis.NewScript(headsLua)

// headsPage is how many records one call of heads.lua reads: a millisecond of Redis' time at most.
const headsPage = 200

// heads returns a page of records, without what they list: XRANGE or XREVRANGE of from and to.
func (r *Reader) heads(ctx context.Context, order, from, to string, now time.Time) ([]Record, error) {
	rows, err := headsScript.RunRO(ctx, r.client, []string{r.keys.Log()}, order, from, to, headsPage).Slice()
	if err != nil {
		return nil, fmt.Errorf("inspect: read the eviction log: %w", err)
	}
	records := make([]Record, 0, len(rows))
	for _, row := range rows {
		v, _ := row.([]any)
		if len(v) == 0 {
			continue
		}
		m := redis.XMessage{ID: fmt.Sprint(v[0]), Values: map[string]any{}}
		for pair := range slices.Chunk(v[1:], 2) {
			if len(pair) == 2 {
				m.Values[fmt.Sprint(pair[0])] = pair[1]
			}
		}
		records = append(records, r.record(m, now))
	}
	return records, nil
}

package inspect

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hour is how far back a timeline goes.
const Hour = time.Hour

// mostEvents bounds a timeline: the newest so many.
const mostEvents = 1000

// Kind says what happened.
type Kind string

// The kinds. What another version of a program writes may be of another kind.
const (
	KindTerm     Kind = "term"      // Instance began to lead
	KindEviction Kind = "eviction"  // what Instance left was swept
	KindDeath    Kind = "death"     // Instance fell silent
	KindLeft     Kind = "left"      // Instance said goodbye
	KindHold     Kind = "hold"      // deletes are held, for Reason
	KindHoldOver Kind = "hold_over" // they are no longer held for Reason
	KindPause    Kind = "pause"     // Who paused, for Why
	KindResume   Kind = "resume"    // the pause was ended, or ran out
	KindResign   Kind = "resign"    // Instance gave up the lease
)

// An Event is something that happened.
type Event struct {
	ID       string    `json:"id"` // stays; an eviction that goes on is told again under its id
	At       time.Time `json:"at"`
	Kind     Kind      `json:"kind"`
	Instance string    `json:"instance,omitempty"` // whom it happened to
	By       string    `json:"by,omitempty"`       // the replica that did it or saw it
	Epoch    uint64    `json:"epoch,omitempty"`    // of the term in which it happened
	Sweep    string    `json:"sweep,omitempty"`    // of an eviction
	Count    int       `json:"count,omitempty"`    // of what was evicted
	Reason   string    `json:"reason,omitempty"`   // of a hold
	Who      string    `json:"who,omitempty"`      // of a pause or its end
	Why      string    `json:"why,omitempty"`      // of a pause
	Until    time.Time `json:"until,omitzero"`     // of a pause; zero: until resumed
	Sentence string    `json:"sentence"`           // in plain words

	told int // the reading that last changed it
}

// say writes the sentence.
func (e *Event) say() {
	switch e.Kind {
	case KindTerm:
		e.Sentence = fmt.Sprintf("%s leads, term %d", e.Instance, e.Epoch)
	case KindEviction:
		e.Sentence = fmt.Sprintf("%d evicted by %s of %s, which had no heartbeat", e.Count, e.Sweep, e.Instance)
		if e.Instance == "" {
			e.Sentence = fmt.Sprintf("%d orphans taken by %s", e.Count, e.Sweep)
		}
	case KindDeath:
		e.Sentence = e.Instance + " fell silent"
	case KindLeft:
		e.Sentence = e.Instance + " stopped, and said goodbye"
	case KindHold:
		e.Sentence = "nothing is deleted: " + cmp.Or(holdMeaning[e.Reason], e.Reason)
	case KindHoldOver:
		e.Sentence = "the hold " + e.Reason + " is over"
	case KindPause:
		e.Sentence = fmt.Sprintf("paused by %s (%s)", or(e.Who, "somebody"), or(e.Why, "no reason given"))
		if !e.Until.IsZero() {
			e.Sentence += " until " + e.Until.UTC().Format("15:04:05Z")
		}
	case KindResume:
		e.Sentence = "resumed"
		if e.Who != "" {
			e.Sentence += " by " + e.Who
		}
	case KindResign:
		e.Sentence = e.Instance + " resigned"
	}
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
		records = append(records, record(m, now))
	}
	return records, nil
}

// happened reads what stands in the timeline's own stream behind an id.
func (r *Reader) happened(ctx context.Context, after string) ([]Event, error) {
	page, err := r.client.XRangeN(ctx, r.keys.Timeline(), "("+after, "+", mostEvents).Result()
	if err != nil {
		return nil, fmt.Errorf("inspect: read the timeline: %w", err)
	}
	events := make([]Event, 0, len(page))
	for _, m := range page {
		text := func(field string) string { s, _ := m.Values[field].(string); return s }
		e := Event{
			ID: m.ID, At: at(text("at")), Kind: Kind(text("kind")), Instance: text("instance"), By: text("by"),
			Reason: text("reason"), Who: text("who"), Why: text("why"), Until: at(text("until")),
		}
		e.Epoch, _ = strconv.ParseUint(text("epoch"), 10, 64)
		events = append(events, e)
	}
	return events, nil
}

// at reads a time in ms; zero: it is none.
func at(ms string) (t time.Time) {
	if n, err := strconv.ParseInt(ms, 10, 64); err == nil && n > 0 {
		t = time.UnixMilli(n)
	}
	return t
}

package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

// Hold is why nothing is deleted.
type Hold struct {
	// Reason is one of the runbook's: gap, restarted, settings, self_check; or paused.
	Reason   string    `json:"reason"`
	Until    time.Time `json:"until,omitzero"`
	Since    time.Time `json:"since,omitzero"` // unknown for a pause
	Who      string    `json:"who,omitempty"`
	Why      string    `json:"why,omitempty"`
	Sentence string    `json:"sentence"`
	Runbook  string    `json:"runbook"`
	Young    bool      `json:"young,omitempty"`
}

// Witness is how long Redis has been observed.
type Witness struct {
	Since    time.Time     `json:"since,omitzero"` // without a hold
	LastTick time.Time     `json:"last_tick,omitzero"`
	LastHold time.Time     `json:"last_hold,omitzero"`
	Reason   string        `json:"reason,omitempty"`
	Evicted  uint64        `json:"evicted_total"`
	TTL      time.Duration `json:"-"` // the majority's, or the last to tick's
	Interval time.Duration `json:"-"`

	gap, need time.Duration
}

// heard allows for a tick slightly newer than now.
func (w Witness) heard(now time.Time) bool {
	since := now.Sub(w.LastTick)
	return !w.LastTick.IsZero() && since <= w.gap && since > -clockWarn
}

func (r *Reader) witness(ctx context.Context) (Witness, error) {
	is, err := guard.ReadWitness(ctx, r.client, r.keys)
	if wrongType(err) { // the next tick replaces it
		return Witness{}, nil
	}
	if err != nil {
		return Witness{}, fmt.Errorf("inspect: %w", err)
	}
	w := Witness{
		Since: is.Since, LastTick: is.LastTick, LastHold: is.LastHold, Reason: is.Reason, Evicted: is.Evicted,
		gap: is.Gap, need: is.Grace,
	}
	if is.Grace > 0 {
		w.TTL = is.Grace - guard.Timing{}.Grace()
		w.Interval = max(0, w.TTL-2*w.gap) // while replicas disagree, the gap may be another's
	}
	return w, nil
}

// hold prefers a pause, since it ends last.
// free is how long nothing has been held, from the end of the last hold.
func (w Witness) free(now time.Time) time.Duration { return max(0, now.Sub(w.Since.Add(w.need))) }

// holdOf prefers a pause, since it ends last. It promises an end only while ticks land and the
// cause is over.
func holdOf(pause *janitor.Pause, left time.Duration, w Witness, now time.Time, ticks bool) *Hold {
	if pause != nil {
		h := &Hold{Reason: "paused", Who: pause.Who, Why: pause.Why, Runbook: "paused"}
		until := "until it is resumed"
		if left > 0 {
			h.Until = now.Add(left)
			until = "for " + Short(left) + " more"
		}
		h.Sentence = fmt.Sprintf("paused by %s (%s) %s",
			or(pause.Who, "somebody"), or(pause.Why, "no reason given"), until)
		return h
	}
	if w.Since.IsZero() || now.Sub(w.Since) >= w.need {
		return nil
	}
	h := &Hold{Reason: w.Reason, Since: w.LastHold, Until: w.Since.Add(w.need), Runbook: w.Reason}
	meaning, known := holdMeaning[w.Reason]
	if !known {
		h.Runbook = "unknown"
		meaning = "a newer version, or somebody, gave a reason that this version does not know"
	}
	switch {
	case !ticks:
		h.Sentence = fmt.Sprintf("%s; it ends %s after Redis is listened to again", meaning, Short(w.need))
	case w.Reason != "gap" && now.Sub(w.LastHold) <= 2*w.gap: // each replica ticks once per GAP
		h.Sentence = fmt.Sprintf("%s; it ends %s after that is over, and it was so %s", meaning, Short(w.need),
			Ago(now.Sub(w.LastHold)))
	default:
		h.Sentence = fmt.Sprintf("%s; nothing is deleted for %s more", meaning, Short(h.Until.Sub(now)))
	}
	return h
}

var holdMeaning = map[string]string{
	"gap":        "Redis was not observed for a while, or lost its keys, or observation has just started",
	"restarted":  "Redis was restarted or failed over, so silence proves nothing yet",
	"settings":   "replicas disagree about HEARTBEAT_INTERVAL or HEARTBEAT_TTL: set the same on all",
	"self_check": "the leader's own heartbeat was missing: check what deletes keys, and whether memory is full",
}

const longestPause = 64 << 10

// pause returns 0 for a pause until it is resumed. Any value written by hand is one too.
func (r *Reader) pause(ctx context.Context) (*janitor.Pause, time.Duration, error) {
	key := r.keys.Paused()
	p := r.client.Pipeline()
	left, value := p.PTTL(ctx, key), beginning(ctx, p, key, longestPause)
	if err := exec(ctx, p, "the pause"); err != nil || left.Val() < -1 {
		return nil, 0, err
	}
	text := value.Val()
	if wrongType(value.Err()) {
		text = "the key is of another type"
	}
	var pause janitor.Pause
	if json.Unmarshal([]byte(text), &pause) != nil {
		pause = janitor.Pause{Why: text}
	}
	return &pause, max(0, left.Val()), nil
}

func or(text, empty string) string {
	if text == "" {
		return empty
	}
	return text
}

// Package timeline keeps events of a fleet, for people, that the eviction log does not have, in a
// stream of bounded size.
//
//	err := timeline.Add(ctx, client, layout.Timeline(), timeline.Event{Kind: timeline.Death, Instance: id})
//	events, err := timeline.Read(ctx, client, layout.Timeline(), "0-0")
//
// No delete rests on it.
package timeline

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Kind is what happened.
type Kind string

// Other versions may write others.
const (
	Term     Kind = "term"     // Instance began to lead
	Eviction Kind = "eviction" // Instance's entries were swept
	Alive    Kind = "alive"    // Instance lives, after it was dead
	Death    Kind = "death"    // fell silent
	Left     Kind = "left"     // in good order
	Hold     Kind = "hold"     // for Reason
	HoldOver Kind = "hold_over"
	Pause    Kind = "pause"  // Who paused, for Why
	Resume   Kind = "resume" // ended, or expired
	Resign   Kind = "resign" // gave up the lease
)

// Event is something that happened to a fleet.
type Event struct {
	ID       string    `json:"id"` // fixed; an eviction that continues is reported again under its id
	At       time.Time `json:"at"` // the server's clock
	Kind     Kind      `json:"kind"`
	Instance string    `json:"instance,omitempty"`
	By       string    `json:"by,omitempty"`     // did it or saw it
	Epoch    uint64    `json:"epoch,omitempty"`  // 0: unknown
	Sweep    string    `json:"sweep,omitempty"`  // of an eviction
	Count    int       `json:"count,omitempty"`  // entries; for a term, partitions
	Reason   string    `json:"reason,omitempty"` // of a hold
	Who      string    `json:"who,omitempty"`    // of a pause or its end
	Why      string    `json:"why,omitempty"`
	Until    time.Time `json:"until,omitzero"` // zero: until resumed
	Sentence string    `json:"sentence"`       // added by a reader
	// Found means that it was so when a term began, and may have been reported before.
	Found bool `json:"-"`
}

const most = 1000

const longest = 200

// Add makes one round trip. Events without At happen now. ID, Epoch, Sweep, Count and Sentence are
// not stored. After an error some may have been added.
func Add(ctx context.Context, client redis.UniversalClient, key string, events ...Event) error {
	p := client.Pipeline()
	for _, e := range events {
		p.XAdd(ctx, &redis.XAddArgs{Stream: key, MaxLen: most, Approx: true, Values: e.values()})
	}
	if _, err := p.Exec(ctx); err != nil {
		return fmt.Errorf("timeline: add: %w", err)
	}
	return nil
}

func (e Event) values() []string {
	v := []string{"kind", string(e.Kind)}
	add := func(field, text string) {
		if text != "" {
			v = append(v, field, strings.ToValidUTF8(text[:min(len(text), longest)], ""))
		}
	}
	add("instance", e.Instance)
	add("by", e.By)
	add("reason", e.Reason)
	add("who", e.Who)
	add("why", e.Why)
	add("at", ms(e.At))
	add("until", ms(e.Until))
	if e.Found {
		add("found", "1")
	}
	return v
}

func ms(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixMilli(), 10)
}

// Read returns the newest events after this id, oldest first. Invalid fields are empty.
func Read(ctx context.Context, client redis.UniversalClient, key, after string) ([]Event, error) {
	var page []redis.XMessage
	for from := "+"; len(page) < most; from = "(" + page[len(page)-1].ID {
		part, err := Heads(ctx, client, key, "XREVRANGE", from, "("+after, HeadsPage)
		if err != nil {
			return nil, fmt.Errorf("timeline: read: %w", err)
		}
		page = append(page, part...)
		if len(part) < HeadsPage {
			break
		}
	}
	slices.Reverse(page)
	events := make([]Event, 0, len(page))
	for _, m := range page {
		text := func(field string) string { s, _ := m.Values[field].(string); return s }
		added, _, _ := strings.Cut(m.ID, "-")
		events = append(events, Event{
			ID: m.ID, At: at(cmp.Or(text("at"), added)), Kind: Kind(text("kind")), Instance: text("instance"),
			By: text("by"), Reason: text("reason"), Who: text("who"), Why: text("why"),
			Until: at(text("until")),
			Found: text("found") != "",
		})
	}
	return events, nil
}

func at(ms string) (t time.Time) {
	if n, err := strconv.ParseInt(ms, 10, 64); err == nil && n > 0 {
		t = time.UnixMilli(n)
	}
	return t
}

//go:embed heads.lua
var headsLua string

var headsScript = redis.NewScript(headsLua)

// HeadsPage is at most a millisecond of Redis' time.
const HeadsPage = 200

// Heads returns up to most records, without fields of more than 256 bytes. order is XRANGE or
// XREVRANGE, of from and to.
func Heads(
	ctx context.Context, client redis.UniversalClient, key, order, from, to string, most int,
) ([]redis.XMessage, error) {
	rows, err := headsScript.RunRO(ctx, client, []string{key}, order, from, to, most).Slice()
	if err != nil {
		return nil, err
	}
	records := make([]redis.XMessage, 0, len(rows))
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
		records = append(records, m)
	}
	return records, nil
}

// Minute is what a fleet had At a time.
type Minute struct {
	At      time.Time // the server's clock
	Entries int64
	Living  int // replicas
}

// Minutes is enough for an hour, and for leaders that overlap.
const Minutes = 120

// AddMinute adds one that ends now.
func AddMinute(ctx context.Context, client redis.UniversalClient, key string, m Minute) error {
	err := client.XAdd(ctx, &redis.XAddArgs{Stream: key, MaxLen: Minutes, Approx: true,
		Values: []any{"entries", m.Entries, "living", m.Living}}).Err()
	if err != nil {
		return fmt.Errorf("timeline: add a minute: %w", err)
	}
	return nil
}

// ReadMinutes returns the hour before now, oldest first, without invalid ones.
func ReadMinutes(ctx context.Context, client redis.UniversalClient, key string, now time.Time) ([]Minute, error) {
	since := strconv.FormatInt(now.Add(-time.Hour).UnixMilli(), 10)
	page, err := Heads(ctx, client, key, "XREVRANGE", "+", since, Minutes)
	if err != nil {
		return nil, fmt.Errorf("timeline: read minutes: %w", err)
	}
	slices.Reverse(page)
	var all []Minute
	for _, rec := range page {
		number := func(field string) int64 {
			text, _ := rec.Values[field].(string)
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
		added, _, _ := strings.Cut(rec.ID, "-")
		m := Minute{at(added), number("entries"), int(max(0, number("living")))}
		if m.Entries >= 0 && !m.At.IsZero() {
			all = append(all, m)
		}
	}
	return all, nil
}

package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// Record is an evicted batch, or the beginning of a term.
type Record struct {
	ID        string `json:"id"` // <epoch>-<n>, in its partition
	Partition *int   `json:"partition,omitempty"`

	At     time.Time `json:"at,omitzero"`
	Epoch  uint64    `json:"epoch"`
	Leader string    `json:"leader"`
	// Term is the lease's token where a term begins; the fields below are then empty.
	Term    string   `json:"term,omitempty"`
	Owner   string   `json:"owner,omitempty"`
	Sweep   string   `json:"sweep,omitempty"`
	Count   int      `json:"count"`
	Reowned int      `json:"reowned,omitempty"` // kept: they named somebody else
	Items   []string `json:"items,omitempty"`
}

// meanwhile exceeds the duration of a reading, whose clock is read first.
const meanwhile = 10 * time.Second

// began returns nothing for an epoch that is well ahead of the clock.
func began(epoch uint64, now time.Time) (t time.Time) {
	at := time.UnixMicro(int64(epoch))
	switch {
	case epoch == 0, epoch>>63 != 0, at.After(now.Add(meanwhile)), at.Year() < 2000:
		return t
	case at.After(now): // while this was read
		return now
	}
	return at
}

func epochOf(id string) uint64 {
	epoch, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseUint(epoch, 10, 64)
	return n
}

func record(m redis.XMessage, now time.Time) Record {
	text := func(field string) string { s, _ := m.Values[field].(string); return s }
	r := Record{ID: m.ID, Leader: text("leader"), Term: text("term"), Owner: text("owner"), Sweep: text("sweep")}
	r.Epoch = epochOf(m.ID)
	r.Count, _ = strconv.Atoi(text("count"))
	r.Reowned, _ = strconv.Atoi(text("reowned"))
	if ms, err := strconv.ParseInt(text("at"), 10, 64); err == nil {
		r.At = time.UnixMilli(ms)
	} else if r.Term != "" {
		r.At = began(r.Epoch, now)
	}
	for _, field := range itemFields {
		if v := text(field); v != "" && json.Unmarshal([]byte(v), &r.Items) == nil {
			break
		}
	}
	return r
}

func (r *Reader) record(m redis.XMessage, now time.Time) Record {
	rec := record(m, now)
	if r.single {
		rec.Partition = &r.number
	}
	return rec
}

var itemFields = []string{"imeis", "keys", "intents", "mitras", "commands"}

// logPage is about a megabyte at most, with the default batch.
const logPage = 100

// Filter selects records; empty fields match all.
type Filter struct {
	Owner, Sweep string
	Since        time.Time
	Limit        int // the newest; 0: all
}

func (f Filter) wants(r Record) bool {
	return (f.Owner == "" || f.Owner == r.Owner) && (f.Sweep == "" || f.Sweep == r.Sweep)
}

// Log returns records of the eviction log, oldest first.
func (r *Reader) Log(ctx context.Context, f Filter) ([]Record, error) {
	records, _, err := r.LogAfter(ctx, "", f)
	return records, err
}

const endOf = " "

// unreadEnd marks a log whose server did not answer. It is followed from the server's return on.
const unreadEnd = "?"

// LogAfter returns the records after an end, oldest first, and the new end. Without an end it
// returns the newest by f's Since and Limit, which it ignores otherwise. With an [UnreadError] the
// records are those of the partitions that answer.
func (r *Reader) LogAfter(ctx context.Context, end string, f Filter) (records []Record, newEnd string, err error) {
	parts, to, err := r.reachParts(ctx)
	if err != nil {
		return nil, end, err
	}
	now, err := to.parts[0].now(ctx)
	if err != nil {
		return nil, end, err
	}
	ends := slices.Repeat([]string{unreadEnd}, len(parts))
	if end != "" {
		if ends = strings.Split(end, endOf); len(ends) != len(parts) {
			return nil, end, fmt.Errorf("inspect: the fleet had %d partitions, and now has %d", len(ends), len(parts))
		}
	}
	found, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (records []Record, err error) {
		of := &ends[part.number]
		if end != "" && *of != unreadEnd {
			records, *of, err = part.logAfter(ctx, *of, f, now)
			return records, err
		}
		records, *of, err = part.newest(ctx, f, now)
		if end != "" { // only what follows
			records = nil
		}
		return records, err
	})
	records = slices.Concat(found...)
	if len(parts) > 1 {
		slices.SortStableFunc(records, func(a, b Record) int { return a.At.Compare(b.At) })
	}
	if over := len(records) - f.Limit; end == "" && f.Limit > 0 && over > 0 {
		records = records[over:]
	}
	return records, strings.Join(ends, endOf), cmp.Or(err, to.err())
}

// newest returns the records that f wants, and the log's end.
func (r *Reader) newest(ctx context.Context, f Filter, now time.Time) (records []Record, end string, err error) {
	end = "0-0"
	for rec, err := range r.walk(ctx, "", now, logPage) {
		if err != nil {
			return nil, "", err
		}
		if end == "0-0" {
			end = rec.ID
		}
		if !f.Since.IsZero() && !rec.At.IsZero() && rec.At.Before(f.Since) || f.Limit > 0 && len(records) >= f.Limit {
			break
		}
		if f.wants(rec) {
			records = append(records, rec)
		}
	}
	slices.Reverse(records)
	return records, end, nil
}

func (r *Reader) logAfter(
	ctx context.Context, id string, f Filter, now time.Time,
) (records []Record, newest string, err error) {
	for rec, err := range r.walk(ctx, id, now, logPage) {
		if err != nil {
			return nil, id, err
		}
		if id = rec.ID; f.wants(rec) {
			records = append(records, rec)
		}
	}
	return records, id, nil
}

// walk yields the records after an id, the oldest first, or, without one, all, the newest first.
// Pages of headsPage are without lists.
func (r *Reader) walk(ctx context.Context, after string, now time.Time, size int) iter.Seq2[Record, error] {
	order, from, to := "XRANGE", "("+after, "+"
	if after == "" {
		order, from, to = "XREVRANGE", "+", "-"
	}
	return func(yield func(Record, error) bool) {
		for {
			page, err := r.page(ctx, size, order, from, to, now)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, rec := range page {
				if !yield(rec, nil) {
					return
				}
				from = "(" + rec.ID
			}
			if len(page) < size {
				return
			}
		}
	}
}

func (r *Reader) page(
	ctx context.Context, size int, order, from, to string, now time.Time,
) (records []Record, err error) {
	var page []redis.XMessage
	switch {
	case size != logPage:
		if page, err = timeline.Heads(ctx, r.client, r.keys.Log(), order, from, to, size); wrongType(err) {
			err = nil
		}
	case order == "XRANGE":
		page, err = r.client.XRangeN(ctx, r.keys.Log(), from, to, logPage).Result()
	default:
		page, err = r.client.XRevRangeN(ctx, r.keys.Log(), from, to, logPage).Result()
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: read the eviction log: %w", err)
	}
	for _, m := range page {
		records = append(records, r.record(m, now))
	}
	return records, nil
}

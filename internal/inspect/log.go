package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Record is one of the eviction log: a batch that was evicted, or the beginning of a term.
type Record struct {
	ID     string    `json:"id"` // <epoch>-<n>
	At     time.Time `json:"at,omitzero"`
	Epoch  uint64    `json:"epoch"`
	Leader string    `json:"leader"`
	// Term is the lease's token where the record begins a term; the fields below are then empty.
	Term    string   `json:"term,omitempty"`
	Owner   string   `json:"owner,omitempty"` // whom the leader found dead
	Sweep   string   `json:"sweep,omitempty"`
	Count   int      `json:"count"`             // of what went
	Reowned int      `json:"reowned,omitempty"` // of what was kept, since it named somebody else
	Items   []string `json:"items,omitempty"`   // what went
}

// began is when a term began, by its epoch; zero: the epoch had to be drawn higher than the clock.
func began(epoch uint64, now time.Time) (t time.Time) {
	at := time.UnixMicro(int64(epoch))
	if epoch == 0 || epoch>>63 != 0 || at.After(now) || at.Year() < 2000 {
		return t
	}
	return at
}

// epochOf is the epoch of a record's id.
func epochOf(id string) uint64 {
	epoch, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseUint(epoch, 10, 64) // what is no number is no epoch
	return n
}

// record reads a record of the log. What is not understood is left empty.
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

// itemFields are the names under which the project's sweeps list what went. A sweep of somebody
// else may name its own, which is then not read.
var itemFields = []string{"imeis", "keys", "intents", "mitras", "commands"}

// logPage is how many records one call reads: about a megabyte at most, with the default batch.
const logPage = 100

// newest reads the log from the newest record to the oldest.
func (r *Reader) newest(ctx context.Context, now time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for to := "+"; ; {
			page, err := r.client.XRevRangeN(ctx, r.keys.Log(), to, "-", logPage).Result()
			if err != nil {
				yield(Record{}, fmt.Errorf("inspect: read the eviction log: %w", err))
				return
			}
			for _, m := range page {
				if !yield(record(m, now), nil) {
					return
				}
			}
			if len(page) < logPage {
				return
			}
			to = "(" + page[len(page)-1].ID
		}
	}
}

// A Filter says which records of the log are wanted. Empty fields are for all.
type Filter struct {
	Owner, Sweep string
	Since        time.Time
	Limit        int // the newest so many; 0: all
}

func (f Filter) wants(r Record) bool {
	return (f.Owner == "" || f.Owner == r.Owner) && (f.Sweep == "" || f.Sweep == r.Sweep)
}

// Log returns records of the eviction log, the oldest first.
func (r *Reader) Log(ctx context.Context, f Filter) ([]Record, error) {
	records, _, err := r.LogUpTo(ctx, f)
	return records, err
}

// LogUpTo is Log, and returns the id of the newest record, from which LogAfter goes on.
func (r *Reader) LogUpTo(ctx context.Context, f Filter) (records []Record, newest string, err error) {
	now, err := r.now(ctx)
	if err != nil {
		return nil, "", err
	}
	records, newest = []Record{}, "0-0"
	for rec, err := range r.newest(ctx, now) {
		if err != nil {
			return nil, "", err
		}
		if newest == "0-0" {
			newest = rec.ID
		}
		if !f.Since.IsZero() && !rec.At.IsZero() && rec.At.Before(f.Since) {
			break // older ones are older still
		}
		if f.wants(rec) {
			if records = append(records, rec); len(records) == f.Limit {
				break
			}
		}
	}
	slices.Reverse(records)
	return records, newest, nil
}

// LogAfter returns the records behind the one with this id, the oldest first, and the id from which
// to go on. The filter's Since and Limit do not count.
func (r *Reader) LogAfter(
	ctx context.Context, id string, f Filter,
) (records []Record, newest string, err error) {
	now, err := r.now(ctx)
	if err != nil {
		return nil, id, err
	}
	for {
		page, err := r.client.XRangeN(ctx, r.keys.Log(), "("+id, "+", logPage).Result()
		if err != nil {
			return nil, id, fmt.Errorf("inspect: read the eviction log: %w", err)
		}
		for _, m := range page {
			if rec := record(m, now); f.wants(rec) {
				records = append(records, rec)
			}
			id = m.ID
		}
		if len(page) < logPage {
			return records, id, nil
		}
	}
}

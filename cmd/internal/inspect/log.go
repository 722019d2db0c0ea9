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

func (r *Reader) newest(ctx context.Context, from string, size int, now time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for to := from; ; {
			page, err := r.client.XRevRangeN(ctx, r.keys.Log(), to, "-", int64(size)).Result()
			if err != nil {
				yield(Record{}, fmt.Errorf("inspect: read the eviction log: %w", err))
				return
			}
			for _, m := range page {
				if !yield(r.record(m, now), nil) {
					return
				}
			}
			if len(page) < size {
				return
			}
			to = "(" + page[len(page)-1].ID
		}
	}
}

// newest merges logs, from these ids backwards; nil: the end.
func newest(ctx context.Context, parts []*Reader, from []string, now time.Time) iter.Seq2[Record, error] {
	if len(parts) == 1 {
		return parts[0].newest(ctx, "+", logPage, now)
	}
	return func(yield func(Record, error) bool) {
		size := max(2, logPage/len(parts)) // all together are about one page
		var logs []source
		for k, part := range parts {
			begin := "+"
			if from != nil {
				begin = from[k]
			}
			next, stop := iter.Pull2(part.newest(ctx, begin, size, now))
			defer stop()
			if rec, err, ok := next(); err != nil {
				yield(rec, err)
				return
			} else if ok {
				logs = append(logs, source{rec, next})
			}
		}
		for len(logs) > 0 {
			i := 0
			for j := range logs {
				if logs[j].head.At.After(logs[i].head.At) {
					i = j
				}
			}
			if !yield(logs[i].head, nil) {
				return
			}
			rec, err, ok := logs[i].next()
			switch {
			case err != nil:
				yield(rec, err)
				return
			case ok:
				logs[i].head = rec
			default:
				logs = slices.Delete(logs, i, i+1)
			}
		}
	}
}

type source struct {
	head Record
	next func() (Record, error, bool)
}

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
	records, _, err := r.LogUpTo(ctx, f)
	return records, err
}

// LogUpTo also returns the end of the log, for LogAfter. With an [UnreadError] the records are
// those of the partitions that answer.
func (r *Reader) LogUpTo(ctx context.Context, f Filter) (records []Record, end string, err error) {
	parts, to, err := r.reachParts(ctx)
	if err != nil {
		return nil, "", err
	}
	now, err := to.parts[0].now(ctx)
	if err != nil {
		return nil, "", err
	}
	var from []string
	if len(parts) > 1 {
		if from, err = each(ctx, to.parts, newestID); err != nil {
			return nil, "", err
		}
		ends := slices.Repeat([]string{unreadEnd}, len(parts))
		for i, part := range to.parts {
			ends[part.number] = from[i]
		}
		end = strings.Join(ends, endOf)
	}
	records = []Record{}
	for rec, err := range newest(ctx, to.parts, from, now) {
		if err != nil {
			return nil, "", err
		}
		if end == "" {
			end = rec.ID
		}
		if !f.Since.IsZero() && !rec.At.IsZero() && rec.At.Before(f.Since) {
			break
		}
		if f.wants(rec) {
			if records = append(records, rec); len(records) == f.Limit {
				break
			}
		}
	}
	slices.Reverse(records)
	return records, or(end, "0-0"), to.err()
}

const endOf = " "

// unreadEnd marks a log whose server did not answer. It is followed from the server's return on.
const unreadEnd = "?"

func newestID(ctx context.Context, part *Reader) (string, error) {
	page, err := part.client.XRevRangeN(ctx, part.keys.Log(), "+", "-", 1).Result()
	if err != nil {
		return "", fmt.Errorf("inspect: read the eviction log: %w", err)
	}
	if len(page) == 0 {
		return "0-0", nil
	}
	return page[0].ID, nil
}

// LogAfter returns the records after an end, oldest first, and the new end. It ignores the filter's
// Since and Limit. With an [UnreadError] the records are those of the partitions that answer.
func (r *Reader) LogAfter(
	ctx context.Context, end string, f Filter,
) (records []Record, newEnd string, err error) {
	parts, to, err := r.reachParts(ctx)
	if err != nil {
		return nil, end, err
	}
	now, err := to.parts[0].now(ctx)
	if err != nil {
		return nil, end, err
	}
	ends := strings.Split(end, endOf)
	if len(ends) != len(parts) {
		return nil, end, fmt.Errorf("inspect: the fleet had %d partitions, and now has %d", len(ends), len(parts))
	}
	found, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (records []Record, err error) {
		if ends[part.number] == unreadEnd {
			ends[part.number], err = newestID(ctx, part)
			return nil, err
		}
		records, ends[part.number], err = part.logAfter(ctx, ends[part.number], f, now)
		return records, err
	})
	if records = slices.Concat(found...); len(parts) > 1 {
		slices.SortStableFunc(records, func(a, b Record) int { return a.At.Compare(b.At) })
	}
	return records, strings.Join(ends, endOf), cmp.Or(err, to.err())
}

func (r *Reader) logAfter(
	ctx context.Context, id string, f Filter, now time.Time,
) (records []Record, newest string, err error) {
	for {
		page, err := r.client.XRangeN(ctx, r.keys.Log(), "("+id, "+", logPage).Result()
		if err != nil {
			return nil, id, fmt.Errorf("inspect: read the eviction log: %w", err)
		}
		for _, m := range page {
			if rec := r.record(m, now); f.wants(rec) {
				records = append(records, rec)
			}
			id = m.ID
		}
		if len(page) < logPage {
			return records, id, nil
		}
	}
}

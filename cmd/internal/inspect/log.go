package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
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

func (f Filter) before(r Record) bool {
	return !f.Since.IsZero() && !r.At.IsZero() && r.At.Before(f.Since)
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
// returns the newest by f's Since and Limit, which it ignores otherwise. With an error that is
// [Partial] the records are those of the partitions that answer.
func (r *Reader) LogAfter(ctx context.Context, end string, f Filter) (records []Record, newEnd string, err error) {
	to, err := r.reach(ctx)
	if err != nil {
		return nil, end, err
	}
	now := to.now(to.parts[0])
	ends := slices.Repeat([]string{unreadEnd}, len(to.all))
	if end != "" {
		if ends = strings.Split(end, endOf); len(ends) != len(to.all) {
			return nil, end, fmt.Errorf("inspect: the fleet had %d partitions, and now has %d", len(ends), len(to.all))
		}
	}
	records, err = to.records(ctx, func(ctx context.Context, part *Reader) ([]Record, error) {
		of, wanted := &ends[part.number], 0
		after := strings.TrimPrefix(*of, unreadEnd)
		all, err := part.read(ctx, after, now, logPage, func(rec Record) bool {
			if f.wants(rec) {
				wanted++
			}
			return after == "" && (f.before(rec) || f.Limit > 0 && wanted >= f.Limit)
		})
		switch n := len(all); {
		case err != nil:
			return nil, err
		case n > 0:
			*of = all[n-1].ID
		case after == "":
			*of = "0-0"
		}
		if end != "" && after == "" { // only what follows
			return nil, nil
		}
		return slices.DeleteFunc(all, func(rec Record) bool { return !f.wants(rec) || end == "" && f.before(rec) }), nil
	})
	if over := len(records) - f.Limit; end == "" && f.Limit > 0 && over > 0 {
		records = records[over:]
	}
	return records, strings.Join(ends, endOf), cmp.Or(err, to.err())
}

// records are those of all parts that answer, the oldest first.
func (f reached) records(
	ctx context.Context, read func(ctx context.Context, part *Reader) ([]Record, error),
) ([]Record, error) {
	found, err := each(ctx, f.parts, read)
	records := slices.Concat(found...)
	if len(f.all) > 1 {
		slices.SortStableFunc(records, func(a, b Record) int { return a.At.Compare(b.At) })
	}
	return records, err
}

// read returns the records after an id, or, without one, the newest, up to one that is enough; the
// oldest first.
func (r *Reader) read(
	ctx context.Context, after string, now time.Time, size int, enough func(Record) bool,
) (records []Record, err error) {
	for rec, err := range r.walk(ctx, after, now, size) {
		if err != nil {
			return nil, err
		}
		if records = append(records, rec); enough(rec) {
			break
		}
	}
	if after == "" {
		slices.Reverse(records)
	}
	return records, nil
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

const (
	// mostNamed bounds a history's memory, at 24 bytes each: twice what a log of 10 MB names.
	mostNamed = 1 << 20
	// mostTold are an id's newest records.
	mostTold = 100
)

// history remembers which records of a log name which ids, so that a question reads the records
// since the last one, and those that name its id, and not the log.
type history struct {
	mu    sync.Mutex
	seed  maphash.Seed
	after string    // the newest record
	named []mention // in the order of their records
}

type mention struct {
	hash   uint64
	record string
}

// of returns the newest records that name id, newest first, and the time of the oldest record.
func (h *history) of(
	ctx context.Context, r *Reader, id string, now time.Time,
) (found []Record, oldest time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.follow(ctx, r, now); err != nil {
		return nil, oldest, err
	}
	first, err := r.page(ctx, 1, "XRANGE", "-", "+", now)
	if err != nil {
		return nil, oldest, err
	}
	if len(first) > 0 {
		oldest = first[0].At
	}
	hash, p, last := maphash.String(h.seed, id), r.client.Pipeline(), ""
	for _, n := range slices.Backward(h.named) {
		if n.hash == hash && n.record != last && p.Len() < mostTold {
			last = n.record
			p.XRange(ctx, r.keys.Log(), last, last)
		}
	}
	cmds, err := p.Exec(ctx)
	if err != nil {
		return nil, oldest, fmt.Errorf("inspect: read the eviction log: %w", err)
	}
	found = []Record{}
	for _, c := range cmds {
		for _, m := range c.(*redis.XMessageSliceCmd).Val() {
			if rec := r.record(m, now); slices.Contains(rec.Items, id) {
				rec.Items = nil
				found = append(found, rec)
			}
		}
	}
	return found, oldest, nil
}

// follow reads what was added to the log, or all of it if it is not the log it was.
func (h *history) follow(ctx context.Context, r *Reader, now time.Time) error {
	after := cmp.Or(h.after, "0-0")
	is, err := r.page(ctx, 1, "XRANGE", after, after, now)
	if err != nil {
		return err
	}
	if len(is) == 0 {
		h.seed, h.after, h.named = maphash.MakeSeed(), "0-0", nil
	}
	for rec, err := range r.walk(ctx, h.after, now, logPage) {
		if err != nil {
			return err
		}
		h.after = rec.ID
		for _, item := range rec.Items {
			h.named = append(h.named, mention{maphash.String(h.seed, item), rec.ID})
		}
		if len(h.named) > mostNamed {
			h.named = slices.Clone(h.named[len(h.named)-mostNamed*7/8:])
		}
	}
	return nil
}

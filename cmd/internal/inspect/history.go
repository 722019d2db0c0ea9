package inspect

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// mostNamed bounds a history's memory, at eight bytes each.
	mostNamed = 4 << 20
	// mostTold are an id's newest records.
	mostTold = 100
)

// history remembers which records of a log name which ids, so that a question reads the records
// since the last one, and those that name its id, and not the log.
type history struct {
	mu      sync.Mutex
	seed    maphash.Seed
	records []logEntry // oldest first
	first   int        // the number of records[0]
	named   []mention  // in the order of their records
}

type logEntry struct {
	id string
	at time.Time
}

type mention struct{ hash, record uint32 }

// of returns the newest records that name id, newest first, and the time of the oldest record.
func (h *history) of(
	ctx context.Context, r *Reader, id string, now time.Time,
) (found []Record, oldest time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.follow(ctx, r, now); err != nil {
		return nil, oldest, err
	}
	found = []Record{}
	for _, l := range h.records {
		if oldest = l.at; !oldest.IsZero() {
			break
		}
	}
	hash, p, last := h.hash(id), r.client.Pipeline(), -1
	for i := len(h.named) - 1; i >= 0 && p.Len() < mostTold; i-- {
		n := h.named[i]
		if at := int(n.record) - h.first; n.hash == hash && at != last {
			last = at
			p.XRange(ctx, r.keys.Log(), h.records[at].id, h.records[at].id)
		}
	}
	cmds, err := p.Exec(ctx)
	if err != nil {
		return nil, oldest, fmt.Errorf("inspect: read the eviction log: %w", err)
	}
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
	after := "0-0"
	if n := len(h.records); n > 0 {
		after = h.records[n-1].id
		is, err := r.page(ctx, 1, "XRANGE", after, after, now)
		if err != nil {
			return err
		}
		if len(is) == 0 {
			h.records, h.first, h.named, after = nil, 0, nil, "0-0"
		}
	} else {
		h.seed = maphash.MakeSeed()
	}
	for rec, err := range r.walk(ctx, after, now, logPage) {
		if err != nil {
			return err
		}
		h.add(rec)
	}
	return h.trim(ctx, r, now)
}

func (h *history) add(rec Record) {
	number := h.first + len(h.records)
	h.records = append(h.records, logEntry{rec.ID, rec.At})
	for _, item := range rec.Items {
		h.named = append(h.named, mention{h.hash(item), uint32(number)})
	}
	for len(h.named) > mostNamed {
		h.forget(max(1, len(h.records)/8))
	}
}

// trim forgets records that the log no longer has.
func (h *history) trim(ctx context.Context, r *Reader, now time.Time) error {
	first, err := r.page(ctx, 1, "XRANGE", "-", "+", now)
	if err != nil {
		return err
	}
	n := len(h.records)
	if len(first) > 0 {
		n, _ = slices.BinarySearchFunc(h.records, first[0].ID, func(l logEntry, id string) int {
			return compareIDs(l.id, id)
		})
	}
	h.forget(n)
	return nil
}

func (h *history) forget(n int) {
	h.first += n
	h.records = slices.Clone(h.records[n:])
	i := slices.IndexFunc(h.named, func(n mention) bool { return int(n.record) >= h.first })
	if i < 0 {
		i = len(h.named)
	}
	if i > 0 {
		h.named = slices.Clone(h.named[i:])
	}
}

func (h *history) hash(id string) uint32 { return uint32(maphash.String(h.seed, id)) }

// compareIDs compares ids of a stream.
func compareIDs(a, b string) int {
	am, as, _ := strings.Cut(a, "-")
	bm, bs, _ := strings.Cut(b, "-")
	number := func(s string) uint64 { n, _ := strconv.ParseUint(s, 10, 64); return n }
	return cmp.Or(cmp.Compare(number(am), number(bm)), cmp.Compare(number(as), number(bs)))
}

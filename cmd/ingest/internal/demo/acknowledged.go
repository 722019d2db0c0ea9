package demo

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

type record struct {
	imei string
	at   uint64 // Unix milliseconds
}

type acknowledged struct {
	mu      sync.Mutex
	records map[record]struct{}
}

func newAcknowledged() *acknowledged { return &acknowledged{records: make(map[record]struct{})} }

func (a *acknowledged) add(imei string, records []teltonika.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range records {
		a.records[record{imei, records[i].Timestamp}] = struct{}{}
	}
}

// compare returns how many records were acknowledged, how many of them are missing from the
// telemetry stream, and how many entries repeat a record.
func (a *acknowledged) compare(
	ctx context.Context, client redis.UniversalClient,
) (acked, missing, twice int, err error) {
	// A copy: records acknowledged from now on may land before the read position.
	a.mu.Lock()
	left := maps.Clone(a.records)
	a.mu.Unlock()
	acked = len(left)
	seen := make(map[record]struct{})
	for from := "-"; ; {
		page, err := client.XRangeN(ctx, gateway.Stream, from, "+", 1000).Result()
		if err != nil {
			return 0, 0, 0, fmt.Errorf("demo: read telemetry: %w", err)
		}
		for _, m := range page {
			at, _ := strconv.ParseUint(fmt.Sprint(m.Values["ts"]), 10, 64)
			r := record{fmt.Sprint(m.Values["imei"]), at}
			if _, again := seen[r]; again {
				twice++
			}
			seen[r] = struct{}{}
			delete(left, r)
			from = "(" + m.ID
		}
		if len(page) == 0 {
			return acked, len(left), twice, nil
		}
	}
}

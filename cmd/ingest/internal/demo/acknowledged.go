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

// record names a record: no two records of a device have the same time.
type record struct {
	imei string
	at   uint64 // Unix milliseconds
}

// acknowledged are the records that were acknowledged to devices, as the devices know it.
type acknowledged struct {
	mu      sync.Mutex
	records map[record]struct{}
}

func newAcknowledged() *acknowledged { return &acknowledged{records: make(map[record]struct{})} }

// add enters the records of a frame.
func (a *acknowledged) add(imei string, records []teltonika.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range records {
		a.records[record{imei, records[i].Timestamp}] = struct{}{}
	}
}

// compare compares the records with the telemetry stream: how many were acknowledged, how many of
// them are not in the stream, and how many entries of the stream there are beyond one a record.
func (a *acknowledged) compare(
	ctx context.Context, client redis.UniversalClient,
) (acked, missing, twice int, err error) {
	// A copy: what is acknowledged from now on may be behind the place that is read.
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

package demo

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// record names one: no two records of a device have the same time.
type record struct {
	imei string
	at   uint64 // Unix milliseconds
}

// ledger is what was acknowledged to devices, as they know it.
type ledger struct {
	mu      sync.Mutex
	records map[record]struct{}
}

func newLedger() *ledger { return &ledger{records: make(map[record]struct{})} }

// acknowledged enters the records of a frame.
func (l *ledger) acknowledged(imei string, records []teltonika.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range records {
		l.records[record{imei, records[i].Timestamp}] = struct{}{}
	}
}

// against compares the ledger with the telemetry stream: how many records were acknowledged, how
// many of them are not in the stream, and how many entries of the stream there are beyond one for
// each record.
func (l *ledger) against(ctx context.Context, client redis.UniversalClient) (acked, missing, twice int, err error) {
	// Of now: what is acknowledged while the stream is read may be behind the place that is read.
	l.mu.Lock()
	left := maps.Clone(l.records)
	l.mu.Unlock()
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

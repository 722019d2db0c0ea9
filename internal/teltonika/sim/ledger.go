package sim

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// Ledger holds the records that a gateway has acknowledged.
type Ledger struct {
	mu    sync.Mutex
	acked map[record]bool
}

type record struct{ imei, at string }

// Acknowledged is for Config.Acknowledged.
func (l *Ledger) Acknowledged(imei string, records []teltonika.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked == nil {
		l.acked = make(map[record]bool)
	}
	for i := range records {
		l.acked[record{imei, strconv.FormatUint(records[i].Timestamp, 10)}] = true
	}
}

// Check counts the records that have been acknowledged, and those that a telemetry stream lacks.
func (l *Ledger) Check(
	ctx context.Context, client redis.UniversalClient, stream string,
) (acked, missing int, err error) {
	l.mu.Lock() // a copy: what is acknowledged from now on may land before the read position
	left := maps.Clone(l.acked)
	l.mu.Unlock()
	acked = len(left)
	for from := "-"; ; {
		page, err := client.XRangeN(ctx, stream, from, "+", 1000).Result()
		if err != nil {
			return 0, 0, fmt.Errorf("sim: read telemetry: %w", err)
		}
		for _, m := range page {
			delete(left, record{fmt.Sprint(m.Values["imei"]), fmt.Sprint(m.Values["ts"])})
			from = "(" + m.ID
		}
		if len(page) == 0 {
			return acked, len(left), nil
		}
	}
}

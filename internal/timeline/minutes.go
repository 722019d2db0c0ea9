package timeline

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

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

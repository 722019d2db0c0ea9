package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// Count reads the number of partitions, for readers. Without a number in Redis, it is one. An
// impossible number is an error.
func Count(ctx context.Context, client redis.UniversalClient, l guard.Layout) (int, error) {
	text, err := client.Get(ctx, l.Partitions()).Result()
	if errors.Is(err, redis.Nil) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("partition: read the number of partitions: %w", err)
	}
	n, err := strconv.Atoi(text)
	if err != nil || !possible(n) {
		return 0, fmt.Errorf("partition: %s is %.20q, must be a power of two from 1 to %d",
			l.Partitions(), text, guard.MostPartitions)
	}
	return n, nil
}

func possible(n int) bool { return n >= 1 && n <= guard.MostPartitions && n&(n-1) == 0 }

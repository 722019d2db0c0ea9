package guard

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A Fate is what became of a batch.
type Fate struct {
	Answer
	// Settled reports that Answer is final: Done, or Fenced if the batch never ran. Otherwise the
	// lease still holds the batch's token, and the batch may yet land.
	Settled bool
	// Trimmed reports that the log has lost the outcome: nothing is left of the batch's term, not
	// even its opening record.
	Trimmed bool
}

// Fates looks up batches by ID and Token, in one round trip. A batch whose record cannot be read is
// missing from the result, and the error gives the reason. If Redis fails, the result is empty:
// nothing is known of any batch.
func (g *Guard) Fates(ctx context.Context, batches []Batch) (map[BatchID]Fate, error) {
	if len(batches) == 0 {
		return nil, nil
	}
	// One transaction reads the lease and the log at the same instant. With separate reads a batch
	// could land after the log was read, and the lease expire before it is.
	pipe := g.control.TxPipeline()
	lease := pipe.Get(ctx, g.layout.Lease())
	found := make([]*redis.XMessageSliceCmd, len(batches))
	for i, b := range batches {
		// The newest record of the term up to this batch: its own, or an earlier one, which shows
		// that its own was not trimmed.
		opened := BatchID{Epoch: b.ID.Epoch}.String()
		found[i] = pipe.XRevRangeN(ctx, g.layout.Log(), b.ID.String(), opened, 1)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("guard: fates of %d batches: %w", len(batches), err)
	}
	fates := make(map[BatchID]Fate, len(batches))
	var errs []error
	for i, b := range batches {
		fate, err := fateOf(b.ID, found[i], lease.Val() != b.Token)
		if err != nil {
			errs = append(errs, fmt.Errorf("guard: fate of batch %s: %w", b.ID, err))
			continue
		}
		fates[b.ID] = fate
	}
	return fates, errors.Join(errs...)
}

func fateOf(id BatchID, found *redis.XMessageSliceCmd, over bool) (Fate, error) {
	records, err := found.Result()
	if err != nil { // Exec reports only the first error, and a missing lease is not one
		return Fate{}, err
	}
	if len(records) == 0 || records[0].ID != id.String() {
		return Fate{Answer: Answer{Verdict: Fenced}, Settled: over, Trimmed: len(records) == 0}, nil
	}
	deleted, err1 := strconv.Atoi(fmt.Sprint(records[0].Values["count"]))
	reowned, err2 := strconv.Atoi(fmt.Sprint(records[0].Values["reowned"]))
	err = errors.Join(err1, err2)
	if err == nil && (deleted < 0 || reowned < 0 || deleted > 1_000_000) {
		err = errors.New("no batch has so many")
	}
	if err != nil {
		return Fate{}, fmt.Errorf("log record: %w", err)
	}
	note, _ := records[0].Values["note"].(string)
	return Fate{Answer: Answer{Done, deleted, reowned, note, true}, Settled: true}, nil
}

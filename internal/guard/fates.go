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

// Fate looks a batch up by ID and Token.
func (g *Guard) Fate(ctx context.Context, b Batch) (Fate, error) {
	// One transaction reads the lease and the log at the same instant. With separate reads a batch
	// could land after the log was read, and the lease expire before it is.
	pipe := g.control.TxPipeline()
	lease := pipe.Get(ctx, g.layout.Lease())
	// The newest record of the term up to this batch: its own, or an earlier one, which shows that
	// its own was not trimmed.
	opened := BatchID{Epoch: b.ID.Epoch}.String()
	found := pipe.XRevRangeN(ctx, g.layout.Log(), b.ID.String(), opened, 1)
	_, err := pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) { // no lease, which hides a later error
		err = found.Err()
	}
	if err != nil {
		return Fate{}, fmt.Errorf("guard: fate of batch %s: %w", b.ID, err)
	}
	records := found.Val()
	if len(records) == 0 || records[0].ID != b.ID.String() {
		return Fate{
			Answer: Answer{Verdict: Fenced}, Settled: lease.Val() != b.Token, Trimmed: len(records) == 0,
		}, nil
	}
	a, err := recorded(records[0].Values)
	if err != nil {
		return Fate{}, fmt.Errorf("guard: fate of batch %s: log record: %w", b.ID, err)
	}
	return Fate{Answer: a, Settled: true}, nil
}

func recorded(values map[string]any) (Answer, error) {
	deleted, err1 := strconv.Atoi(fmt.Sprint(values["count"]))
	reowned, err2 := strconv.Atoi(fmt.Sprint(values["reowned"]))
	err := errors.Join(err1, err2)
	if err == nil && (deleted < 0 || reowned < 0 || deleted > 1_000_000) {
		err = errors.New("no batch has so many")
	}
	note, _ := values["note"].(string)
	return Answer{Done, deleted, reowned, note, true}, err
}

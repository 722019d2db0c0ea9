package api

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rollcall-redis/rollcall/availability"
)

// changes are when a mitra last went online and offline, which only Postgres knows; null: never.
type changes struct {
	LastOnline  *time.Time `json:"last_online_at"`
	LastOffline *time.Time `json:"last_offline_at"`
}

// changesAgain is for how long Postgres is left alone after it did not answer, so that polls do not
// each wait for it.
const changesAgain = time.Second

// changesAsked are the questions about changes.
type changesAsked struct {
	source Source
	asking *semaphore.Weighted
	failed atomic.Pointer[time.Time]
}

func newChangesAsked(source Source) *changesAsked {
	return &changesAsked{source: source, asking: semaphore.NewWeighted(heartbeatsAtSource)}
}

// of returns nil if Postgres has no such mitra, or cannot be asked.
func (k *changesAsked) of(ctx context.Context, id string) *changes {
	if at := k.failed.Load(); at != nil && time.Since(*at) < changesAgain {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := k.asking.Acquire(ctx, 1)
	if err == nil {
		defer k.asking.Release(1)
		m, asked := k.source.Mitra(ctx, id)
		if err = asked; err == nil {
			return &changes{moment(m.LastOnline), moment(m.LastOffline)}
		}
	}
	if !errors.Is(err, availability.ErrNotFound) && !errors.Is(err, context.Canceled) { // the caller went away
		now := time.Now()
		k.failed.Store(&now)
	}
	return nil
}

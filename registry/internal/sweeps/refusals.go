package sweeps

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// refusals remembers between passes whose batches Redis refuses, so that a lasting refusal is
// logged once.
type refusals struct {
	mu sync.Mutex
	of map[string]refusal // by owner; those of more than refusalsMost are not logged
}

const refusalsMost = 1000

type refusal struct {
	text string
	last time.Time
}

// note takes the result of an owner's batch: the error with which Redis refused it, or nil. A
// different error is logged again.
func (r *refusals) note(log *slog.Logger, owner string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.of[owner]
	switch text := refusalText(err); {
	case err == nil && known:
		delete(r.of, owner)
		log.Info("deleting the dead owner's entries again", "owner", owner)
	case err == nil || !known && len(r.of) >= refusalsMost:
	default:
		if was.text != text {
			log.Warn("server refuses to delete a dead owner's entries; they remain", "owner", owner, "error", err)
		}
		r.of[owner] = refusal{text, time.Now()}
	}
}

// refusalText leaves out the id of the batch, which differs each time.
func refusalText(err error) string {
	var answer redis.Error
	switch {
	case errors.As(err, &answer):
		return answer.Error()
	case err != nil:
		return err.Error()
	}
	return ""
}

// forget drops owners without a recent refusal: they live, or others swept them.
func (r *refusals) forget(after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(_ string, is refusal) bool { return time.Since(is.last) > after })
}

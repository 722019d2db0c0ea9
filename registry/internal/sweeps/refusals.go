package sweeps

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/streak"
)

// refusals remembers between passes whose batches Redis refuses, so that a lasting refusal is
// logged once.
type refusals struct {
	mu sync.Mutex
	of map[string]*refusal // by owner; beyond refusalsMost they share the one of others
}

const (
	refusalsMost = 1000
	others       = "(others)"
)

type refusal struct {
	*streak.Streak
	text string
	last time.Time
}

// note takes the result of an owner's batch: the error with which Redis refused it, or nil. A
// different error is logged again.
func (r *refusals) note(log *slog.Logger, owner string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.of[owner]
	if err == nil {
		if is != nil {
			is.Note(nil)
			delete(r.of, owner)
		}
		return
	}
	text := err.Error()
	var answer redis.Error
	if errors.As(err, &answer) { // without the id of the batch
		text = answer.Error()
	}
	if is == nil && len(r.of) >= refusalsMost {
		owner, is = others, r.of[others]
	}
	if is == nil || is.text != text {
		is = &refusal{text: text, Streak: streak.New(log,
			"server refuses to delete a dead owner's entries; they remain",
			"deleting the dead owner's entries again", "owner", owner)}
		if r.of == nil {
			r.of = map[string]*refusal{}
		}
		r.of[owner] = is
	}
	is.last = time.Now()
	is.Note(err)
}

// forget drops owners without a recent refusal: they live, or others swept them.
func (r *refusals) forget(after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(_ string, is *refusal) bool { return time.Since(is.last) > after })
}

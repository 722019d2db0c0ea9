package registry

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/streak"
)

// refusals knows from pass to pass whose batches Redis refuses, so that the log has a refusal once
// while it lasts.
type refusals struct {
	mu sync.Mutex
	of map[string]*refusal // by owner; those beyond refusalsMost share the one of others
}

const (
	refusalsMost = 1000
	others       = "(others)"
)

type refusal struct {
	*streak.Streak
	text string    // what Redis said
	last time.Time // when it did so last
}

// note takes what became of a batch of an owner: the error with which Redis refused it; nil: it did
// not. Another refusal than the last one is told, too.
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
			"server refuses to delete entries of a dead owner, and they stay",
			"entries of a dead owner are deleted again", "owner", owner)}
		if r.of == nil {
			r.of = map[string]*refusal{}
		}
		r.of[owner] = is
	}
	is.last = time.Now()
	is.Note(err)
}

// forget drops owners of whom nothing was refused for a time: they live, or others swept them.
func (r *refusals) forget(after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(_ string, is *refusal) bool { return time.Since(is.last) > after })
}

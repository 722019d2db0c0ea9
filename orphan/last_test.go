package orphan

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// slowPieces makes the read of pieces take longer than a look counts: answers to TIME are that much
// in the past until the pieces have been read so many times.
type slowPieces struct {
	by   time.Duration
	then func() // after the last of these reads; nil: nothing

	mu    sync.Mutex
	reads int
}

func (*slowPieces) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slowPieces) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return errors.Join(next(ctx, cmd), s.answered(cmd))
	}
}

func (s *slowPieces) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			_ = s.answered(cmd)
		}
		return err
	}
}

func (s *slowPieces) answered(cmd redis.Cmder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch is := cmd.(type) {
	case *redis.TimeCmd:
		if s.reads > 0 {
			is.SetVal(is.Val().Add(-s.by))
		}
	case *redis.Cmd:
		if args := is.Args(); len(args) == 4 && args[0] == "GETRANGE" && args[2] == "0" && args[3] == "65535" {
			if s.reads--; s.reads == 0 && s.then != nil {
				s.then()
			}
		}
	}
	return nil
}

// longRead is a large match that is over, and a rig on which the second read of its pieces, that of
// the delete, ends later than its look counts. It returns what a pass then removes.
func longRead(t *testing.T, p string, w redistest.World, then func(*documents)) (removed int, there bool) {
	source := &documents{all: map[string]Document{
		matchID(1): {"status": "finished", "endedAt": time.Now().Add(-2 * time.Hour)},
		matchID(2): {"status": "ongoing"},
	}}
	r := newRig(t, w.Options, p, source, matches(p))
	r.do("SET", p+"match:"+matchID(1), strings.Repeat("x", 200_000))
	r.set.c.Client.AddHook(&slowPieces{
		by: 2 * max(longest(r.set.apart(0)), leastEvidence), reads: 2, then: func() { then(source) },
	})
	result := r.sweep("matches")
	require.Equal(t, janitor.Done, result.Outcome, result.Detail)
	return result.Removed, r.exists(p + "match:" + matchID(1))
}

// The signs are asked once more after a long read: otherwise each look at what is large would be
// too old at the delete.
func TestWhatTakesLongToReadGoes(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		removed, there := longRead(t, w.Prefix, w, func(*documents) {})
		require.Equal(t, 1, removed)
		require.False(t, there)
	})
}

func TestWhatComesToLifeDuringALongReadStays(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		removed, there := longRead(t, w.Prefix, w, func(d *documents) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.all[matchID(1)] = Document{"status": "ongoing"}
		})
		require.Zero(t, removed)
		require.True(t, there)
	})
}

package orphan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// What is somebody else's is no candidate.
func TestTheBreakerDoesNotCountWhatIsSomebodyElses(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.Only = map[string]string{"user": "integer"}
		r := newRig(t, w.Options, p, nil, rule)
		for i := range 30 {
			r.do("SET", fmt.Sprintf("%ssession:%d", p, i), "old")
			r.do("SET", fmt.Sprintf("%ssession:x%d", p, i), "old")
			r.do("SET", fmt.Sprintf("%ssession:y%d", p, i), "old")
		}
		require.Equal(t, heldMassFailure, r.sweep("sessions").Reason)
	})
}

// refusing is a hook that fails a command that matches, before it is sent.
type refusing struct {
	command, with string
	times, after  int
}

func (*refusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *refusing) hits(cmd redis.Cmder) bool {
	if f.times == 0 || cmd.Name() != f.command || !strings.Contains(fmt.Sprint(cmd.Args()...), f.with) {
		return false
	}
	if f.after--; f.after >= 0 {
		return false
	}
	f.times--
	return true
}

func (f *refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.hits(cmd) {
			err := errors.New("refused by a test")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// A pass that fails behind its marks and before the breaker must not hide from the next how many
// are new.
func TestTheBreakerCountsWhatAFailedPassHasMarked(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		for i := range 40 {
			r.do("SET", fmt.Sprintf("%ssession:%d", p, i), "old")
		}
		fails := &refusing{command: "info", times: 100, after: 1}
		r.set.c.Client.AddHook(fails)
		require.Equal(t, janitor.Failed, r.sweep("sessions").Outcome)
		require.Less(t, fails.times, 100)
		fails.times = 0
		r.pass("sessions", time.Minute)
		result := r.sweep("sessions")
		require.Equal(t, heldMassFailure, result.Reason, result)
		require.True(t, r.exists(p+"session:1"))
	})
}

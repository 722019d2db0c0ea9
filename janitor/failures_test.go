package janitor_test

import (
	"context"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// cut is a hook that, while on, fails each pipeline with a given command.
type cut struct {
	command string
	err     error
	on      atomic.Bool
	met     atomic.Int64 // pipelines failed
}

func (c *cut) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		hit := slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == c.command })
		if !c.on.Load() || !hit {
			return next(ctx, cmds)
		}
		c.met.Add(1)
		for _, cmd := range cmds {
			cmd.SetErr(c.err)
		}
		return c.err
	}
}

func (c *cut) client(cfg *Config)  { cfg.Client.(*redis.Client).AddHook(c) }
func (c *cut) control(cfg *Config) { cfg.Control.(*redis.Client).AddHook(c) }

func TestAPassThatCannotJudgeAnybodyHasFailed(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		heartbeats := &cut{command: "pttl", err: io.ErrUnexpectedEOF}
		r := f.replica("r1", heartbeats.client)
		r.leads()
		f.entries("dead", 3)
		heartbeats.on.Store(true)
		rep := r.sweep(Request{})["registry"]
		require.Equal(t, Failed, rep.Outcome)
		require.Contains(t, rep.Error, io.ErrUnexpectedEOF.Error())
		require.Equal(t, 3, f.left("dead"))

		heartbeats.on.Store(false)
		require.Equal(t, Done, r.sweep(Request{})["registry"].Outcome)
		require.Zero(t, f.left("dead"))
	})
}

func TestAPassThatCannotAskHowMuchThereIsFailsUnlessItIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want Outcome
	}{
		"the connection broke": {io.ErrUnexpectedEOF, Failed},
		"it is refused":        {refusal("NOPERM this user has no permissions to run the 'hlen' command"), Done},
	} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, func(t *testing.T, f *fleet) {
				size := &cut{command: "hlen", err: c.err}
				r := f.replica("r1", size.client)
				r.leads()
				size.on.Store(true)
				require.Equal(t, c.want, r.sweep(Request{})["registry"].Outcome)
				require.Positive(t, size.met.Load())
			})
		})
	}
}

type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

// The batch lands late, then another one, and at that moment its record cannot be read.
func TestABatchThatLandedLateIsCountedHoweverLateItsRecordCanBeRead(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		fates := &cut{command: "xrevrange", err: io.ErrUnexpectedEOF}
		r := f.replica("r1", fates.control)
		r.leads()
		f.entries("dead", 20)
		var held []any
		r.faults.set(once(func(args []any) error {
			held = args
			require.NoError(t, f.Set(t.Context(), f.Heartbeat("dead"), "0/0", time.Minute).Err()) // the second try is refused
			fates.on.Store(true)
			return io.ErrUnexpectedEOF
		}), nil)
		require.Equal(t, Failed, r.sweep(Request{})["registry"].Outcome)
		f.eventually(func() bool { return !r.Pending() })
		require.NoError(t, f.Del(t.Context(), f.Heartbeat("dead")).Err())
		require.NoError(t, f.Do(t.Context(), held...).Err())
		require.Zero(t, f.left("dead"))

		f.entries("other", 5)
		require.Equal(t, Done, r.sweep(Request{})["registry"].Outcome)
		for range 2 { // the first look may have begun before
			before := fates.met.Load()
			r.Poke()
			f.eventually(func() bool { return fates.met.Load() > before })
		}
		fates.on.Store(false)
		r.Poke()
		f.eventually(func() bool { return r.counted("dead") == 20 })
		require.Equal(t, 5, r.counted("other"))
		require.Equal(t, uint64(25), r.Status().Evicted)
	})
}

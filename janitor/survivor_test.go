package janitor_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"

	. "github.com/rollcall-redis/rollcall/janitor"
)

// cutOff is a hook that blocks everything while it is true.
type cutOff struct{ atomic.Bool }

func (c *cutOff) on(config *Config) {
	config.Client.(*redis.Client).AddHook(c)
	config.Control.(*redis.Client).AddHook(c)
}

func (c *cutOff) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *cutOff) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.Load() {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmd)
	}
}

func (c *cutOff) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(io.ErrUnexpectedEOF)
			}
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmds)
	}
}

// ticked returns the time of the witness' last tick.
func (f *fleet) ticked() time.Time {
	w, err := guard.ReadWitness(f.t.Context(), f.Client, f.Layout)
	require.NoError(f.t, err)
	return w.LastTick
}

func TestAReplicaThatSurvivesAllOthersLeavesNoGapAndLeads(t *testing.T) {
	for i := range 5 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				f.listenedFor(time.Hour)
				defer f.beat("r1")()
				defer f.beat("r2")()
				var dead cutOff
				first := f.replica("r1", dead.on)
				defer first.start()()
				pass(time.Minute + time.Duration(i)*7*time.Second)
				r := f.replica("r2", nil)
				defer r.start()()
				pass(3*time.Minute + time.Duration(i)*time.Second)
				require.True(t, first.Leading())
				since := r.Status().Witness.Listening
				dead.Store(true)
				for range 3 * time.Minute / time.Second {
					pass(time.Second)
					require.Less(t, time.Since(f.ticked()), timing.Gap())
				}
				require.True(t, r.Leading())
				require.Greater(t, r.Status().Witness.Listening, since, "no hold")
			})
		})
	}
}

// The lease may outlast the others, or be kept by hand.
func TestAReplicaTicksWhileNobodyElseDoesAndItCannotLead(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.listenedFor(time.Hour)
		defer f.beat("r1")()
		r := f.replica("r1", nil)
		require.NoError(t, f.Set(t.Context(), f.Lease(), "boss/1", f.leaseTTL).Err())
		defer r.start()()
		for range 5 * time.Minute / time.Second {
			require.NoError(t, f.PExpire(t.Context(), f.Lease(), f.leaseTTL).Err())
			pass(time.Second)
			require.Less(t, time.Since(f.ticked()), timing.Gap()*5/6)
		}
		require.False(t, r.Leading())
		require.Greater(t, r.Status().Witness.Listening, time.Hour.Seconds())
	})
}

func TestWhoDoesNotLeadLeavesTheTickOutWhileOthersTick(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.listenedFor(time.Hour)
		defer f.beat("r1")()
		require.NoError(t, f.Set(t.Context(), f.Lease(), "boss/1", time.Hour).Err())
		r := f.replica("r1", nil)
		defer r.start()()
		others := guard.New(f.Client, f.Client, f.Layout, timing, "r2")
		for range 20 {
			_, err := others.Tick(t.Context())
			require.NoError(t, err)
			last := f.ticked()
			pass(timing.Gap() / 4)
			require.Equal(t, last, f.ticked())
		}
		require.Subset(t, f.SMembers(t.Context(), f.Contenders()).Val(), []string{"r1", "r2"})
		require.Less(t, time.Since(r.Status().Witness.LastTick), timing.Gap())
		require.Greater(t, r.Status().Witness.Listening, time.Hour.Seconds())
	})
}

func TestAReplicaThatDoesNotLeadReportsAPauseAndItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		ctx := t.Context()
		defer f.beat("r1")()
		require.NoError(t, f.Set(ctx, f.Lease(), "boss/1", time.Hour).Err())
		require.NoError(t, f.Set(ctx, f.Paused(), "by hand", 0).Err())
		r := f.replica("r1", nil)
		defer r.start()()
		pass(grace)
		require.Equal(t, "boss", r.Status().Leader)
		require.NotNil(t, r.Status().Paused)
		require.NoError(t, f.Del(ctx, f.Paused()).Err())
		pass(timing.Gap())
		require.Nil(t, r.Status().Paused)
	})
}

func TestAJanitorThatEndsContendsNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		defer f.beat("r1")()
		stop := f.replica("r1", nil).start()
		pass(time.Minute)
		require.Equal(t, []string{"r1"}, f.SMembers(t.Context(), f.Contenders()).Val())
		stop()
		require.Equal(t, redis.Nil, f.SRandMember(t.Context(), f.Contenders()).Err(), "others must not rank it")
	})
}

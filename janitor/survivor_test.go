package janitor_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

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
				var dead broken
				first := f.replica("r1", dead.on)
				defer first.start()()
				pass(time.Minute + time.Duration(i)*7*time.Second)
				r := f.replica("r2", nil)
				defer r.start()()
				pass(3*time.Minute + time.Duration(i)*time.Second)
				require.True(t, first.Leading())
				since := r.Status().Witness.Listening
				dead.by("", io.ErrUnexpectedEOF)
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
		r := f.replica("r1", nil)
		f.must(f.Set(t.Context(), f.Lease(), "boss/1", f.leaseTTL))
		defer r.start()()
		for range 5 * time.Minute / time.Second {
			f.must(f.PExpire(t.Context(), f.Lease(), f.leaseTTL))
			pass(time.Second)
			require.Less(t, time.Since(f.ticked()), timing.Gap()*5/6)
		}
		require.False(t, r.Leading())
		require.Greater(t, r.Status().Witness.Listening, time.Hour.Seconds())
	})
}

func TestWhoDoesNotLeadLeavesTheTickOutWhileOthersTick(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.must(f.Set(t.Context(), f.Lease(), "boss/1", time.Hour))
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
		f.must(f.Set(ctx, f.Lease(), "boss/1", time.Hour))
		f.must(f.Set(ctx, f.Paused(), "by hand", 0))
		r := f.replica("r1", nil)
		defer r.start()()
		pass(grace)
		require.Equal(t, "boss", r.Status().Leader)
		require.NotNil(t, r.Status().Paused)
		f.must(f.Del(ctx, f.Paused()))
		pass(timing.Gap())
		require.Nil(t, r.Status().Paused)
	})
}

func TestAJanitorThatEndsContendsNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		stop := f.replica("r1", nil).start()
		pass(time.Minute)
		require.Contains(t, f.SMembers(t.Context(), f.Contenders()).Val(), "r1")
		stop()
		require.NotContains(t, f.SMembers(t.Context(), f.Contenders()).Val(), "r1", "others must not rank it")
	})
}

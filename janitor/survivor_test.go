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
	w, err := guard.ReadWitness(f.Context(), f.Client, f.Layout)
	require.NoError(f, err)
	return w.LastTick
}

func TestAReplicaThatSurvivesAllOthersLeavesNoGapAndLeads(t *testing.T) {
	for i := range 5 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			inBubble(t, func(f *fleet) {
				var dead broken
				first := f.replica("r1", dead.on)
				defer first.start()()
				pass(time.Minute + time.Duration(i)*7*time.Second)
				r := f.replica("r2", nil)
				defer r.start()()
				pass(3*time.Minute + time.Duration(i)*time.Second)
				require.True(f, first.Leading())
				since := r.Status().Witness.Listening
				dead.by("", io.ErrUnexpectedEOF)
				for range 3 * time.Minute / time.Second {
					pass(time.Second)
					require.Less(f, time.Since(f.ticked()), timing.Gap())
				}
				require.True(f, r.Leading())
				require.Greater(f, r.Status().Witness.Listening, since, "no hold")
			})
		})
	}
}

// The lease may outlast the others, or be kept by hand.
func TestAReplicaTicksWhileNobodyElseDoesAndItCannotLead(t *testing.T) {
	rows(t, inBubble, map[string]int{"alone": 1, "with another": 2}, func(f *fleet, replicas int) {
		f.do("DEL", f.Witness())
		f.must(f.Set(f.Context(), f.Lease(), "boss/1", f.leaseTTL))
		r := f.starts()
		if replicas == 2 {
			defer f.replica("r2", nil).start()()
		}
		pass(time.Second)
		for range 20 * time.Minute / time.Second {
			f.must(f.PExpire(f.Context(), f.Lease(), f.leaseTTL))
			pass(time.Second)
			require.Less(f, time.Since(f.ticked()), timing.Gap()*5/6)
		}
		require.False(f, r.Leading())
		require.Equal(f, "boss", r.Status().Leader)
		w := r.Status().Witness
		require.InDelta(f, 1200, w.Listening, 30)
		require.InDelta(f, 1200, r.value("janitor_witness_seconds"), 30)
		require.Zero(f, w.HeldFor)
		require.Equal(f, []string{"refused", "redis_evicting", "restarted"}, w.ChecksOff)
	})
}

func TestWhoDoesNotLeadLeavesTheTickOutWhileOthersTick(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.must(f.Set(f.Context(), f.Lease(), "boss/1", time.Hour))
		f.do("SET", f.Paused(), "by hand")
		r := f.replica("r1", nil)
		stop := r.start()
		others := guard.New(f.Client, f.Client, f.Layout, timing, "r2")
		for range 20 {
			_, err := others.Tick(f.Context())
			require.NoError(f, err)
			last := f.ticked()
			pass(timing.Gap() / 4)
			require.Equal(f, last, f.ticked())
		}
		require.Equal(f, "boss", r.Status().Leader)
		require.NotNil(f, r.Status().Paused)
		f.do("DEL", f.Paused())
		pass(timing.Gap())
		require.Nil(f, r.Status().Paused)
		require.Subset(f, f.SMembers(f.Context(), f.Contenders()).Val(), []string{"r1", "r2"})
		require.Less(f, time.Since(r.Status().Witness.LastTick), timing.Gap())
		require.Greater(f, r.Status().Witness.Listening, time.Hour.Seconds())
		stop()
		require.NotContains(f, f.SMembers(f.Context(), f.Contenders()).Val(), "r1", "others must not rank it")
	})
}

package janitor_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// silent are the owners that fall silent at once: all but the leader and b.
var silent = []string{"v", "w", "x", "y", "z"}

// fall removes the heartbeats of silent, as a network failure would.
func (f *fleet) fall() {
	for _, id := range silent {
		require.NoError(f.t, f.Del(f.t.Context(), f.Heartbeat(id)).Err())
	}
}

// spares requires that the breaker holds a full scan, and that nothing was deleted.
func (f *fleet) spares(r *replica, entries int) {
	f.t.Helper()
	rep := r.report("registry")
	require.Equal(f.t, Held, rep.Outcome)
	require.Equal(f.t, "mass_failure", rep.Reason)
	require.Equal(f.t, int64(entries), f.HLen(f.t.Context(), f.Registry()).Val())
	require.Zero(f.t, f.recorded())
}

func TestWithoutAnIndexTheBreakerIsAskedAndTheNextLeaderKnowsWhoFell(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("b")
		f.live(silent...)
		for _, id := range silent {
			f.entries(id, 10)
		}
		first := f.replica("r1", nil)
		stop := first.leads()
		f.fall()
		quick := func() float64 { return first.value("janitor_passes_total", "sweep", "owners", "outcome", "done") }
		before := quick()
		f.eventually(func() bool { return quick() >= before+2 }) // it has seen them fall
		first.sweep(Request{})
		f.spares(first, 50)
		for _, id := range silent {
			require.True(t, f.SIsMember(t.Context(), f.Roster(), id).Val(), "only a full scan that meets nothing of it takes an owner off")
		}
		stop()
		f.listenedFor(time.Hour) // the hold is over, but they are still silent
		f.HDel(t.Context(), f.Witness(), "mass_failure")
		next := f.replica("r2", nil)
		next.leads()
		f.spares(next, 50)
	})
}

func TestANewLeaderCountsOwnersOfNoRosterBeforeItSweepsAny(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("b")
		for _, id := range silent { // older writers: entries and heartbeats only
			f.entries(id, 200)
		}
		r := f.replica("r1", func(c *Config) { c.ScanCount = 10; c.DeleteBatch = 5 })
		r.leads()
		f.spares(r, 1000)
	})
}

func TestOneDeadOwnerOfNoRosterIsSweptInTheFirstPass(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("b")
		f.entries("b", 100)
		f.entries("x", 700)
		f.HSet(t.Context(), f.Registry(), "poison", "a\nb")
		r := f.replica("r1", func(c *Config) { c.ScanCount = 50 })
		r.leads()
		rep := r.report("registry")
		require.Equal(t, Done, rep.Outcome)
		require.Equal(t, 700, rep.Evicted)
		require.Equal(t, map[SkipReason]int{SkipUnreadable: 1}, rep.Spared, "the second scan is about the dead only")
	})
}

func TestALostRosterIsNoGoodbye(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("b")
		f.live(silent...)
		for _, id := range silent {
			f.indexed(id, 10)
		}
		r := f.replica("r1", nil)
		r.leads()
		f.fall()
		require.NoError(t, f.Del(t.Context(), f.Roster()).Err())
		f.eventually(func() bool { return !r.Listed("x") }) // the leader has noticed
		r.sweep(Request{})
		f.spares(r, 50)
	})
}

func TestARosterOfAnotherTypeIsAnEmptyOne(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		ctx := t.Context()
		f.indexed("dead", 10)
		require.NoError(t, f.Del(ctx, f.Roster()).Err())
		require.NoError(t, f.Set(ctx, f.Roster(), "x", 0).Err())
		require.NoError(t, f.Set(ctx, f.Heartbeat("leader"), "0/0", beatTTL).Err())
		r := f.silentReplica("leader", func(c *Config) { c.Interval = 200 * time.Millisecond })
		r.start()
		f.eventually(func() bool { return f.left("dead") == 0 })
		require.Equal(t, "x", f.Get(ctx, f.Roster()).Val(), "it is left alone")
	})
}

func TestALaterScanMeetsEveryOwnerBeforeItSweepsThoseOfNoRoster(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("b")
		// most entries belong to one owner: its batches are full before the others are met
		for i, id := range silent {
			require.NoError(t, f.Set(t.Context(), f.Heartbeat(id), "0/0", beatTTL).Err())
			f.entries(id, []int{996, 1, 1, 1, 1}[i])
		}
		r := f.replica("r1", func(c *Config) { c.ScanCount = 10; c.DeleteBatch = 5 })
		r.leads() // its first full scan has met them alive
		f.fall()
		r.sweep(Request{})
		f.spares(r, 1000)
	})
}

// An owner whose sweep took it off the roster did not leave in good order, though nobody was told.
func TestAnOwnerSweptByACallWithALostReplyStillCountsAsFallen(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("x", "y")
		f.indexed("x", 3)
		f.indexed("y", 3)
		lost := &faults{}
		r := f.replica("r1", func(c *Config) { c.Control.(*redis.Client).AddHook(lost) })
		r.leads()
		forget := once(func([]any) error { return errors.New("reply lost") })
		lost.set(nil, func(args []any) error {
			if !slices.Contains(args, any(f.Devices("x"))) {
				return nil
			}
			return forget(args)
		})
		falls := func(id string) {
			require.NoError(t, f.Del(t.Context(), f.Heartbeat(id)).Err())
			require.NoError(t, f.Publish(t.Context(), f.News(), id).Err()) // has the roster read at once
		}
		falls("x")
		f.eventually(func() bool { return !f.SIsMember(t.Context(), f.Roster(), "x").Val() && !r.Listed("x") })
		falls("y")
		f.eventually(func() bool { return r.report("owners").Outcome == Held || f.left("y") == 0 })
		require.Equal(t, 3, f.left("y"), "two of three fell")
		require.Equal(t, "mass_failure", r.report("owners").Reason)
	})
}

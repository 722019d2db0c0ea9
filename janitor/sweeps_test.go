package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestTheFullScanFindsWhomNobodyRemembers(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.entries("ghost-1", 1203)
		f.entries("ghost-2", 7)
		f.live("other")
		f.entries("other", 300)
		f.entries("r1", 50)
		r := f.replica("r1", nil)
		r.leads()
		rep := r.report("registry")
		require.Equal(t, Done, rep.Outcome)
		require.GreaterOrEqual(t, rep.Scanned, 1560)
		require.Equal(t, 1210, rep.Evicted)
		require.Empty(t, rep.Spared)
		require.Zero(t, f.left("ghost-1")+f.left("ghost-2"))
		require.Equal(t, 350, f.left("other")+f.left("r1"))
		require.Equal(t, 1210, f.recorded())
		require.Equal(t, 1210, f.total())
		require.Equal(t, 1203, r.counted("ghost-1"))
		require.Equal(t, 7, r.counted("ghost-2"))
		require.Equal(t, uint64(1210), r.Status().Evicted)
		require.Zero(t, r.Status().Unsettled)
	})
}

func TestTheQuickWaySweepsThroughTheIndexAndForgets(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("other", "third")
		kept := f.indexed("other", 20)
		r := f.replica("r1", func(c *Config) { c.ScanCount = 100 })
		r.leads()

		imeis := f.indexed("dead", 1234) // its full scan is over; only the quick way can find it
		require.NoError(t, f.SAdd(t.Context(), f.Devices("dead"), kept[0], "no entry").Err())
		f.eventually(func() bool { return !f.SIsMember(t.Context(), f.Roster(), "dead").Val() })
		require.Zero(t, f.left("dead"))
		require.Equal(t, 20, f.left("other"))
		require.Zero(t, f.Exists(t.Context(), f.Devices("dead")).Val())
		require.Equal(t, len(imeis), r.counted("dead"))
		require.Equal(t, len(imeis), f.recorded())
		require.InDelta(t, 1, r.value("janitor_spared_total", "reason", string(SkipReowned)), 0)
	})
}

func TestAnIndexStaysUntilAllThatItNamesIsSwept(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("other", "third")
		r := f.replica("r1", func(c *Config) { c.DeleteBatch = 10 })
		r.leads()
		var asked atomic.Int32
		lost := errors.New("lost")
		r.faults.set(func([]any) error {
			if asked.Add(1) == 3 {
				require.Equal(t, 35, int(f.SCard(t.Context(), f.Devices("dead")).Val()))
				require.Equal(t, 15, f.left("dead"))
				return lost
			}
			return nil
		}, nil)
		f.indexed("dead", 35)
		f.eventually(func() bool { return !f.SIsMember(t.Context(), f.Roster(), "dead").Val() })
		require.Zero(t, f.left("dead"))
		require.Zero(t, f.Exists(t.Context(), f.Devices("dead")).Val())
		require.Equal(t, 35, f.recorded())
		require.Equal(t, 35, r.counted("dead"))
	})
}

func TestAUserThatMayNotUnlinkSweepsAllTheSame(t *testing.T) {
	t.Parallel()
	f := setup(t, poor(t, "unlink"))
	f.live("other", "third")
	f.replica("r1", nil).leads()
	for _, owner := range []string{"dead", "gone"} {
		f.indexed(owner, 35)
		f.eventually(func() bool { return !f.SIsMember(t.Context(), f.Roster(), owner).Val() })
		require.Zero(t, f.left(owner))
		require.Zero(t, f.Exists(t.Context(), f.Devices(owner)).Val())
	}
	require.Equal(t, 70, f.recorded())
}

func TestWithoutAnIndexTheFullScanDoesIt(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.entries("dead", 600)
		require.NoError(t, f.SAdd(t.Context(), f.Roster(), "dead").Err())
		r := f.replica("r1", nil)
		r.leads()
		require.Zero(t, f.left("dead"))
		require.Equal(t, 600, r.counted("dead"))
		require.True(t, f.SIsMember(t.Context(), f.Roster(), "dead").Val(), "no full scan has found nothing yet")
		r.sweep(Request{})
		f.eventually(func() bool { return !f.SIsMember(t.Context(), f.Roster(), "dead").Val() })
	})
}

func TestAnOwnerThatComesBackBeforeTheSweepKeepsItsEntries(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		f.entries("back", 1200)
		r.faults.set(once(func([]any) error { f.live("back"); return nil }), nil)
		rep := r.sweep(Request{})["registry"]
		require.Equal(t, Done, rep.Outcome)
		require.Zero(t, rep.Evicted)
		require.Equal(t, map[SkipReason]int{SkipAlive: firstBatch}, rep.Spared, "left alone after the first batch")
		require.Equal(t, 1200, f.left("back"))
	})
}

func TestADeviceThatMovedBeforeTheSweepKeepsItsEntry(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("other")
		r := f.replica("r1", nil)
		r.leads()
		imeis := f.entries("dead", 10)
		r.faults.set(once(func([]any) error {
			return f.HSet(t.Context(), f.Registry(), imeis[0], "other", imeis[1], "dead ").Err()
		}), nil)
		rep := r.sweep(Request{})["registry"]
		require.Equal(t, 8, rep.Evicted)
		require.Equal(t, map[SkipReason]int{SkipReowned: 2}, rep.Spared)
		require.Equal(t, 1, f.left("other"))
	})
}

func TestWhatCannotBeReadIsKeptAndCounted(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		require.NoError(t, f.HSet(t.Context(), f.Registry(),
			"no owner", "", "", "dead", "long owner", strings.Repeat("x", 1<<20), "odd owner", "a\nb", "no text", "\xff\xfe",
			"imei of another kind", "dead").Err())
		f.dies("dead")
		f.entries("index is a string", 3)
		require.NoError(t, f.Set(t.Context(), f.Devices("index is a string"), "x", 0).Err())
		require.NoError(t, f.SAdd(t.Context(), f.Roster(), "index is a string", "", "c\x00").Err())
		r := f.replica("r1", nil)
		r.leads()
		rep := r.report("registry")
		require.Equal(t, Done, rep.Outcome)
		require.Equal(t, 2+3, rep.Evicted, "an odd IMEI of a dead owner is an entry like any other; an index is only a help")
		require.Equal(t, map[SkipReason]int{SkipUnreadable: 4}, rep.Spared)
		require.Equal(t, int64(4), f.HLen(t.Context(), f.Registry()).Val())
		require.Equal(t, map[SkipReason]int{SkipUnreadable: 3}, r.report("owners").Spared)
		require.Equal(t, 2+3, f.recorded())

		// None of it blocks later sweeps.
		f.indexed("dead", 5)
		f.eventually(func() bool { return f.left("dead") == 0 })
	})
}

func TestOnDemandForOneOwner(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		f.entries("dead-1", 40)
		f.entries("dead-2", 30)

		reports := r.sweep(Request{Owner: "dead-1", DryRun: true})
		require.Equal(t, 40, reports["registry"].Condemned)
		require.Equal(t, 40, f.left("dead-1"))

		reports = r.sweep(Request{Owner: "dead-1"})
		require.Equal(t, "dead-1", reports["registry"].Owner)
		require.Equal(t, 40, reports["registry"].Evicted)
		require.Zero(t, f.left("dead-1"))
		require.Equal(t, 30, f.left("dead-2"))

		require.Zero(t, r.sweep(Request{Owner: "r1"})["registry"].Condemned, "who leads, lives")
	})
}

func TestALeaderThatCannotSeeItselfHolds(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		f.entries("dead", 5)
		f.entries("r1", 4)
		require.NoError(t, f.Del(t.Context(), f.Heartbeat("r1")).Err())
		rep := r.sweep(Request{})["registry"]
		require.Equal(t, 5, rep.Condemned, "who leads, lives, and condemns nothing of its own")
		require.Equal(t, Held, rep.Outcome)
		require.Equal(t, "self_check", rep.Reason)
		require.Equal(t, 5, f.left("dead"))
	})
}

func TestAScanBeginsAnewWhenTheServerIsAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after int64 // how many run id queries: two per walk through the hash
		walks int64
	}{
		"in the first walk": {1, 2},
		"before the first":  {0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			f := setup(t, redistest.World{Client: s.Client(), Options: s.Options(), Prefix: redistest.Prefix(t), Real: true})
			f.live("other")
			f.entries("other", 50)
			f.entries("dead", 50)
			f.HSet(t.Context(), f.Registry(), "poison", "a\nb")
			var asked atomic.Int64
			r := f.replica("r1", func(cfg *Config) {
				cfg.DeleteBatch = 10
				cfg.Client.AddHook(serverIDHook{func(n int64) string {
					if n <= c.after {
						return "before"
					}
					return "after"
				}, &asked})
			})
			r.leads()
			rep := r.report("registry")
			require.Equal(t, Done, rep.Outcome)
			require.Equal(t, 50, rep.Evicted)
			require.Equal(t, 2*c.walks, asked.Load())
			require.Equal(t, map[SkipReason]int{SkipUnreadable: int(c.walks)}, rep.Spared)
		})
	}
}

// serverIDHook answers the server's run id script.
type serverIDHook struct {
	answer func(n int64) string
	n      *atomic.Int64
}

func (h serverIDHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h serverIDHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h serverIDHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha_ro" && len(cmd.Args()) == 4 { // with one key, and nothing else
			cmd.(*redis.Cmd).SetVal(h.answer(h.n.Add(1)))
			return nil
		}
		return next(ctx, cmd)
	}
}

func TestTheLogIsTrimmedWhereItsSizeCanBeKnown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := setup(t, redistest.World{Client: s.Client(), Options: s.Options(), Prefix: redistest.Prefix(t), Real: true})
	pipe := f.Pipeline()
	for i := range 3000 {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: f.Log(), ID: fmt.Sprintf("1-%d", i), Values: []string{"count", "0", "imeis", strings.Repeat("x", 1000)}})
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	r := f.replica("r1", func(c *Config) { c.LogBytes = 1 << 20 })
	r.leads()
	require.Equal(t, int64(3001), f.XLen(t.Context(), f.Log()).Val(), "not while nothing is evicted")
	f.entries("dead", 3)
	r.sweep(Request{})
	used, err := f.MemoryUsage(t.Context(), f.Log()).Result()
	require.NoError(t, err)
	require.InDelta(t, 1<<20, used, 1<<18)
	require.Equal(t, 3, f.recorded(), "the newest stay")
}

// A reply may be damaged on its way.
func TestAPageThatEndsInHalfAnEntryIsReadAsFarAsItGoes(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("other")
		f.indexed("dead", 1) // so that it is on the roster
		f.entries("dead", 10)
		require.NoError(t, f.Del(t.Context(), f.Devices("dead")).Err())
		r := f.replica("r1", func(c *Config) { c.Client.AddHook(halfPages{}) })
		r.leads()
		require.Equal(t, Done, r.report("registry").Outcome)
		require.Equal(t, 9, r.report("registry").Evicted)
		require.Equal(t, 9, r.report("registry").Scanned)
		require.Equal(t, 1, f.left("dead"))
	})
}

// halfPages is a hook that drops the last value of each page of a hash.
type halfPages struct{}

func (halfPages) DialHook(next redis.DialHook) redis.DialHook { return next }
func (halfPages) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (halfPages) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if scan, ok := cmd.(*redis.ScanCmd); ok && err == nil && cmd.Name() == "hscan" {
			page, cursor := scan.Val()
			scan.SetVal(page[:max(0, len(page)-1)], cursor)
		}
		return err
	}
}

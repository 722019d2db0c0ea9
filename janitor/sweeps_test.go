package janitor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
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
		f.must(f.SAdd(t.Context(), f.Devices("dead"), kept[0], "no entry"))
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

func TestWithoutAnIndexTheFullScanDoesIt(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.entries("dead", 600)
		f.must(f.SAdd(t.Context(), f.Roster(), "dead"))
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
		f.must(f.Set(t.Context(), f.Devices("index is a string"), "x", 0))
		f.must(f.SAdd(t.Context(), f.Roster(), "index is a string", "", "c\x00"))
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
		f.must(f.Del(t.Context(), f.Heartbeat("r1")))
		rep := r.sweep(Request{})["registry"]
		require.Equal(t, 5, rep.Condemned, "who leads, lives, and condemns nothing of its own")
		require.Equal(t, Held, rep.Outcome)
		require.Equal(t, "self_check", rep.Reason)
		require.Equal(t, 5, f.left("dead"))
	})
}

// A reply may be damaged on its way.
func TestAPageThatEndsInHalfAnEntryIsReadAsFarAsItGoes(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.live("other")
		f.indexed("dead", 1) // so that it is on the roster
		f.entries("dead", 10)
		f.must(f.Del(t.Context(), f.Devices("dead")))
		r := f.replica("r1", func(c *Config) {
			c.Client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				err := send()
				if scan, ok := cmds[0].(*redis.ScanCmd); ok && err == nil && scan.Name() == "hscan" {
					page, cursor := scan.Val()
					scan.SetVal(page[:max(0, len(page)-1)], cursor) // the last value
				}
				return err
			}))
		})
		r.leads()
		require.Equal(t, Done, r.report("registry").Outcome)
		require.Equal(t, 9, r.report("registry").Evicted)
		require.Equal(t, 9, r.report("registry").Scanned)
		require.Equal(t, 1, f.left("dead"))
	})
}

// An index of another type is left alone, and prevents no eviction: no batch is refused, and the
// quick way reports that it could not read it.
func TestAnIndexOfAnotherTypeStopsNothingAndIsShown(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.entries("dead", 700)
		f.must(f.Set(t.Context(), f.Devices("dead"), "oops", 0))
		f.must(f.SAdd(t.Context(), f.Roster(), "dead"))
		var lines process.Buffer
		r := f.replica("r1", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
		r.leads()
		rep := r.report("registry")
		require.Equal(t, Done, rep.Outcome)
		require.Equal(t, 700, rep.Evicted, "two batches")
		require.Equal(t, 1, strings.Count(lines.String(), "key="+f.Devices("dead")), "told once")
		require.Empty(t, rep.Spared)
		require.Zero(t, f.left("dead"))
		require.Zero(t, r.Accounts())
		require.Equal(t, map[SkipReason]int{SkipUnreadable: 1}, r.report("owners").Spared)
		require.Equal(t, "oops", f.Get(t.Context(), f.Devices("dead")).Val())
	})
}

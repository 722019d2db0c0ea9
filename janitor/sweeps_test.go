package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestTheFullScanFindsWhomNobodyRemembers(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.entries("ghost-1", 1203)
		f.entries("ghost-2", 7)
		f.live("other")
		f.entries("other", 300)
		f.entries("r1", 50)
		r := f.leader()
		rep := r.report("registry")
		require.Equal(f, Done, rep.Outcome)
		require.GreaterOrEqual(f, rep.Scanned, 1560)
		require.Equal(f, 1210, rep.Evicted)
		require.Empty(f, rep.Spared)
		f.has(0, "ghost-1", "ghost-2")
		f.has(350, "other", "r1")
		require.Equal(f, 1210, f.recorded())
		require.Equal(f, 1210, f.total())
		require.Equal(f, 1203, r.counted("ghost-1"))
		require.Equal(f, 7, r.counted("ghost-2"))
		require.Equal(f, uint64(1210), r.Status().Evicted)
		require.Zero(f, r.Status().Unsettled)
	})
}

func TestTheQuickWaySweepsThroughTheIndexAndForgets(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.live("other", "third")
		kept := f.indexed("other", 20)
		r := f.leader(func(c *Config) { c.ScanCount = 100 })

		imeis := f.indexed("dead", 1234) // its full scan is over; only the quick way can find it
		f.do("SADD", f.Devices("dead"), kept[0], "no entry")
		f.eventually(func() bool { return !f.SIsMember(f.Context(), f.Roster(), "dead").Val() })
		f.has(0, "dead")
		f.has(20, "other")
		require.Zero(f, f.Exists(f.Context(), f.Devices("dead")).Val())
		require.Equal(f, len(imeis), r.counted("dead"))
		require.Equal(f, len(imeis), f.recorded())
		r.counts(1, "janitor_spared_total", "reason", string(SkipReowned))
	})
}

func TestAnIndexStaysUntilAllThatItNamesIsSwept(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.live("other", "third")
		r := f.leader(func(c *Config) { c.DeleteBatch = 10 })
		var asked atomic.Int32
		lost := errors.New("lost")
		r.faults.set(func([]any) error {
			if asked.Add(1) == 3 {
				require.Equal(f, 35, int(f.SCard(f.Context(), f.Devices("dead")).Val()))
				f.has(15, "dead")
				return lost
			}
			return nil
		}, nil)
		f.indexed("dead", 35)
		f.eventually(func() bool { return !f.SIsMember(f.Context(), f.Roster(), "dead").Val() })
		f.has(0, "dead")
		require.Zero(f, f.Exists(f.Context(), f.Devices("dead")).Val())
		require.Equal(f, 35, f.recorded())
		require.Equal(f, 35, r.counted("dead"))
	})
}

func TestWithoutAnIndexTheFullScanDoesIt(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.entries("dead", 600)
		f.do("SADD", f.Roster(), "dead")
		r := f.leader()
		f.has(0, "dead")
		require.Equal(f, 600, r.counted("dead"))
		require.True(f, f.SIsMember(f.Context(), f.Roster(), "dead").Val(), "no full scan has found nothing yet")
		r.sweep(Request{})
		f.eventually(func() bool { return !f.SIsMember(f.Context(), f.Roster(), "dead").Val() })
	})
}

func TestWhatChangesBetweenFindAndReapIsJudgedAgain(t *testing.T) {
	type row struct {
		entries int
		change  func(f *fleet, imeis []string)
		want    Report
	}
	rows(t, inWorlds, map[string]row{
		"the owner is back, and left alone after the first batch": {1200, func(f *fleet, _ []string) { f.live("back") },
			Report{Outcome: Done, Spared: map[SkipReason]int{SkipAlive: firstBatch}}},
		"devices have moved": {10, func(f *fleet, imeis []string) {
			f.do("HSET", f.Registry(), imeis[0], "other", imeis[1], "back ")
		}, Report{Outcome: Done, Evicted: 8, Spared: map[SkipReason]int{SkipReowned: 2}}},
		"the guard holds what looks free here": {5, func(f *fleet, _ []string) { f.do("SET", f.Witness(), "not a hash") },
			Report{Outcome: Held, Reason: "gap", Spared: map[SkipReason]int{SkipHeld: 5}}},
	}, func(f *fleet, c row) {
		f.live("other")
		r := f.leader()
		imeis := f.entries("back", c.entries)
		r.faults.set(once(func([]any) error { c.change(f, imeis); return nil }), nil)
		rep := r.sweep(Request{})["registry"]
		require.Equal(f, c.want, Report{Outcome: rep.Outcome, Reason: rep.Reason, Evicted: rep.Evicted, Spared: rep.Spared})
		require.EqualValues(f, c.entries-c.want.Evicted, f.HLen(f.Context(), f.Registry()).Val())
	})
}

func TestWhatCannotBeReadIsKeptAndCounted(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		require.NoError(f, f.HSet(f.Context(), f.Registry(),
			"no owner", "", "", "dead", "long owner", strings.Repeat("x", 1<<20), "odd owner", "a\nb", "no text", "\xff\xfe",
			"imei of another kind", "dead").Err())
		f.dies("dead")
		f.entries("index is a string", 3)
		f.do("SET", f.Devices("index is a string"), "x")
		f.do("SADD", f.Roster(), "index is a string", "", "c\x00")
		r := f.leader()
		rep := r.report("registry")
		require.Equal(f, Done, rep.Outcome)
		require.Equal(f, 2+3, rep.Evicted, "an odd IMEI of a dead owner is an entry like any other; an index is only a help")
		require.Equal(f, map[SkipReason]int{SkipUnreadable: 4}, rep.Spared)
		require.Equal(f, int64(4), f.HLen(f.Context(), f.Registry()).Val())
		require.Equal(f, map[SkipReason]int{SkipUnreadable: 3}, r.report("owners").Spared)
		require.Equal(f, 2+3, f.recorded())

		// None of it blocks later sweeps.
		f.indexed("dead", 5)
		f.eventually(func() bool { return f.left("dead") == 0 })
	})
}

func TestOnDemandForOneOwner(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		r := f.leader()
		f.entries("dead-1", 40)
		f.entries("dead-2", 30)

		reports := r.sweep(Request{Owner: "dead-1", DryRun: true})
		require.Equal(f, 40, reports["registry"].Condemned)
		f.has(40, "dead-1")

		reports = r.sweep(Request{Owner: "dead-1"})
		require.Equal(f, "dead-1", reports["registry"].Owner)
		require.Equal(f, 40, reports["registry"].Evicted)
		f.has(0, "dead-1")
		f.has(30, "dead-2")

		require.Zero(f, r.sweep(Request{Owner: "r1"})["registry"].Condemned, "who leads, lives")
	})
}

func TestALeaderThatCannotSeeItselfHolds(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		r := f.leader()
		f.entries("dead", 5)
		f.entries("r1", 4)
		f.do("DEL", f.Heartbeat("r1"))
		rep := r.sweep(Request{})["registry"]
		require.Equal(f, 5, rep.Condemned, "who leads, lives, and condemns nothing of its own")
		require.Equal(f, Held, rep.Outcome)
		require.Equal(f, "self_check", rep.Reason)
		f.has(5, "dead")
	})
}

// A reply may be damaged on its way.
func TestAPageThatEndsInHalfAnEntryIsReadAsFarAsItGoes(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.live("other")
		f.indexed("dead", 1) // so that it is on the roster
		f.entries("dead", 10)
		f.do("DEL", f.Devices("dead"))
		r := f.leader(func(c *Config) {
			c.Client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				err := send()
				if scan, ok := cmds[0].(*redis.ScanCmd); ok && err == nil && scan.Name() == "hscan" {
					page, cursor := scan.Val()
					scan.SetVal(page[:max(0, len(page)-1)], cursor) // the last value
				}
				return err
			}))
		})
		require.Equal(f, Done, r.report("registry").Outcome)
		require.Equal(f, 9, r.report("registry").Evicted)
		require.Equal(f, 9, r.report("registry").Scanned)
		f.has(1, "dead")
	})
}

// An index of another type is left alone, and prevents no eviction: no batch is refused, and the
// quick way reports that it could not read it.
func TestAnIndexOfAnotherTypeStopsNothingAndIsShown(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.entries("dead", 700)
		f.do("SET", f.Devices("dead"), "oops")
		f.do("SADD", f.Roster(), "dead")
		r := f.leader()
		rep := r.report("registry")
		require.Equal(f, Done, rep.Outcome)
		require.Equal(f, 700, rep.Evicted, "two batches")
		require.Equal(f, 1, r.said("key="+f.Devices("dead")), "told once")
		require.Empty(f, rep.Spared)
		f.has(0, "dead")
		require.Zero(f, r.Accounts())
		require.Equal(f, map[SkipReason]int{SkipUnreadable: 1}, r.report("owners").Spared)
		require.Equal(f, "oops", f.Get(f.Context(), f.Devices("dead")).Val())
	})
}

// A scan may find each entry of an owner more than once.
func TestBatchesHoldNothingTwice(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		r := f.leader(func(c *Config) {
			c.DeleteBatch = 4
			c.Sweeps = []Sweeper{fakeSweep{name: "stuttering", every: time.Hour, pass: func(ctx context.Context, p *Pass) error {
				if !p.Requested() {
					return nil
				}
				b := NewBatcher(p)
				for i := range 30 {
					if err := b.Add(ctx, "dead", fmt.Sprintf("dead-%06d", i/3)); err != nil {
						return err
					}
				}
				return b.Flush(ctx)
			}}}
		})
		f.entries("dead", 10)
		require.Equal(f, 10, r.sweep(Request{Sweep: "stuttering"})["stuttering"].Evicted)
		require.Equal(f, 10, f.total())
	})
}

// A leader whose sweep is gone must not keep the lease and go on without it.
func TestASweepThatPanicsEndsRunWithIt(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		r := f.replica("r1", func(c *Config) {
			c.Sweeps = []Sweeper{fakeSweep{name: "mistaken", every: time.Hour, pass: func(context.Context, *Pass) error {
				panic("a mistake")
			}}}
		})
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_ = r.Run(f.Context())
		}()
		require.Contains(f, fmt.Sprint(<-ended), "a mistake")
		require.Zero(f, f.Exists(f.Context(), f.Lease()).Val())
	})
}

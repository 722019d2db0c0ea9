package janitor

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/together"
)

func TestProgressHasHowFarAPassIsAndIsLoggedEachTenSeconds(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	g := &Pass{report: Report{Started: begun, Evicted: 7}, logged: begun}
	require.Zero(t, g.progress(begun).Ratio(), "not known yet")
	g.AddTotal(100_000)
	require.Zero(t, g.progress(begun.Add(time.Second)).SecondsLeft, "nothing was read")
	p, due := g.scanned(20_000, begun.Add(5*time.Second))
	require.False(t, due)
	require.InDelta(t, 0.2, p.Ratio(), 1e-9)
	require.InDelta(t, 4000, p.PerSecond, 1e-9)
	require.InDelta(t, 20, p.SecondsLeft, 1e-9)
	require.Equal(t, 7, p.Evicted)
	for at, want := range []bool{0: false, 1: false, 9: false, 10: true, 11: false, 19: false, 20: true, 21: false} {
		_, due := g.scanned(0, begun.Add(time.Duration(at)*time.Second))
		require.Equal(t, want, due, at)
	}
	g.scanned(100_000, begun.Add(22*time.Second))
	p = g.progress(begun.Add(23 * time.Second))
	require.InDelta(t, 1, p.Ratio(), 0, "a scan may meet more than there is")
	require.Zero(t, p.SecondsLeft)
}

func TestTheLedgerKeepsTheNewestAccounts(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	for n := range uint64(mostLost + 3) {
		b := &sent{Batch: guard.Batch{ID: guard.BatchID{N: n}}}
		l.lose(b)
		l.lose(b) // another try
		l.answered(b, guard.Answer{Verdict: guard.Alive})
	}
	require.Len(t, l.accounts, mostLost)
	require.EqualValues(t, 3, l.accounts[0].ID.N)
	require.Zero(t, l.unknown())
	l.lose(&sent{})
	require.Equal(t, 1, l.unknown())
}

func TestWhatATickSaidIsGoodForAGap(t *testing.T) {
	t.Parallel()
	at := time.Now()
	h := heard{gap: 30 * time.Second, at: at, witness: guard.Witness{
		Listening: time.Minute, HeldFor: 20 * time.Second, Reason: "gap",
	}}
	for after, want := range map[time.Duration]struct {
		listening, held time.Duration
		reason          string
	}{
		0:                  {time.Minute, 20 * time.Second, "gap"},
		5 * time.Second:    {65 * time.Second, 15 * time.Second, "gap"},
		25 * time.Second:   {85 * time.Second, 0, "gap"},
		30 * time.Second:   {90 * time.Second, 0, "gap"},
		30*time.Second + 1: {0, 0, ""},
	} {
		held, reason := h.heldFor(at.Add(after))
		require.Equal(t, want.held, held, after)
		require.Equal(t, want.reason, reason, after)
		require.Equal(t, want.listening, h.listening(at.Add(after)), after)
	}
}

func TestTheNextPassComesWhenTheLastOneSays(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		took     time.Duration
		again    time.Duration // from the end of the pass; 0: not requested
		outcome  Outcome
		failures int
		held     time.Duration // the witness, from the end of the pass
		want     time.Duration
	}{
		"from beginning to beginning":              {took: 20 * s, outcome: Done, want: 80 * s},
		"some rest in any case":                    {took: 200 * s, outcome: Done, want: 10 * s},
		"sooner if it asks":                        {took: 20 * s, outcome: Done, again: 30 * s, want: 30 * s},
		"not later if it asks":                     {took: 20 * s, outcome: Done, again: 90 * s, want: 80 * s},
		"not at once if it asks":                   {took: 20 * s, outcome: Done, again: -s, want: 2 * s},
		"not before the time after a failure":      {took: 200 * s, outcome: Failed, failures: 8, want: 15 * s},
		"which doubles with each":                  {took: 200 * s, outcome: Failed, failures: 7, want: 64 * s / 5},
		"and is bounded":                           {took: 200 * s, outcome: Failed, failures: 1000, want: 15 * s},
		"a failure does not bring it sooner":       {took: 20 * s, outcome: Failed, failures: 8, want: 80 * s},
		"held, as soon as that can be over":        {took: s, outcome: Held, held: 5 * s, want: 5*s + time.Millisecond},
		"held for longer than the interval":        {took: s, outcome: Held, held: 200 * s, want: 99 * s},
		"held by a pause":                          {took: s, outcome: Held, want: 99 * s},
		"a hold is nothing to a pass that is done": {took: s, outcome: Done, held: 5 * s, want: 99 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				time.Sleep(c.took)
				h := heard{gap: s, at: time.Now(), witness: guard.Witness{HeldFor: c.held}}
				l := &loop{
					t:        &termState{j: &Janitor{listener: &listener{last: h}}},
					interval: 100 * s, failures: c.failures,
				}
				p := &Pass{report: Report{Started: begun, Outcome: c.outcome}}
				if c.again != 0 {
					p.again = time.Now().Add(c.again)
				}
				require.Equal(t, c.want, l.wait(p))
			})
		})
	}
}

func TestAnOwnerHasAnIDThatAnInstanceCanHave(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"a": true, "zone/host 1": true, "ö": true, strings.Repeat("x", maxInstanceID): true,
		"": false, strings.Repeat("x", maxInstanceID+1): false, "a\x00": false, "\n": false, "\xff": false,
	} {
		require.Equal(t, want, plausible(id), "%q", id)
	}
}

func TestTheLogHoldsAsManyRecordsAsWouldFit(t *testing.T) {
	t.Parallel()
	require.Equal(t, int64(10<<20/(32*500+512)), Config{LogBytes: 10 << 20, DeleteBatch: 500}.logRecords())
	require.Equal(t, int64(logLeast), Config{LogBytes: 1, DeleteBatch: 500}.logRecords())
}

func TestWhatIsNotConfiguredIsTheDefault(t *testing.T) {
	t.Parallel()
	require.Equal(t, Config{
		Interval: time.Minute, LeaseTTL: 15 * time.Second, ScanCount: 1000, DeleteBatch: 500, ExistsConcurrency: 8,
		RedisShare: 0.25, LogBytes: 10 << 20, Logger: slog.Default(),
	}, Config{}.withDefaults())
	own := Config{
		Interval: 1, LeaseTTL: 2, ScanCount: 3, DeleteBatch: 4, ExistsConcurrency: 5, RedisShare: 0.5, LogBytes: -1,
		Logger: slog.New(slog.DiscardHandler),
	}
	require.Equal(t, own, own.withDefaults())
}

func TestAHoldThatLastsIsLoggedOnceForEachReason(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	l := newListener(nil, 30*time.Second, slog.New(slog.NewTextHandler(&log, nil)))
	at := time.Now()
	since := at
	tick := func(after time.Duration, reason string, heldFor time.Duration) {
		if at = at.Add(after); heldFor > 0 {
			since = at
		}
		l.ticked(at, guard.Witness{Since: since, Reason: reason, HeldFor: heldFor}, nil, true, false)
	}
	tick(0, "", 0)
	for range 20 { // one reason after the other
		tick(time.Second, "restarted", time.Minute)
		tick(time.Second, "settings", time.Minute)
	}
	require.Equal(t, 2, strings.Count(log.String(), "hold began"), log.String())
	tick(25*time.Second, "", 0)
	tick(time.Second, "settings", time.Minute)
	require.Equal(t, 3, strings.Count(log.String(), "hold began"), "the one before was over")
}

func TestALeaderTicksMostOftenAndAFailedTickIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	l := newListener(nil, 30*time.Second, slog.New(slog.DiscardHandler))
	l.others = together.Join(nil, "test")
	defer l.others.Leave()
	require.InDelta(t, 15, l.wait(false).Seconds(), 1)
	require.Equal(t, 6*time.Second, l.wait(true))
	l.last.err = errors.New("lost")
	require.Equal(t, 3*time.Second, l.wait(false))
}

package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/lease"
)

func TestATouchHasAnEntryCheckedOnceASecond(t *testing.T) {
	t.Parallel()
	d := newTimed(t)
	c := d.stands("imei")
	d.now = d.now.Add(checkEvery - 1)
	d.touch(c, d.now)
	require.Zero(t, d.checks.Len(), "too soon")
	d.retry(d.now)
	require.Zero(t, d.checks.Len())
	d.now = d.now.Add(1)
	d.retry(d.now)
	ops := d.does("check")
	d.entry(ops, "me", nil)
	require.Empty(t, d.again)

	d.now = d.now.Add(checkEvery)
	d.touch(c, d.now)
	_, ops = d.batch()
	require.Len(t, ops, 1)
	d.touch(c, d.now)
	require.Zero(t, d.checks.Len(), "one is under way")
	d.entry(ops, "me", nil)
}

func TestAHandshakeOverwritesForLessThanASecond(t *testing.T) {
	t.Parallel()
	for waited, fresh := range map[time.Duration]bool{fresh - 1: true, fresh: false} {
		d := newTimed(t)
		d.claim("imei")
		d.now = d.now.Add(waited)
		b := d.next(d.now)
		require.Equal(t, fresh, len(b.register) == 1)
		require.Equal(t, len(b.heal), b.late, "it waited too long")
	}
	d := newTimed(t)
	d.now = time.Now()
	d.claim("imei")
	d.now = suspended(d.now, time.Minute)
	what, _ := d.batch()
	require.Equal(t, "heal", what, "it does not overwrite what has moved meanwhile")
}

// suspended returns the time after a machine was suspended at now for d: only the wall clock moves.
// In a time with a monotonic reading, the wall clock's seconds start at bit 30 of the first word.
func suspended(now time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&now)) += uint64(d/time.Second) << 30
	return now
}

func TestAWriteOfUnknownFateCountsForExactlyATTL(t *testing.T) {
	t.Parallel()
	for waited, want := range map[time.Duration]state{90*time.Second - 1: released, 90 * time.Second: forgotten} {
		d := newTimed(t)
		c := d.in(released)
		d.retry(d.now)
		_, ops := d.batch()
		d.now = d.now.Add(waited)
		d.answer(ops, reply{}, nil)
		require.Equal(t, want, c.h.state)
		require.Equal(t, want == released, len(d.again) == 1)
		require.Empty(t, d.miscounted())
	}
	d := newTimed(t)
	d.claim("imei")
	d.writes(reply{}, errLost)
	require.False(t, d.indexDiffers(1, d.now.Add(d.ttl)))
	require.True(t, d.indexDiffers(1, d.now.Add(d.ttl+1)))
}

func TestWhatAScanFindsOfAReleasedDeviceIsReleasedAgain(t *testing.T) {
	t.Parallel()
	d := newTimed(t)
	c := d.in(released)
	d.named("imei", 1)
	require.Equal(t, releasing, c.h.state)
	require.False(t, d.idle())
	require.Empty(t, d.miscounted())
	d.named("imei", 2) // it is queued
	require.Equal(t, 1, d.urgent.Len())
	d = newTimed(t)
	held := d.stands("held")
	d.named("held", 1)
	require.Equal(t, standing, held.h.state)
}

func TestDevicesAreForgottenOnceMoreAreLeftThanAreHeld(t *testing.T) {
	t.Parallel()
	d := newTimed(t)
	d.spare = 2
	claims := make([]*Claim, 8)
	for i := range claims {
		claims[i] = d.stands(fmt.Sprint(i))
	}
	d.away = true
	for i, c := range claims[:5] {
		d.release(c, d.now)
		require.Equal(t, releasing, c.h.state, "%d are left, %d are held", i+1, 7-i)
		require.True(t, d.searchUntil.IsZero())
	}
	d.release(claims[5], d.now) // six are left, and two are held
	require.Equal(t, forgotten, claims[5].h.state)
	require.Equal(t, d.now.Add(d.ttl), d.searchUntil)
	d.away = false
	d.release(claims[6], d.now)
	require.Equal(t, releasing, claims[6].h.state, "writes succeed again")
	require.Empty(t, d.miscounted())
}

func TestWhatAnotherOwnerSaysIsCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked  bool // this owner has asked the other
		pings  bool // the socket here can be pinged
		theirs int  // handshake, ms after that here; with 'not yet', not pinged yet
		notYet bool
		does   string
	}{
		"newer there":                              {false, false, 1, false, "ends"},
		"newer there, it answers":                  {true, false, 1, false, "ends"},
		"newer there, not pinged yet":              {false, true, 1, true, "answers"},
		"newer there, it asks without a ping here": {true, false, 1, true, "answers"},
		"at one instant":                           {false, false, 0, false, "answers"},
		"at one instant, it answers":               {true, false, 0, false, "ends"},
		"newer here":                               {false, false, -1, true, "answers"},
		"newer here, it answers":                   {true, false, -1, false, "answers"},
		"newer here, not pinged yet":               {true, true, -1, true, "pings"},
		"newer here, not pinged yet, and pinged":   {false, true, -1, false, "pings"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTimed(t)
			claim := d.stands("imei")
			if c.pings {
				claim.sock.Ping = func(context.Context) error { return nil }
			}
			if c.asked {
				d.namesR2(claim)
				d.wasAsked("r2", []*Claim{claim}, 1, d.now)
			}
			clear(d.asks)
			d.now = d.now.Add(time.Minute)
			at := d.clock.handshake(claim) + int64(c.theirs)
			if c.notYet {
				at = -at
			}
			words := []string{fmt.Sprint(d.clock.when(d.now)), "1", "nobody's", fmt.Sprint(at), "imei", "x", "imei"}
			newer := d.compare("r2", words, d.now)
			does := "ends"
			switch {
			case len(newer) > 0:
				does = "pings"
			case len(d.asks["r2"]) > 0:
				does = "answers"
			}
			require.Equal(t, c.does, does)
			require.Equal(t, c.does == "ends", claim.h.claim == nil)
			require.Equal(t, c.does == "ends", claim.why == error(MovedError{"r2"}))
			require.Equal(t, releasing, d.holdings["nobody's"].state, "what is not held is handed back")
			if c.does == "ends" {
				require.Equal(t, []string{"nobody's", "imei"}, d.heard["r2"])
			} else {
				require.Equal(t, c.does == "pings", slices.Contains(d.heard["r2"], "imei"))
				require.Empty(t, d.compare("r2", words, d.now.Add(answerEvery-1)), "answers are rare")
				require.LessOrEqual(t, len(d.asks["r2"]), 1)
			}
			require.False(t, claim.h.dispute != nil && !claim.h.dispute.asked.IsZero())

			d.heard = map[string][]string{}
			b := d.next(d.now)
			require.NotEmpty(t, b.release)
			d.answer(b.release, reply{}, nil)
			require.Equal(t, c.does == "ends", slices.Contains(d.heard["r2"], "imei"), "it is out")
			require.Contains(t, d.heard["r2"], "nobody's")
			require.Empty(t, d.lost)
			require.Empty(t, d.miscounted())
		})
	}
}

func TestAMessageThatWasSlowOrMakesNoSenseIsIgnored(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{
		{"x", "9000", "imei"}, {"-1001", "9000", "imei"}, {"1001", "9000", "imei"}, {"0"}, {"0", "9000"}, {"0", "x", "imei", "9000", "imei"},
	} {
		d := newTimed(t)
		claim := d.stands("imei")
		for i, w := range words[:min(2, len(words))] {
			if ms, err := strconv.ParseInt(w, 10, 64); err == nil {
				words[i] = fmt.Sprint(anInstant.UnixMilli() + ms)
			}
		}
		require.Empty(t, d.compare("r2", words, d.now))
		require.Equal(t, standing, claim.h.state, "%v", words)
		require.Empty(t, d.heard)
		require.Len(t, d.holdings, 1)
	}
}

func TestAnOwnerThatBeatsAndDealsWithNothingForTwoIntervalsKeepsTheID(t *testing.T) {
	t.Parallel()
	d := newTimed(t)
	c := d.stands("imei")
	d.namesR2(c)
	beat := d.interval.Milliseconds()
	ask := func(owner string, until int64, after time.Duration) bool {
		d.now = d.now.Add(after)
		d.wasAsked(owner, []*Claim{c}, until, d.now)
		return c.h.claim == c
	}
	require.True(t, ask("r2", 1, 0))
	require.True(t, ask("r2", 1+beat, 2*d.interval-1))
	require.True(t, ask("r3", 1+beat, 2*d.interval), "it is not asked about it any more")
	d.noticed("r3", []string{"imei"})
	require.False(t, c.h.dispute.asked.IsZero())
	d.noticed("r2", []string{"nobody's", "imei"})
	require.True(t, c.h.dispute.asked.IsZero())
	require.True(t, ask("r2", 1, 0))
	require.True(t, ask("r2", absent, d.interval), "it is dead")
	require.True(t, ask("r2", 1, 0))
	require.True(t, ask("r2", 1+beat/2, 2*d.interval), "it may be dead: it has not beaten since")
	require.False(t, ask("r2", 2+beat/2, 0))
	require.Equal(t, ErrTaken, c.why)
	d.writes(reply{}, nil) // it is released
	c = d.stands("forever")
	d.namesR2(c)
	require.True(t, ask("r2", forever, 0))
	require.False(t, ask("r2", forever, 2*d.interval))
	d.writes(reply{}, nil)
	c = d.stands("imei")
	d.namesR2(c)
	newer := d.claim("imei")
	ask("r2", 1, 0)
	ask("r2", 1+beat, 2*d.interval)
	require.Equal(t, registering, newer.h.state, "it was asked about an older claim")
}

func TestWhichErrorsAreRefusals(t *testing.T) {
	t.Parallel()
	for want, errs := range map[bool][]string{
		true: {
			"NOPERM no rights", "WRONGPASS", "READONLY a replica", "READONLY Client and Control are not there",
			"ERR unknown command",
		},
		false: {
			"READONLY former primary", "ERR max number of clients reached", "LOADING it loads", "BUSY a script",
			"OOM no memory", "MISCONF no disk", "NOREPLICAS too few", "MASTERDOWN a replica", "CLUSTERDOWN no slots",
			"TRYAGAIN a slot moves",
		},
	} {
		for _, err := range errs {
			require.Equal(t, want, refused(says(err)), err)
			require.Equal(t, want, refused(fmt.Errorf("wrapped: %w", says(err))), err)
		}
	}
	for _, err := range []error{errLost, redis.Nil, errors.New("NOPERM, but no server said so")} {
		require.False(t, refused(err), err)
	}
}

func TestAnOutageAndARefusalAreLoggedOnceUntilTheyAreOver(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(lease.Options(&redis.Options{}))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	var log bytes.Buffer
	r, err := New(Config{Client: c, Control: c, Instance: "me", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	for _, want := range []int{1, 2} {
		for _, err := range []error{errLost, says("WRONGPASS"), says("LOADING"), says("WRONGPASS"), errLost} {
			r.fail("heartbeat", err, 1)
			r.fail("register", err, 1)
		}
		require.Equal(t, want, strings.Count(log.String(), "level=ERROR"), log.String())
		require.Equal(t, want, strings.Count(log.String(), "level=WARN"), log.String())
		r.recovered("heartbeat")
		r.recovered("register")
		require.Equal(t, 2*want, strings.Count(log.String(), "works again"), log.String())
	}
	r.fail("heartbeat", errLost, 1)
	r.recovered("heartbeat")
	r.fail("register", errLost, 1)
	require.Equal(t, 4, strings.Count(log.String(), "level=WARN"), "another outage")
}

// says is a server's error.
type says string

func (s says) Error() string { return string(s) }

// RedisError implements redis.Error.
func (says) RedisError() {}

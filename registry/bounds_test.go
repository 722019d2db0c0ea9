package registry

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/lease"
)

func TestAFrameHasItsEntryCheckedOnceASecond(t *testing.T) {
	t.Parallel()
	d := newTimed()
	c := d.stands(t, "imei")
	d.now = d.now.Add(checkEvery - 1)
	d.frameReceived(c, d.now)
	require.Zero(t, d.checks.Len(), "too soon")
	d.retry(d.now)
	require.Zero(t, d.checks.Len())
	d.now = d.now.Add(1)
	d.retry(d.now)
	what, ops := d.batch(t)
	require.Equal(t, "check", what, "it is made up for")
	d.entry(ops, "me", nil)
	require.Empty(t, d.again)

	d.now = d.now.Add(checkEvery)
	d.frameReceived(c, d.now)
	_, ops = d.batch(t)
	require.Len(t, ops, 1)
	d.frameReceived(c, d.now)
	require.Zero(t, d.checks.Len(), "one is under way")
	d.entry(ops, "me", nil)
}

func TestAHandshakeAndAFrameAreFreshForLessThanASecond(t *testing.T) {
	t.Parallel()
	for waited, want := range map[time.Duration][2]string{
		fresh - 1: {"register", "heal"},
		fresh:     {"heal", "check"},
	} {
		d := newTimed()
		d.claim("imei")
		d.now = d.now.Add(waited)
		b := d.next(d.now)
		require.Equal(t, want[0] == "register", len(b.register) == 1)
		require.Equal(t, len(b.heal), b.late, "it waited too long")

		d = newTimed()
		c := d.in(t, proven)
		d.now = d.now.Add(waited)
		what, ops := d.batch(t)
		require.Equal(t, want[1], what)
		if what == "heal" {
			require.Equal(t, "r2", ops[0].seen)
			require.Len(t, d.wanted(ops, d.now), 1)
			require.Empty(t, d.wanted(ops, d.now.Add(1)), "it has aged meanwhile")
		}
		require.Equal(t, foreign, c.h.state)
	}
}

func TestAWriteOfUnknownFateCountsForExactlyATTL(t *testing.T) {
	t.Parallel()
	for waited, want := range map[time.Duration]state{90*time.Second - 1: released, 90 * time.Second: forgotten} {
		d := newTimed()
		c := d.in(t, released)
		d.retry(d.now)
		_, ops := d.batch(t)
		d.now = d.now.Add(waited)
		d.answer(ops, reply{}, nil)
		require.Equal(t, want, c.h.state)
		require.Equal(t, want == released, len(d.again) == 1)
		require.Empty(t, d.miscounted())
	}
	d := newTimed()
	d.claim("imei")
	_, ops := d.batch(t)
	d.answer(ops, reply{}, errLost)
	require.False(t, d.indexDiffers(1, d.now.Add(d.ttl)))
	require.True(t, d.indexDiffers(1, d.now.Add(d.ttl+1)))
}

func TestWhatAScanFindsOfAReleasedDeviceIsReleasedAgain(t *testing.T) {
	t.Parallel()
	d := newTimed()
	c := d.in(t, released)
	d.named("imei", 1)
	require.Equal(t, releasing, c.h.state)
	require.False(t, d.idle())
	require.Empty(t, d.miscounted())
	d.named("imei", 2) // it is queued
	require.Equal(t, 1, d.urgent.Len())
	d = newTimed()
	held := d.stands(t, "held")
	d.named("held", 1)
	require.Equal(t, standing, held.h.state)
}

func TestDevicesAreForgottenOnceMoreAreLeftThanAreHeld(t *testing.T) {
	t.Parallel()
	d := newTimed()
	d.spare = 2
	claims := make([]*Claim, 8)
	for i := range claims {
		claims[i] = d.stands(t, fmt.Sprint(i))
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
		asked     bool // this owner has asked the other
		pairs     []string
		displaced bool // the socket here must be checked
		later     bool // the other owner gets a message
		heard     bool // the other owner gets a confirmation
	}{
		"heard there later":                {false, []string{"999", "imei"}, true, false, true},
		"heard at one instant":             {false, []string{"1000", "imei"}, false, true, false},
		"heard here later":                 {false, []string{"1001", "imei"}, false, true, false},
		"heard there later, it answers":    {true, []string{"999", "imei"}, true, false, false},
		"heard at one instant, it answers": {true, []string{"1000", "imei"}, true, false, false},
		"heard here later, it answers":     {true, []string{"1001", "imei"}, false, false, false},
		"no number":                        {false, []string{"x", "imei"}, false, false, false},
		"behind what is no number":         {false, []string{"x", "imei", "999", "imei"}, false, false, false},
		"a word alone":                     {false, []string{"999"}, false, false, false},
		"behind another one":               {false, []string{"1", "nobody's", "999", "imei"}, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTimed()
			claim := d.stands(t, "imei")
			if c.asked {
				d.namesR2(t, claim)
			}
			d.now = claim.heard.Add(time.Second)
			if c.asked {
				d.answered("r2", []*Claim{claim}, false, true, d.now)
			}
			later, heard := d.compare("r2", c.pairs, d.now)
			require.Equal(t, c.heard, slices.Contains(heard, "imei"))
			require.False(t, claim.h.dispute != nil && claim.h.dispute.unheard)
			require.Equal(t, c.later, len(later) == 1)
			if c.displaced {
				require.Equal(t, []displacement{{"imei", "r2"}}, d.displaced)
			} else {
				require.Empty(t, d.displaced)
			}
			if other := d.holdings["nobody's"]; other != nil {
				require.Equal(t, releasing, other.state, "what is not held is handed back")
				require.Contains(t, heard, "nobody's")
			}
			require.Equal(t, name == "behind another one", len(d.holdings) == 2)
		})
	}
}

func TestADisplacedSocketIsToldOfAgainAfterFiveMinutesOrAFrame(t *testing.T) {
	t.Parallel()
	d := newTimed()
	c := d.stands(t, "imei")
	told := func(after time.Duration) int {
		d.now, d.displaced = d.now.Add(after), nil
		d.displace(c.h, "r2", d.now)
		return len(d.displaced)
	}
	require.Equal(t, 1, told(0))
	require.Zero(t, told(0))
	require.Zero(t, told(tellAgain-1))
	require.Equal(t, 1, told(1))
	d.frameReceived(c, d.now)
	require.Zero(t, told(time.Second), "a frame of the same instant")
	d.frameReceived(c, d.now)
	require.Equal(t, 1, told(time.Second))
}

func TestAnOwnerThatTwiceDoesNotHearIsNotTheOneToCheck(t *testing.T) {
	t.Parallel()
	d := newTimed()
	c := d.stands(t, "imei")
	d.namesR2(t, c)
	for i, step := range []struct {
		owner string
		heard bool
		want  int
	}{
		{"r2", false, 0}, {"r3", false, 0}, {"r2", true, 0}, {"r2", false, 0}, {"r2", false, 1}, {"r2", true, 0},
	} {
		d.displaced, c.told = nil, time.Time{}
		d.answered(step.owner, []*Claim{c}, step.heard, true, d.now)
		require.Len(t, d.displaced, step.want, "step %d", i)
	}
	d.displaced, c.told = nil, time.Time{}
	d.answered("r2", []*Claim{c}, false, true, d.now)
	d.wasHeard("r3", []string{"imei"})
	require.True(t, c.h.dispute.unheard)
	d.wasHeard("r2", []string{"nobody's", "imei"})
	d.answered("r2", []*Claim{c}, false, true, d.now)
	require.Empty(t, d.displaced, "it heard the first of the two, and may yet say so of the second")
	newer := d.claim("imei")
	d.answered("r2", []*Claim{c}, false, true, d.now)
	d.answered("r2", []*Claim{c}, false, true, d.now)
	require.Empty(t, d.displaced, "it was asked about an older claim")
	require.Equal(t, registering, newer.h.state)
}

func TestWhichErrorsAreRefusals(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		says("NOPERM no rights"):                          true,
		says("WRONGPASS"):                                 true,
		says("READONLY a replica"):                        true,
		says("READONLY Client and Control are not there"): true,
		says("ERR unknown command"):                       true,
		says("READONLY former primary"):                   false,
		says("ERR max number of clients reached"):         false,
		says("LOADING it loads"):                          false,
		says("BUSY a script"):                             false,
		says("OOM no memory"):                             false,
		says("MISCONF no disk"):                           false,
		says("NOREPLICAS too few"):                        false,
		says("MASTERDOWN a replica"):                      false,
		says("CLUSTERDOWN no slots"):                      false,
		says("TRYAGAIN a slot moves"):                     false,
		errLost:                                           false,
	} {
		require.Equal(t, want, refused(err), err)
		require.Equal(t, want, refused(fmt.Errorf("wrapped: %w", err)), err)
	}
	require.False(t, refused(redis.Nil))
	require.False(t, refused(errors.New("NOPERM, but no server said so")))
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

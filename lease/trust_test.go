package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return begin.Add(d) }

func TestTheTrustWindowBeginsWithTheRequestAndEndsAMarginEarly(t *testing.T) {
	t.Parallel()
	tr := trustWindow{since: begin, times: timings(15 * time.Second)}
	for name, c := range map[string]struct {
		now          time.Duration
		left, budget time.Duration
	}{
		"at the request everything but the margin is left": {0, 13500 * time.Millisecond, 5 * time.Second},
		"a call may take a third of the TTL":               {8 * time.Second, 5500 * time.Millisecond, 5 * time.Second},
		"but not longer than the window that is left":      {10 * time.Second, 3500 * time.Millisecond, 3500 * time.Millisecond},
		"just before the end there is just that left":      {13499 * time.Millisecond, time.Millisecond, time.Millisecond},
		"at the end there is none":                         {13500 * time.Millisecond, 0, 0},
		"nor within the margin, though the key is there":   {14 * time.Second, 0, 0},
		"an hour later it is not negative":                 {time.Hour, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.left, tr.left(at(c.now)))
			require.Equal(t, c.budget, tr.budget(at(c.now)))
		})
	}
}

func TestASlowSuccessfulRenewalDoesNotExtendTheTrustWindow(t *testing.T) {
	t.Parallel()
	tr := trustWindow{since: begin, times: timings(15 * time.Second)}
	for name, c := range map[string]struct {
		begun, reply time.Duration
		ok           bool
		until        time.Duration
	}{
		"a quick reply counts from its request":             {5 * time.Second, 5 * time.Second, true, 18500 * time.Millisecond},
		"a slow reply counts from its request too":          {5 * time.Second, 10 * time.Second, true, 18500 * time.Millisecond},
		"a reply in the last moment counts":                 {13 * time.Second, 13499 * time.Millisecond, true, 26500 * time.Millisecond},
		"a reply after the window does not bring it back":   {5 * time.Second, 13500 * time.Millisecond, false, 13500 * time.Millisecond},
		"nor does the reply that a paused process finds":    {5 * time.Second, time.Hour, false, 13500 * time.Millisecond},
		"nor a renewal that began after it and was granted": {14 * time.Second, 14 * time.Second, false, 13500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := tr.renewed(at(c.begun), at(c.reply))
			require.Equal(t, c.ok, ok)
			require.Equal(t, at(c.until), got.until())
		})
	}
}

func TestDurationsFollowFromTheTTL(t *testing.T) {
	t.Parallel()
	c := timings(15 * time.Second)
	require.Equal(t, []time.Duration{
		15 * time.Second, 1500 * time.Millisecond, 5 * time.Second, 750 * time.Millisecond, 3 * time.Second,
		5 * time.Second, time.Second,
	}, []time.Duration{c.ttl(), c.margin(), c.renew(), c.again(), c.retry(), c.call(), c.part()})
	least, most := time.Hour, time.Duration(0)
	for range 10_000 {
		d := c.nextAttempt()
		least, most = min(least, d), max(most, d)
	}
	require.InDelta(t, 2.4, least.Seconds(), 0.01)
	require.InDelta(t, 3.6, most.Seconds(), 0.01)
}

func TestDurationsRelateForEveryTTL(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{minTTL, time.Second, 15 * time.Second, time.Hour} {
		c := timings(ttl)
		trusted := c.ttl() - c.margin()
		require.Less(t, c.renew()+c.call()+c.again(), trusted, "a renewal that hangs leaves time for another")
		require.LessOrEqual(t, c.ttl(), timings(c.distant()).margin(), "no more than our TTL is left where it was trusted")
		require.Less(t, releaseTries*(c.part()+c.again()), c.ttl(), "releasing is over before the lease is")
		for range 1000 {
			d := c.nextAttempt()
			require.GreaterOrEqual(t, d, c.retry()*8/10)
			require.LessOrEqual(t, d, c.retry()*12/10)
		}
	}
}

func TestTheStuckLeaseWatchEndsOnlyForALeaseThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type look struct {
		at    time.Duration
		token string
		left  time.Duration
	}
	every3 := func(token string, n int, left func(i int) time.Duration) (ls []look) {
		for i := range n {
			ls = append(ls, look{time.Duration(i) * 3 * s, token, left(i)})
		}
		return ls
	}
	forever := func(int) time.Duration { return -1 }
	hour := func(i int) time.Duration { return time.Hour - time.Duration(i)*3*s }
	backBy := func(d time.Duration) func(int) time.Duration { // after the first look
		return func(i int) time.Duration { return 10*s + time.Duration(min(i, 1))*d - time.Duration(i)*3*s }
	}
	back := backBy(24 * time.Hour)
	lateThenBack := func(i int) time.Duration { // a longer TTL, renewed when little was left
		if i < 2 {
			return []time.Duration{12 * s, 100 * s}[i]
		}
		return 2*time.Hour - time.Duration(i)*3*s
	}
	inTheLastMoment := func(i int) time.Duration { // and with a TTL ten times as long
		return []time.Duration{15 * s, 150 * s}[min(i, 1)] - time.Duration(max(0, i-1))*3*s
	}

	for name, c := range map[string]struct {
		looks []look
		stuck bool // at the last look, and not earlier
	}{
		"no expiry for a whole TTL":                          {every3("a/1", 6, forever), true},
		"no expiry, but not yet for a whole TTL":             {every3("a/1", 5, forever), false},
		"an hour, falling":                                   {every3("a/1", 200, hour), false},
		"ten minutes, falling until its holder renews it":    {every3("a/1", 600, func(i int) time.Duration { return 600*s - time.Duration(i%66)*3*s }), false},
		"falling by less than the time that passes":          {every3("a/1", 20, func(i int) time.Duration { return time.Hour - time.Duration(i)*time.Millisecond }), false},
		"falling first, then standing still":                 {every3("a/1", 8, func(i int) time.Duration { return hour(min(i, 2)) }), true},
		"an hour, standing still":                            {every3("a/1", 6, func(int) time.Duration { return time.Hour }), true},
		"an expiry within the TTL is as it should be":        {every3("a/1", 20, func(int) time.Duration { return 15 * s }), false},
		"a live holder with a longer TTL makes it rise":      {every3("a/1", 20, func(i int) time.Duration { return 60*s - time.Duration(i%4)*3*s }), false},
		"a live holder whose lease loses its expiry for now": {every3("a/1", 20, func(i int) time.Duration { return []time.Duration{-1, 15 * s}[i%2] }), false},
		"an expiry that is taken away rises":                 {append(every3("a/1", 5, hour), look{15 * s, "a/1", -1}), false},
		"an expiry that is given":                            {append(every3("a/1", 5, forever), look{15 * s, "a/1", time.Hour}), false},
		"another holder starts it anew":                      {append(every3("a/1", 5, forever), look{15 * s, "b/2", -1}), false},
		"a look each half a TTL is enough":                   {[]look{{0, "a/1", -1}, {7500 * time.Millisecond, "a/1", -1}, {15 * s, "a/1", -1}}, true},
		"nobody knows what happened while nobody looked":     {append(every3("a/1", 4, forever), look{30 * s, "a/1", -1}), false},
		"the clock went back, and nobody renews":             {every3("a/1", 7, back), true},
		"it went back by three minutes, and nobody renews":   {every3("a/1", 7, backBy(3*time.Minute)), true},
		"by less than ten TTLs: that ends by itself":         {every3("a/1", 40, backBy(2*time.Minute)), false},
		"a holder with a longer TTL that was late, and then": {every3("a/1", 30, lateThenBack), false},
		"a TTL ten times as long, renewed in the last tenth": {every3("a/1", 40, inTheLastMoment), false},
		"the clock went back, but not yet for a whole TTL":   {every3("a/1", 6, back), false},
		"the clock went back, and its holder renews":         {append(every3("a/1", 6, back), look{18 * s, "a/1", 15 * s}, look{21 * s, "a/1", 12 * s}), false},
		"the clock went back, and another holds it":          {append(every3("a/1", 6, back), look{18 * s, "b/2", back(6)}, look{33 * s, "b/2", back(11)}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v stuckWatch
			for i, l := range c.looks {
				got := v.saw(Holder{Token: l.token, TTL: l.left}, at(l.at), timings(15*s))
				require.Equal(t, c.stuck && i == len(c.looks)-1, got, "look %d", i)
			}
		})
	}
}

func TestInstanceIsReadFromTheToken(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]string{
		"host-1/ABC":    "host-1",
		"zone/host/ABC": "zone/host",
		"by-hand":       "by-hand",
		"/ABC":          "/ABC",
		"":              "",
		"\x00\xff/":     "\x00\xff",
	} {
		require.Equal(t, want, instanceOf(token), "%q", token)
	}
}

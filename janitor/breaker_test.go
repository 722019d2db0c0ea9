package janitor

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
)

var fleetTiming = guard.Timing{Interval: 30 * time.Second, TTL: 90 * time.Second}

// looks is a script: at each of these seconds, who is on the roster and lives ("a"), is silent
// ("-a"), silent after a goodbye ("~a"), or unreadable ("?a").
type looks map[time.Duration][]string

func TestTheBreaker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks   looks
		at      time.Duration
		fallen  int
		known   int
		tripped bool
	}{
		"all live": {
			looks: looks{0: {"a", "b", "c"}}, at: 0, known: 3,
		},
		"one of three that dies is believed": {
			looks: looks{0: {"a", "b", "c"}, 1: {"a", "b", "-c"}}, at: 1, fallen: 1, known: 3,
		},
		"two of three that die are not": {
			looks: looks{0: {"a", "b", "c"}, 1: {"a", "-b", "-c"}}, at: 1, fallen: 2, known: 3, tripped: true,
		},
		"two of four are half and believed": {
			looks: looks{0: {"a", "b", "c", "d"}, 1: {"a", "b", "-c", "-d"}}, at: 1, fallen: 2, known: 4,
		},
		"the only owner that dies is believed": {
			looks: looks{0: {"a"}, 1: {"-a"}}, at: 1, fallen: 1, known: 1,
		},
		"one after the other within a TTL counts together": {
			looks: looks{0: {"a", "b", "c"}, 100: {"a", "b", "-c"}, 180: {"a", "-b", "-c"}}, at: 180, fallen: 2, known: 3, tripped: true,
		},
		"more than a TTL apart does not": {
			looks: looks{0: {"a", "b", "c"}, 100: {"a", "b", "-c"}, 191: {"a", "-b", "-c"}}, at: 191, fallen: 1, known: 2,
		},
		"goodbyes do not count": {
			looks: looks{0: {"a", "b", "c"}, 1: {"a", "~b", "~c"}}, at: 1, known: 3,
		},
		"a goodbye that left nothing behind takes its owner off the roster": {
			looks: looks{0: {"a", "b", "c"}, 1: {"a"}}, at: 1, known: 3,
		},
		"a goodbye read late, after the silence, counts as one": {
			looks: looks{0: {"a", "b", "c"}, 1: {"a", "-b", "-c"}, 2: {"a"}}, at: 2, known: 3,
		},
		"a new leader takes who is silent on the roster as fallen now": {
			looks: looks{0: {"a", "-b", "-c"}}, at: 0, fallen: 2, known: 3, tripped: true,
		},
		"a new leader believes one silent of two": {
			looks: looks{0: {"a", "-b"}}, at: 0, fallen: 1, known: 2,
		},
		"who comes to the roster silent later was never seen alive": {
			looks: looks{0: {"a"}, 1: {"a", "-x", "-y", "-z"}}, at: 1, known: 1,
		},
		"who cannot be read neither falls nor leaves": {
			looks: looks{0: {"a", "b", "c"}, 1: {"a", "?b", "?c"}}, at: 1, known: 3,
		},
		"who comes back has not fallen": {
			looks: looks{0: {"a", "b", "c"}, 1: {"a", "-b", "-c"}, 2: {"a", "b", "c"}}, at: 2, known: 1,
		},
		"newcomers do not hide that the old ones died": {
			looks:  looks{0: {"a", "b", "c"}, 100: {"-a", "-b", "c", "n1", "n2", "n3", "n4"}},
			at:     100,
			fallen: 2, known: 3, tripped: true,
		},
		"newcomers that fall again are known by their fall": {
			looks: looks{0: {"a", "b", "c"}, 100: {"a", "b", "c", "n"}, 130: {"a", "b", "c", "-n"}}, at: 130, fallen: 1, known: 4,
		},
		"what fell long ago and was never swept is forgotten": {
			looks: looks{0: {"a", "-b", "-c"}, 100: {"a", "-b", "-c"}}, at: 100, known: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, start := newBreaker(fleetTiming, time.Minute), time.Now()
			for s := time.Duration(0); s <= c.at; s++ {
				if look, ok := c.looks[s]; ok {
					r := roster(look)
					tr.rosterRead(start.Add(s*time.Second), r, byes(look), gone(tr, r))
				}
			}
			n := tr.count(start.Add(c.at * time.Second))
			require.Equal(t, c.fallen, n.fallen, "fallen")
			require.Equal(t, c.known, n.known, "known")
			require.Equal(t, c.tripped, n.tripped())
		})
	}
}

func roster(look []string) map[string]Liveness {
	r := map[string]Liveness{}
	for _, who := range look {
		switch who[0] {
		case '-', '~':
			r[who[1:]] = Dead
		case '?':
			r[who[1:]] = Unreadable
		default:
			r[who] = Alive
		}
	}
	return r
}

func byes(look []string) map[string]bool {
	b := map[string]bool{}
	for _, who := range look {
		if who[0] == '~' {
			b[who[1:]] = true
		}
	}
	return b
}

func TestTheBreakerKnowsOwnersWithoutARosterByTheFullScan(t *testing.T) {
	t.Parallel()
	tr, now := newBreaker(fleetTiming, time.Minute), time.Now()
	tr.rosterRead(now, roster([]string{"leader"}), nil, gone(tr, roster([]string{"leader"})))
	for _, id := range []string{"x", "y"} {
		tr.judged(now, id, Alive, false)
	}
	tr.judged(now, "long-dead", Dead, false) // never seen alive
	now = now.Add(120 * time.Second)
	for _, id := range []string{"x", "y"} {
		tr.judged(now, id, Dead, false)
	}
	n := tr.count(now)
	require.Equal(t, 2, n.fallen)
	require.Equal(t, 3, n.known)
	require.True(t, n.tripped())

	// An owner that full scans no longer meet is not believed alive for ever.
	now = now.Add(time.Hour)
	tr.rosterRead(now, roster([]string{"leader"}), nil, gone(tr, roster([]string{"leader"})))
	require.Len(t, tr.owners, 1)
}

func TestTheBreakerDoesNotTakeOurOwnSweepingForAGoodbye(t *testing.T) {
	t.Parallel()
	tr, now := newBreaker(fleetTiming, time.Minute), time.Now()
	tr.rosterRead(now, roster([]string{"a", "b", "c"}), nil, gone(tr, roster([]string{"a", "b", "c"})))
	now = now.Add(time.Second)
	tr.rosterRead(now, roster([]string{"a", "b", "-c"}), nil, gone(tr, roster([]string{"a", "b", "-c"})))
	tr.swept("c")
	now = now.Add(time.Second)
	tr.rosterRead(now, roster([]string{"a", "-b"}), nil, gone(tr, roster([]string{"a", "-b"})))
	n := tr.count(now)
	require.Equal(t, 2, n.fallen, "swept or not")
	require.Equal(t, 3, n.known)
	require.True(t, n.tripped())
}

// gone is what a look finds of owners that left the roster: silence, as after a goodbye.
func gone(t *breaker, roster map[string]Liveness) map[string]Liveness {
	left := map[string]Liveness{}
	missing, _ := t.absent(slices.Collect(maps.Keys(roster)))
	for _, id := range missing {
		left[id] = Dead
	}
	return left
}

func TestTheBreakerOfAFullScan(t *testing.T) {
	t.Parallel()
	tr, now := newBreaker(fleetTiming, time.Minute), time.Now()
	tr.rosterRead(now, roster([]string{"leader", "b"}), nil, nil)
	for _, id := range []string{"v", "w", "x", "y", "z"} {
		tr.met(now, id, Dead)
		tr.judged(now, id, Dead, false)
	}
	n := tr.count(now)
	require.Equal(t, 5, n.fallen)
	require.Equal(t, 7, n.known)
	require.True(t, n.tripped())

	tr.metAll = true
	tr.met(now, "long-dead", Dead)
	tr.judged(now, "long-dead", Dead, false)
	n = tr.count(now)
	require.Equal(t, 5, n.fallen, "an owner that is met later was not there when the term began")
}

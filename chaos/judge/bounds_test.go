package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leaderDies is a death of a, which leads, with three devices; b takes over, and sweeps after as
// long as is said, in whole seconds from the heartbeat's end.
func leaderDies(takeOver, sweep time.Duration) func(s *builder) {
	return func(s *builder) {
		s.boots("a", "b")
		s.leads("a")
		s.registers("a", "1", "2", "3")
		s.passes(9 * time.Second)
		s.died("a", Killed, true)
		s.dies("a")
		s.passes(takeOver)
		s.leads("b")
		s.passes(6*time.Second - takeOver)
		s.expires("a")
		s.passes(sweep)
		s.happens("%s", s.evicts("a", "1", "2", "3"))
		s.passes(time.Second)
	}
}

// twoDie is the death of a and c, not of the others; a is swept 15 seconds later.
func twoDie(others ...string) func(s *builder) {
	return func(s *builder) {
		s.boots(append(others, "a", "c")...)
		s.leads("b")
		s.registers("a", "1")
		s.passes(9 * time.Second)
		for _, id := range []string{"a", "c"} {
			s.died(id, Killed, false)
			s.dies(id)
		}
		s.passes(6 * time.Second)
		s.expires("a")
		s.expires("c")
		s.passes(9 * time.Second)
		s.happens("%s", s.evicts("a", "1"))
	}
}

// TTL 6 s, lease 3 s and 0.72 s to ask again, janitor 3 s, slack 1 s: the lease is due after 4.72
// s, entries are after 10 s.
func TestBoundsAreHeld(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"in time":            leaderDies(4*time.Second, 4*time.Second),
		"most died: a doubt": twoDie("b"),
		"a hold puts it off": func(s *builder) {
			s.upToDeath()
			s.facts.Slack = 0
			s.died("a", Killed, false)
			s.holds("self_check")
			s.passes(11 * time.Second)
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		},
		"nobody was to sweep": func(s *builder) {
			s.upToDeath()
			s.died("a", Killed, false)
			s.passes(20 * time.Second)
			s.facts.Held = []Outage{{From: s.now.Add(-15 * time.Second), Until: s.now.Add(-4 * time.Second)}}
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		},
		"nobody could ask for the lease": tells(`
			boots a
			leads a
			died a killed led
			dies a
			passes 10s
			out - 9s
			leads b
		`),
		"it woke up": func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.died("a", Stopped, false)
			s.alive = nil
			s.passes(8 * time.Second)
			s.boots("a")
			s.passes(20 * time.Second)
		},
		"a new life of it took its entries out": tells(`
			boots a
			registers a 1
			died a killed
			dies a
			passes 2s
			happens SET instance:heartbeat:a <0s>/boot-z PXAT <6s>
			passes 20s
			releases a 1
		`),
		"the history ends before": tells(`
			boots a
			registers a 1
			leads a
			died a killed led
			dies a
			passes 3s
		`),
		"its last beat was on the way": tells(`
			upToDeath
			died a killed
			passes 1s
			beat a
			passes 6s
			expires a
			passes 4s
			evicts a 1 2 3
		`),
	})
	rejects(t, map[string]bad{
		"the lease is taken late": {"C6", leaderDies(5*time.Second, 4*time.Second)},
		"entries go late":         {"C6", leaderDies(4*time.Second, 5*time.Second)},
		"half died: no doubt":     {"C6", twoDie("b", "d")},
		"a released lease is taken late": {"C6", tells(`
			boots a
			leads a
			died a released led
			happens DEL janitor:leader
			passes 2s
			leads b
		`)},
		"nobody takes the lease": {"C6", tells(`
			boots a
			leads a
			died a killed led
			dies a
			happens DEL instance:heartbeat:a
			passes 6s
		`)},
		"entries stay": {"C6", tells(`
			upToDeath
			died a cut-off
			passes 12s
		`)},
		"it was back, but too late": {"C6", tells(`
			upToDeath
			died a stopped
			passes 12s
			boots a
		`)},
		"a hold long after puts nothing off": {"C6", tells(`
			upToDeath
			died a killed
			passes 12s
			holds self_check
			passes 9s
			evicts a 1 2 3
		`)},
	})
}

func TestTheVerdictTellsHowLongItTook(t *testing.T) {
	t.Parallel()
	s := newBuilder()
	leaderDies(3*time.Second, time.Second)(s)
	v := Judge(s.history, s.facts)
	require.Empty(t, v.Violations)
	require.Equal(t, []time.Duration{3 * time.Second}, v.NewLeader)
	require.Equal(t, []time.Duration{7 * time.Second}, v.Clean)

	var many []time.Duration
	for i := range 10 {
		many = append([]time.Duration{time.Duration(i + 1)}, many...)
	}
	require.Equal(t, time.Duration(5), Percentile(many, 50))
	require.Equal(t, time.Duration(10), Percentile(many, 100))
	require.Equal(t, time.Duration(1), Percentile(many[9:], 50))
	require.Zero(t, Percentile(nil, 50))
}

package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// succeeds has b take over an entry of a by itself.
func (s *builder) succeeds(imei string) {
	s.happens("%s ; %s ; HSET connections:registry %s b ; SADD instance:devices:b %s", s.tick(), s.heartbeat("b"), imei, imei)
}

// parked has device 1, whose entry names a, be at b too.
func (s *builder) parked() {
	s.facts.Sockets = append(s.facts.Sockets, Socket{IMEI: "1", Instance: "b", Asked: s.now, Live: s.now})
}

func TestOwnersTakeOverEntriesOfTheDead(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"whoever leads": func(s *builder) {
			s.upToDeath()
			s.parked()
			s.succeeds("1")
		},
		"when a beat is overdue, though Redis was not heard before": func(s *builder) {
			s.upToDeath()
			s.holds("gap")
			s.passes(4 * time.Second)
			s.parked()
			s.succeeds("1")
		},
		"and nobody leads": func(s *builder) {
			s.boots("a", "b")
			s.registers("a", "1")
			s.passes(4 * time.Second)
			s.dies("a")
			s.passes(7 * time.Second)
			s.expires("a")
			s.parked()
			s.succeeds("1")
		},
	})
	rejects(t, map[string]bad{
		"an entry whose owner has a heartbeat": {"C3", func(s *builder) {
			s.boots("a", "b")
			s.registers("a", "1")
			s.passes(12 * time.Second)
			s.leaves("a", "1")
			s.parked()
			s.succeeds("1")
		}},
		"soon after a hold": {"C4", func(s *builder) {
			s.upToDeath()
			s.holds("gap")
			s.passes(3 * time.Second)
			s.parked()
			s.succeeds("1")
		}},
		"where the device has never been": {"C3", func(s *builder) {
			s.upToDeath()
			s.succeeds("1")
		}},
		"of an owner that has just refreshed": {"C2", func(s *builder) {
			s.happens("%s evicted_keys 0", s.tick())
			s.boots("a", "b")
			s.registers("a", "1")
			s.passes(12 * time.Second)
			s.happens("DEL instance:heartbeat:a") // evicted
			s.parked()
			s.succeeds("1")
		}},
	})
}

func TestClientsTurnedAwayMustNotBeMissed(t *testing.T) {
	t.Parallel()
	s := newBuilder()
	s.happens("%s refused 0", s.tick())
	s.now = s.now.Add(time.Second)
	s.happens("%s refused 3", s.tick())
	v := Judge(s.history, s.facts)
	require.Equal(t, []string{"C4"}, checksOf(v.Violations))
	require.True(t, strings.Contains(v.Violations[0].What, "refused went from 0 to 3 and nobody"))
}

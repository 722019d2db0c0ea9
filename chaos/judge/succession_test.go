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
		"whoever leads": tells(`
			upToDeath
			parked
			succeeds 1
		`),
		"when a beat is overdue, though Redis was not heard before": tells(`
			upToDeath
			holds gap
			passes 4s
			parked
			succeeds 1
		`),
		"and nobody leads": tells(`
			boots a b
			registers a 1
			passes 4s
			dies a
			passes 7s
			expires a
			parked
			succeeds 1
		`),
	})
	rejects(t, map[string]bad{
		"an entry whose owner has a heartbeat": {"C3", tells(`
			boots a b
			registers a 1
			passes 12s
			leaves a 1
			parked
			succeeds 1
		`)},
		"soon after a hold": {"C4", tells(`
			upToDeath
			holds gap
			passes 3s
			parked
			succeeds 1
		`)},
		"where the device has never been": {"C3", tells(`
			upToDeath
			succeeds 1
		`)},
		"of an owner that has just refreshed": {"C2", tells(`
			happens <tick> evicted_keys 0
			boots a b
			registers a 1
			passes 12s
			happens DEL instance:heartbeat:a
			parked
			succeeds 1
		`)},
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

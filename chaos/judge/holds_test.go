package judge

import (
	"testing"
	"time"
)

// most have three of five owners fall silent, within a second of each other; e leads.
func (s *builder) most() {
	s.boots("a", "b", "c", "d", "e")
	s.leads("e")
	s.registers("a", "1")
	s.registers("b", "2")
	s.registers("c", "3")
	s.registers("d", "4")
	s.registers("e", "5")
	s.passes(4 * time.Second)
	for _, id := range []string{"a", "b", "c"} {
		s.dies(id)
	}
	s.passes(7 * time.Second)
	for _, id := range []string{"a", "b", "c"} {
		s.expires(id)
	}
	s.passes(2 * time.Second) // the leader has looked
}

// slow says that an instance of these settings was there from some time ago, until some time ago if
// it has left.
func (s *builder) slow(id string, from, until time.Duration) {
	setting := Setting{Instance: id, HeartbeatInterval: 4 * time.Second, HeartbeatTTL: 18 * time.Second, From: s.now.Add(-from)}
	if until > 0 {
		setting.Until = s.now.Add(-until)
	}
	s.facts.Settings = append(s.facts.Settings, setting)
}

// restarts says that the server's counters began anew.
func (s *builder) restarts() {
	s.facts.Restarts = append(s.facts.Restarts, Outage{From: s.now, Until: s.now})
	s.now = s.now.Add(time.Millisecond)
}

func TestHoldsThatNobodyRaisedAreFound(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"the server was started again, and it was held": tells(`
			upToDeath
			restarts
			holds restarted
			passes 8s
			evicts a 1 2 3
		`),
		"who beat more slowly has left, and is not its owner": tells(`
			upToDeath
			slow slow 30s 1s
			evicts a 1 2 3
		`),
		"most fell silent, and a grace period passed": tells(`
			most
			passes 8s
			evicts a 1
		`),
		"most fell silent long ago": tells(`
			most
			passes 20s
			boots f
			registers f 6
			passes 4s
			dies f
			passes 7s
			expires f
			passes 2s
			evicts f 6
		`),
		"most said goodbye": func(s *builder) {
			s.boots("a", "b", "c")
			s.leads("c")
			s.registers("a", "1")
			s.passes(8 * time.Second)
			for _, id := range []string{"a", "b"} {
				s.dies(id)
				s.happens("DEL instance:heartbeat:%s ; HSET janitor:beats %s 1/1/1/1/0/b", id, id)
			}
			s.passes(2 * time.Second)
			s.happens("%s", s.evicts("a", "1"))
		},
		"the end of a heartbeat is written again as it was": func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.passes(time.Second)
			end := s.ms(6 * time.Second)
			s.now = s.now.Add(500 * time.Millisecond)
			s.happens("%s", s.tick())
			s.now = s.now.Add(2 * time.Millisecond)
			s.leaves("a", "1")
			s.happens("HDEL connections:registry 1 ; SREM instance:devices:a 1")
			s.happens("PEXPIREAT instance:heartbeat:a %s", end)
			s.passes(time.Second)
		},
		"half of them fell silent": tells(`
			boots f
			registers f 6
			most
			evicts a 1
		`),
	})
	rejects(t, map[string]bad{
		"the server was started again": {"C4", tells(`
			upToDeath
			restarts
			evicts a 1 2 3
		`)},
		"somebody beats more slowly": {"C4", tells(`
			upToDeath
			slow slow 5s 0s
			evicts a 1 2 3
		`)},
		"its owner beat more slowly until a moment ago": {"C4", tells(`
			upToDeath
			slow a 30s 19s
			evicts a 1 2 3
		`)},
		"most fell silent at once": {"C4", tells(`
			most
			evicts a 1
		`)},
		"most were overdue when the leader looked": {"C4", func(s *builder) {
			s.most()
			// two seconds, of a tick, the lease and two beats each
			s.history = s.history[:len(s.history)-2*(2+2)]
			s.now = s.now.Add(-2 * time.Second)
			s.happens("%s", s.evicts("a", "1"))
		}},
		"most were off, and three of them are back": {"C4", tells(`
			most
			boots b c
			evicts a 1
		`)},
		"most fell silent once more, just after the first time": {"C4", func(s *builder) {
			s.most()
			s.boots("a", "b", "c")
			s.passes(3 * time.Second)
			for _, id := range []string{"a", "b", "c"} {
				s.dies(id)
			}
			s.passes(7 * time.Second)
			for _, id := range []string{"a", "b", "c"} {
				s.expires(id)
			}
			s.passes(2 * time.Second)
			s.happens("%s", s.evicts("a", "1"))
		}},
		"most of those that hold something fell silent, beside idle ones": {"C4", tells(`
			boots f g h
			most
			evicts a 1
		`)},
		"most fell silent just after others had said goodbye": {"C4", func(s *builder) {
			s.boots("f", "g", "h")
			s.registers("f", "6")
			s.registers("g", "7")
			s.registers("h", "8")
			s.passes(time.Second)
			for i, id := range []string{"f", "g", "h"} {
				s.dies(id)
				s.happens("DEL instance:heartbeat:%s ; HSET janitor:beats %s 1/1/1/1/0/b", id, id)
				s.leaves(id, string(rune('6'+i)))
				s.happens("HDEL connections:registry %c ; SREM instance:devices:%s %c", rune('6'+i), id, rune('6'+i))
			}
			s.most()
			s.happens("%s", s.evicts("a", "1"))
		}},
		"Redis has evicted the heartbeat of one that beats more slowly": {"C2", tells(`
			boots b
			leads b
			slow a 0s 0s
			registers a 1
			passes 21s
			happens SET instance:heartbeat:a <0s>/boot-a PXAT <18s>
			passes 1s
			expires a
			passes 8s
			evicts a 1
		`)},
	})
}

package judge

import (
	"strings"
	"testing"
	"time"
)

// Wrong in ways that look right at first sight: what an adversary would try to smuggle past the
// judge.
func TestWhatLooksRightIsRejected(t *testing.T) {
	t.Parallel()
	rejects(t, map[string]bad{
		"a janitor sweeps without a record, as if the dead had released": {"C3", tells(`
			killed
			happens HDEL connections:registry 1 2 3 ; SREM instance:devices:a 1 2 3
		`)},
		"a release leaves the index behind": {"C3", tells(`
			boots a
			registers a 1
			leaves a 1
			passes 1s
			happens HDEL connections:registry 1
			passes 1s
		`)},
		"a theft that a later visit of the device would excuse": {"C3", tells(`
			boots a b
			registers a 1
			passes 3s
			happens <beat b> ; HSET connections:registry 1 b ; SADD instance:devices:b 1
			passes 20s
			leaves a 1
			registers b 1
		`)},
		"a claim of a device that was never there": {"C3", tells(`
			boots a b
			registers a 1
			passes 1s
			happens <beat b> ; HSET connections:registry 9 b ; SADD instance:devices:b 9
		`)},
		"a live device is given to a planted owner": {"C3", tells(`
			planted ghost
			boots a
			registers a 1
			passes 1s
			happens HSET connections:registry 1 ghost
			passes 1s
		`)},
		"a record names another leader": {"C4", func(s *builder) {
			s.upToDeath()
			s.happens("%s", strings.Replace(s.evicts("a", "1", "2", "3"), "leader b", "leader c", 1))
		}},
		"a term is opened in another's name": {"C4", tells(`
			boots a
			happens SET janitor:leader a/token PXAT <3s>
			happens XADD janitor:log 5-0 leader b term a/token
		`)},
		"the witness is set back to before a hold": {"C4", tells(`
			upToDeath
			holds restarted
			happens HSET janitor:witness since <-1m> hold <-1m>
			evicts a 1 2 3
		`)},
		"a leader sweeps that cannot see itself": {"C4", tells(`
			upToDeath
			expires b
			evicts a 1 2 3
		`)},
		"a lease whose time is over, but nobody has deleted it yet": {"C4", tells(`
			upToDeath
			happens SET janitor:leader <token> PXAT <-1s>
			evicts a 1 2 3
		`)},
		"a total is wrong just before the harness does something else": {"C5", tells(`
			swept
			happens HSET janitor:witness evicted_total 1
			strikes DEL janitor:leader
		`)},
		"the log is deleted, and not by the harness": {"C5", tells(`
			happens <tick> evicted_keys 0
			swept
			happens DEL janitor:log
			happens <tick> evicted_keys 0
		`)},
		"an owner is forgotten that has an index": {"C3", tells(`
			upToDeath
			happens SREM instances:roster a
		`)},
		"a leader that leaves lets its lease lapse": {"C6", func(s *builder) {
			s.boots("a", "b")
			s.leads("a")
			s.died("a", Released, true)
			s.facts.Slack = 3 * time.Second
			s.dies("a")
			s.token = ""
			s.passes(3 * time.Second)
			s.happens("DEL janitor:leader")
			s.leads("b")
		}},
		"an owner that nothing was done to does not beat": {"C2", func(s *builder) {
			s.upToDeath()
			for i := range s.facts.Sockets {
				s.facts.Sockets[i].Ended = time.Time{}
			}
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		}},
		"an owner is forgotten that lives": {"C3", tells(`
			boots a
			happens SREM instances:roster a
		`)},
	})
}

// killed is upToDeath, with a death that is noted.
func (s *builder) killed() {
	s.upToDeath()
	s.facts.Slack, s.facts.JanitorInterval = time.Minute, time.Minute
	s.facts.Deaths = append(s.facts.Deaths, Death{Instance: "a", At: s.now.Add(-7 * time.Second), How: Killed})
	s.facts.Sockets[0].Ended = s.facts.Sockets[0].Ended.Add(-time.Millisecond)
}

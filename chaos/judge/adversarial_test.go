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
	killed := func(s *builder) {
		s.upToDeath()
		s.facts.Slack, s.facts.JanitorInterval = time.Minute, time.Minute
		s.facts.Deaths = append(s.facts.Deaths, Death{Instance: "a", At: s.now.Add(-7 * time.Second), How: Killed})
		s.facts.Sockets[0].Ended = s.facts.Sockets[0].Ended.Add(-time.Millisecond)
	}
	rejects(t, map[string]bad{
		"a janitor sweeps without a record, as if the dead had released": {"C3", func(s *builder) {
			killed(s)
			s.happens("HDEL connections:registry 1 2 3 ; SREM instance:devices:a 1 2 3")
		}},
		"a release leaves the index behind": {"C3", func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.leaves("a", "1")
			s.passes(time.Second)
			s.happens("HDEL connections:registry 1")
			s.passes(time.Second)
		}},
		"a theft that a later visit of the device would excuse": {"C3", func(s *builder) {
			s.boots("a", "b")
			s.registers("a", "1")
			s.passes(3 * time.Second)
			s.happens("%s ; HSET connections:registry 1 b ; SADD instance:devices:b 1", s.heartbeat("b"))
			s.passes(20 * time.Second)
			s.leaves("a", "1")
			s.registers("b", "1")
		}},
		"a claim of a device that was never there": {"C3", func(s *builder) {
			s.boots("a", "b")
			s.registers("a", "1")
			s.passes(time.Second)
			s.happens("%s ; HSET connections:registry 9 b ; SADD instance:devices:b 9", s.heartbeat("b"))
		}},
		"a live device is given to a planted owner": {"C3", func(s *builder) {
			s.facts.Planted = map[string]bool{"ghost": true}
			s.boots("a")
			s.registers("a", "1")
			s.passes(time.Second)
			s.happens("HSET connections:registry 1 ghost")
			s.passes(time.Second)
		}},
		"a record names another leader": {"C4", func(s *builder) {
			s.upToDeath()
			s.happens("%s", strings.Replace(s.evicts("a", "1", "2", "3"), "leader b", "leader c", 1))
		}},
		"a term is opened in another's name": {"C4", func(s *builder) {
			s.boots("a")
			s.happens("SET janitor:leader a/token PXAT %s", s.ms(3*time.Second))
			s.happens("XADD janitor:log 5-0 leader b term a/token")
		}},
		"the witness is set back to before a hold": {"C4", func(s *builder) {
			s.upToDeath()
			s.holds("restarted")
			s.happens("HSET janitor:witness since %s hold %s", s.ms(-time.Minute), s.ms(-time.Minute))
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		}},
		"a leader sweeps that cannot see itself": {"C4", func(s *builder) {
			s.upToDeath()
			s.expires("b")
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		}},
		"a lease whose time is over, but nobody has deleted it yet": {"C4", func(s *builder) {
			s.upToDeath()
			s.happens("SET janitor:leader %s PXAT %s", s.token, s.ms(-time.Second))
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		}},
		"a total is wrong just before the harness does something else": {"C5", func(s *builder) {
			s.swept()
			s.happens("HSET janitor:witness evicted_total 1")
			s.strikes("DEL janitor:leader")
		}},
		"the log is deleted, and not by the harness": {"C5", func(s *builder) {
			s.happens("%s evicted_keys 0", s.tick())
			s.swept()
			s.happens("DEL janitor:log")
			s.happens("%s evicted_keys 0", s.tick())
		}},
		"an owner is forgotten that has an index": {"C3", func(s *builder) {
			s.upToDeath()
			s.happens("SREM instances:roster a")
		}},
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
		"an owner is forgotten that lives": {"C3", func(s *builder) {
			s.boots("a")
			s.happens("SREM instances:roster a")
		}},
	})
}

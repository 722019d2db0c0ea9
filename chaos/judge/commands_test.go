package judge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answersFor is a batch of the sweep of commands, right by itself.
func (s *builder) answersFor(owner string, ids ...string) string {
	s.n++
	list, _ := json.Marshal(ids)
	leader, _, _ := strings.Cut(s.token, "/")
	text := fmt.Sprintf("%s ; XADD janitor:log %d-%d leader %s owner %s sweep commands count %d reowned 0 commands %s ; "+
		"HINCRBY janitor:witness evicted_total %d", s.tick(), s.epoch, s.n, leader, owner, len(ids), list, len(ids))
	for i, id := range ids {
		text += fmt.Sprintf(" ; %s ; SET commands:state:%s instance_lost PXAT %s ; XACK commands:outbound:%s rollcall %d-0 ; XDEL commands:outbound:%s %d-0",
			s.outcome(owner, id, "instance_lost"), id, s.ms(time.Hour), owner, i+1, owner, i+1)
	}
	return text + " ; DEL commands:outbound:" + owner
}

func (s *builder) outcome(instance, id, status string) string {
	return fmt.Sprintf("XADD commands:responses MAXLEN = 100000 %s-%d id %s imei 1 instance %s status %s text x", s.ms(0), len(s.history), id, instance, status)
}

// asked is upToDeath, with commands for devices of a, of which one is answered in time.
func (s *builder) asked() {
	s.upToDeath()
	for i, id := range []string{"c1", "c2", "c3"} {
		s.happens("XADD commands:outbound:a %d-0 id %s imei 1 text getver", i+1, id)
	}
	s.happens("XCLAIM commands:outbound:a rollcall instance 0 1-0 TIME 1 RETRYCOUNT 1 FORCE JUSTID LASTID 1-0")
	s.happens("SET commands:state:c0 sent PXAT %s", s.ms(time.Hour))
	s.happens("%s ; SET commands:state:c0 answered PXAT %s ; XACK commands:outbound:b rollcall 9-0 ; XDEL commands:outbound:b 9-0", s.outcome("b", "c0", "answered"), s.ms(time.Hour))
}

func TestCommandsOfTheDeadThatAreAnsweredAreUnderstood(t *testing.T) {
	t.Parallel()
	s := newBuilder()
	s.asked()
	s.happens("%s", s.answersFor("a", "c1", "c2", "c3"))
	s.happens("%s", s.answersFor("a", []string{}...)) // nothing was left
	s.happens("%s", s.evicts("a", "1", "2", "3"))
	v := Judge(s.history, s.facts)
	require.Empty(t, v.Violations)
	require.Equal(t, 3, v.Evicted(""), "entries, not commands")
}

func TestWhatDevicesDidOnCommandIsJudged(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		outcome, text string
		did           []Execution
		right         bool
	}{
		"answered, and done":                 {"answered", "did_c1", []Execution{{"1", "c1"}}, true},
		"answered, and not done":             {"answered", "did_c1", []Execution{}, false},
		"answered with another's answer":     {"answered", "did_c0", []Execution{{"1", "c1"}}, false},
		"answered with the rest of another":  {"answered", "and_more_of_c0", []Execution{{"1", "c1"}}, false},
		"answered with another's, marked":    {"answered", "did_c0 ambiguous true", []Execution{{"1", "c1"}}, true},
		"answered with the rest of its own":  {"answered", "and_more_of_c1", []Execution{{"1", "c1"}}, true},
		"one too many, and done":             {"busy", "", []Execution{{"1", "c1"}}, false},
		"one too many, and not done":         {"busy", "", []Execution{}, true},
		"not answered in time, and done":     {"timeout", "", []Execution{{"1", "c1"}}, true},
		"not answered in time, and not done": {"timeout", "", []Execution{}, true},
		"expired, and not done":              {"expired", "", []Execution{}, true},
		"expired, and done":                  {"expired", "", []Execution{{"1", "c1"}}, false},
		"done twice":                         {"timeout", "", []Execution{{"1", "c1"}, {"1", "c1"}}, false},
		"done by another":                    {"timeout", "", []Execution{{"2", "c1"}}, false},
		"without an outcome":                 {"", "", []Execution{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBuilder()
			s.upToDeath()
			s.happens("XADD commands:outbound:b 1-0 id c1 imei 1 text c1")
			if row.outcome != "" {
				outcome := s.outcome("b", "c1", row.outcome)
				if row.text != "" {
					outcome = strings.TrimSuffix(outcome, "x") + row.text
				}
				s.happens("%s ; XACK commands:outbound:b rollcall 1-0 ; XDEL commands:outbound:b 1-0", outcome)
			}
			s.facts.Executed, s.facts.Truth = row.did, map[string]string{}
			checks := checksOf(Judge(s.history, s.facts).Violations)
			if row.right {
				require.Empty(t, checks)
			} else {
				require.Equal(t, []string{"C9"}, checks)
			}
		})
	}
}

func TestCommandsOfTheQueueAreJudged(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{true, false} {
		s := newBuilder()
		s.upToDeath()
		s.happens("XADD commands:queue 1-0 id c1 imei 1 text c1")
		s.happens("XCLAIM commands:queue rollcall instance 0 1-0 TIME 1 RETRYCOUNT 1 FORCE JUSTID LASTID 0-0")
		if answered {
			s.happens("%s ; XACK commands:queue rollcall 1-0 ; XDEL commands:queue 1-0", s.outcome("b", "c1", "expired"))
		}
		s.facts.Executed, s.facts.Truth = []Execution{}, map[string]string{}
		require.Equal(t, answered, len(checksOf(Judge(s.history, s.facts).Violations)) == 0)
	}
}

func TestBadHistoriesOfCommandsAreRejected(t *testing.T) {
	t.Parallel()
	with := func(old, wrong string) func(*builder) {
		return func(s *builder) {
			s.asked()
			text := s.answersFor("a", "c1", "c2", "c3")
			require.Contains(t, text, old)
			s.happens("%s", strings.Replace(text, old, wrong, 1))
		}
	}
	rejects(t, map[string]bad{
		"the instance lives": {"C1", tells(`
			asked
			beat a
			answers a c1
		`)},
		"the record names another owner": {"C1", with("owner a", "owner z")},
		"the lease is another's": {"C4", tells(`
			asked
			happens SET janitor:leader c/other PXAT <3s>
			answers a c1
		`)},
		"within GRACE of a hold": {"C4", tells(`
			asked
			holds gap
			answers a c1
		`)},
		"the log counts one too many":      {"C5", with("count 3", "count 4")},
		"the log forgets one":              {"C5", with(`["c1","c2","c3"]`, `["c1","c2"]`)},
		"the log cannot be read":           {"C5", with(`["c1","c2","c3"]`, `c1`)},
		"the total forgets commands":       {"C5", with("evicted_total 3", "evicted_total 0")},
		"an entry stays that was recorded": {"C5", with(" ; XDEL commands:outbound:a 2-0", "")},
		"a command has two outcomes": {"C9", tells(`
			asked
			outcome b c0 timeout
		`)},
		"one that was answered is lost too": {"C9", tells(`
			asked
			answers a c0
		`)},
	})
}

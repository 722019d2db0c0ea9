package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func accepts(t *testing.T, histories map[string]func(s *builder)) {
	for name, tell := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBuilder()
			tell(s)
			v := Judge(s.history, s.facts)
			require.Empty(t, v.Violations)
			require.Equal(t, s.total, v.Evicted(""))
			require.Zero(t, v.FalseDeaths)
		})
	}
}

type bad struct {
	check string // the only one that finds something
	tell  func(s *builder)
}

func rejects(t *testing.T, histories map[string]bad) {
	for name, row := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBuilder()
			row.tell(s)
			v := Judge(s.history, s.facts)
			require.Equal(t, []string{row.check}, checksOf(v.Violations), "%v", v.Violations)
		})
	}
}

// again is a second death, of b, after everything that Redis knew is gone: c leads, has held,
// and sweeps.
func (s *builder) again() {
	s.boots("b", "c")
	s.holds("gap")
	s.now = s.now.Add(time.Millisecond)
	s.leads("c")
	s.registers("b", "7")
	s.passes(4 * time.Second)
	s.dies("b")
	s.passes(7 * time.Second)
	s.expires("b")
	s.happens("%s", s.evicts("b", "7"))
}

func TestGoodHistoriesOfWhatTheHarnessDoesAreAccepted(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"everything is deleted": func(s *builder) {
			s.swept()
			s.strikes("FLUSHALL")
			s.again()
		},
		"the log is deleted, and the term goes on": func(s *builder) {
			s.upToDeath()
			s.strikes("DEL janitor:log")
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		},
		"lease and epoch are deleted": func(s *builder) {
			s.leads("a")
			s.strikes("DEL janitor:leader {janitor:leader}:epoch")
			s.now = s.now.Add(time.Millisecond)
			s.leads("b")
		},
		"a foreign lease without an end is set, and capped": func(s *builder) {
			s.leads("a")
			s.strikes("SET janitor:leader x/foreign")
			s.strikes("PERSIST janitor:leader")
			s.happens("PEXPIREAT janitor:leader %s", s.ms(3*time.Second))
			s.passes(4 * time.Second)
			s.happens("DEL janitor:leader")
			s.leads("b")
		},
		"the witness is deleted, total and all": func(s *builder) {
			s.swept()
			s.strikes("DEL janitor:witness")
			s.again()
		},
		"the total is set": func(s *builder) {
			s.upToDeath()
			s.strikes("HSET janitor:witness evicted_total 1000")
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		},
		"the witness' settings are set": func(s *builder) {
			s.strikes("HSET janitor:witness gap 1 grace 1")
			s.holds("settings")
		},
		"a living owner's heartbeat is deleted, and its entries go": func(s *builder) {
			s.boots("b")
			s.leads("b")
			s.passes(9 * time.Second)
			s.boots("a")
			s.registers("a", "1")
			s.strikes("DEL instance:heartbeat:a")
			s.happens("%s", s.evicts("a", "1"))
			s.happens("%s ; HSET connections:registry 1 a ; SADD instance:devices:a 1", s.heartbeat("a"))
		},
		"entries are deleted and overwritten, and healed": func(s *builder) {
			s.boots("a")
			s.registers("a", "1", "2")
			s.strikes("HDEL connections:registry 1 ; HSET connections:registry 2 z")
			s.happens("%s ; HSET connections:registry 1 a 2 a ; SADD instance:devices:a 1 2", s.heartbeat("a"))
		},
		"a stray entry is handed back": func(s *builder) {
			s.boots("a", "b")
			s.passes(time.Second)
			s.registers("b", "9")
			s.leaves("b", "9")
			s.strikes("HSET connections:registry 9 a")
			s.releases("a", "9")
		},
		"a time that is written by hand is not believed": func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.strikes("HSET janitor:witness last %s", s.ms(time.Hour))
			s.holds("gap")
			s.passes(time.Second)
			s.leaves("a", "1")
			s.releases("a", "1")
		},
	})
}

func TestGoodHistoriesOfABrokenServerAreAccepted(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"short of memory it evicts heartbeat, lease and witness": func(s *builder) {
			s.happens("%s evicted_keys 0", s.tick())
			s.swept()
			for _, key := range []string{"instance:heartbeat:b", "janitor:leader", "{janitor:leader}:epoch", "janitor:log", "janitor:witness"} {
				s.happens("UNLINK %s", key)
			}
			s.happens("%s evicted_keys 5 since %s hold %s reason gap", s.tick(), s.ms(0), s.ms(0))
			s.again()
		},
		"it keeps streams and lists of others": func(s *builder) {
			s.happens("XADD telemetry:teltonika MAXLEN ~ 1000 5-0 a b")
			s.happens("XGROUP CREATE telemetry:teltonika reader 0 ; LPUSH elsewhere a ; RENAME elsewhere there")
			s.happens("PUBLISH janitor:leader x")
		},
		"a new life remembers nothing": func(s *builder) {
			s.swept()
			s.lives("SET janitor:paused x")
			s.again()
		},
		"a new life remembers an earlier time, and the total of it": func(s *builder) {
			s.upToDeath()
			s.happens("%s", s.evicts("a", "1", "2", "3"))
			s.lives("HSET connections:registry 1 a 2 a 3 a ; SADD instance:devices:a 1 2 3 ; HSET janitor:witness evicted_total 40 last %s since 1 gap 2000 grace 8000 ; "+
				"SET janitor:leader b/token PXAT %s ; XADD janitor:log 4-0 last one", s.ms(-time.Minute), s.ms(-time.Minute))
			s.happens("DEL janitor:leader")
			s.again()
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		},
		"it remembers a former life of an owner, which beats on": func(s *builder) {
			s.happens("SET instance:heartbeat:a %s/boot-new PXAT %s", s.ms(0), s.ms(6*time.Second))
			s.lives("SET instance:heartbeat:a %s/boot-a PXAT %s", s.ms(0), s.ms(6*time.Second))
			s.boots("a")
		},
	})
}

func TestGoodHistoriesOfABrokenLineAreAccepted(t *testing.T) {
	t.Parallel()
	hop := func(s *builder, id string) {
		s.boots("a", "b")
		s.registers("a", "1")
		s.leaves("a", "1")
		s.registers("b", "1")
		s.passes(20 * time.Second)
		s.out(id, 18*time.Second)
		s.happens("%s ; HSET connections:registry 1 a", s.heartbeat("a"))
	}
	accepts(t, map[string]func(s *builder){
		"a registration lands after the owner's outage":      func(s *builder) { hop(s, "a") },
		"a registration lands after the outage of everybody": func(s *builder) { hop(s, "") },
		"a release lands after the outage, behind what came later": func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.leaves("a", "1")
			s.passes(20 * time.Second)
			s.out("a", 19*time.Second)
			s.registers("a", "1")
			s.releases("a", "1")
		},
	})
	rejects(t, map[string]bad{
		"the outage was another's": {"C3", func(s *builder) { hop(s, "b") }},
		"the outage was over long ago": {"C3", func(s *builder) {
			s.boots("a", "b")
			s.registers("a", "1")
			s.leaves("a", "1")
			s.registers("b", "1")
			s.passes(4 * time.Second)
			s.out("a", 4*time.Second)
			s.out("a", 2*time.Second) // the same time counts once
			s.passes(5 * time.Second)
			s.happens("%s ; HSET connections:registry 1 a", s.heartbeat("a"))
		}},
		"a release lands long after the outage": {"C3", func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.leaves("a", "1")
			s.passes(2 * time.Second)
			s.out("a", time.Second)
			s.passes(20 * time.Second)
			s.registers("a", "1")
			s.releases("a", "1")
		}},
	})
}

func TestBadHistoriesOfBrokenRunsAreRejected(t *testing.T) {
	t.Parallel()
	rejects(t, map[string]bad{
		"everything is deleted, and not by the harness": {"C3", func(s *builder) { s.happens("FLUSHALL") }},
		"the registry goes with other keys":             {"C3", func(s *builder) { s.happens("UNLINK a connections:registry") }},
		"a leader evicts while the lease is the harness'": {"C4", func(s *builder) {
			s.upToDeath()
			s.strikes("SET janitor:leader x/foreign")
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		}},
		"an epoch is drawn again after all was deleted": {"C4", func(s *builder) {
			s.leads("a")
			s.strikes("FLUSHALL")
			s.happens("SET {janitor:leader}:epoch %d", s.epoch)
		}},
		"an epoch is drawn again in a new life": {"C4", func(s *builder) {
			s.leads("a")
			s.lives("SET {janitor:leader}:epoch 5")
			s.happens("SET {janitor:leader}:epoch 6")
		}},
		"a term of a former life evicts": {"C4", func(s *builder) {
			s.boots("b")
			s.leads("b")
			s.upToDeath()
			epoch := s.epoch
			s.lives("HSET connections:registry 1 a ; SET janitor:leader b/token")
			s.holds("gap")
			s.passes(9 * time.Second)
			s.leads("c")
			s.token, s.epoch = "b/token", epoch
			s.strikes("SET janitor:leader b/token")
			s.happens("%s", s.evicts("a", "1"))
		}},
		"the witness is deleted and nothing holds": {"C4", func(s *builder) {
			s.upToDeath()
			s.strikes("DEL janitor:witness")
			s.happens("%s since 1", s.tick())
		}},
		"the witness of a new life is old and nothing holds": {"C4", func(s *builder) {
			s.upToDeath()
			s.lives("HSET janitor:witness last %s since 1 gap 2000 grace 8000", s.ms(-3*time.Second))
			s.happens("%s", s.tick())
		}},
		"an owner beats again, and its heartbeat is lost again": {"C2", func(s *builder) {
			s.boots("b")
			s.leads("b")
			s.passes(9 * time.Second)
			s.boots("a")
			s.strikes("DEL instance:heartbeat:a")
			s.registers("a", "1")
			s.expires("a")
			s.happens("%s", s.evicts("a", "1"))
		}},
		"a stray entry is taken out by another": {"C3", func(s *builder) {
			s.boots("a")
			s.strikes("HSET connections:registry 9 a")
			s.happens("HDEL connections:registry 9 ; SREM instance:devices:b 9")
		}},
		"what was overwritten by hand is taken from where the device is": {"C3", func(s *builder) {
			s.boots("a", "b")
			s.registers("a", "1")
			s.strikes("HSET connections:registry 1 a")
			s.happens("%s ; HSET connections:registry 1 b", s.heartbeat("b"))
		}},
		"a new life's total is not added to": {"C5", func(s *builder) {
			s.upToDeath()
			s.lives("HSET connections:registry 1 a ; HSET janitor:witness evicted_total 7")
			s.again()
			s.happens("HSET janitor:witness evicted_total 1")
		}},
		"the witness is lost, and Redis evicted nothing": {"C5", func(s *builder) {
			s.happens("%s evicted_keys 0", s.tick())
			s.swept()
			s.happens("DEL janitor:witness")
			s.happens("%s evicted_keys 0 since %s", s.tick(), s.ms(0))
		}},
		"the witness is lost at the end": {"C5", func(s *builder) {
			s.swept()
			s.happens("DEL janitor:witness")
		}},
		"a script is recorded and not its effects": {"history", func(s *builder) { s.happens("EVAL x 0") }},
		"the harness does what the model does not know": {"history", func(s *builder) {
			s.strikes("RENAME janitor:log elsewhere")
		}},
	})
}

func TestWhatWasHealedIsCounted(t *testing.T) {
	t.Parallel()
	s := newBuilder()
	s.upToDeath()
	for i := range s.facts.Sockets {
		s.facts.Sockets[i].Ended = time.Time{}
	}
	s.out("a", 7*time.Second)
	s.happens("%s", s.evicts("a", "1", "2", "3"))
	s.passes(2 * time.Second)
	s.registers("a", "1")
	s.registers("b", "2")
	s.passes(time.Second)
	s.strikes("HSET connections:registry 3 z") // no healing
	v := Judge(s.history, s.facts)
	require.Empty(t, v.Violations)
	require.Equal(t, 3, v.FalseDeaths)
	require.Equal(t, 2, v.Healed)
	require.Equal(t, 2*time.Second, v.SlowestHeal)
	require.Zero(t, v.WrongDeletes())
	require.Equal(t, 4*time.Second, v.Quiet(s.now.Add(-4*time.Second)))

	s.passes(3 * time.Second)
	v = Judge(s.history, s.facts)
	require.Equal(t, time.Second, v.Quiet(s.now.Add(-4*time.Second)), "beats and ticks are no change")
	require.Zero(t, v.Quiet(s.now))
	s.happens("SADD instance:devices:b 2 1")
	require.Equal(t, time.Second, Judge(s.history, s.facts).Quiet(s.now.Add(-time.Second)), "an index is one")
	s.passes(time.Second)
	s.happens("SADD instance:devices:b 2 ; SREM instance:devices:b 17 ; %s ; HSET connections:registry 2 b", s.heartbeat("b"))
	require.Zero(t, Judge(s.history, s.facts).Quiet(s.now.Add(-time.Second)), "what was so already is none")
}

// What a new life has, or the harness wrote, is of another time.
func TestSpansDoNotBelieveCopies(t *testing.T) {
	t.Parallel()
	s := newBuilder()
	s.happens("HDEL connections:registry 1")
	s.lives("SET instance:heartbeat:a %s/boot-a", s.ms(-time.Hour))
	s.strikes("SET instance:heartbeat:a %s/boot-a", s.ms(time.Hour))
	s.passes(time.Second)
	for i, got := range Spans(s.history, &s.facts)[1:4] {
		require.Equal(t, Span{once, once.Add(time.Second + time.Millisecond)}, got, i)
	}
}

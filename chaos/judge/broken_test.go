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
	tells(`
		boots b c
		holds gap
		later 1ms
		leads c
		registers b 7
		passes 4s
		dies b
		passes 7s
		expires b
		evicts b 7
	`)(s)
}

func TestGoodHistoriesOfWhatTheHarnessDoesAreAccepted(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"everything is deleted": tells(`
			swept
			strikes FLUSHALL
			again
		`),
		"the log is deleted, and the term goes on": tells(`
			upToDeath
			strikes DEL janitor:log
			evicts a 1 2 3
		`),
		"lease and epoch are deleted": tells(`
			leads a
			strikes DEL janitor:leader {janitor:leader}:epoch
			later 1ms
			leads b
		`),
		"a foreign lease without an end is set, and capped": tells(`
			leads a
			strikes SET janitor:leader x/foreign
			strikes PERSIST janitor:leader
			happens PEXPIREAT janitor:leader <3s>
			passes 4s
			happens DEL janitor:leader
			leads b
		`),
		"the witness is deleted, total and all": tells(`
			swept
			strikes DEL janitor:witness
			again
		`),
		"the total is set": tells(`
			upToDeath
			strikes HSET janitor:witness evicted_total 1000
			evicts a 1 2 3
		`),
		"the witness' settings are set": tells(`
			strikes HSET janitor:witness gap 1 grace 1
			holds settings
		`),
		"a living owner's heartbeat is deleted, and its entries go": tells(`
			boots b
			leads b
			passes 9s
			boots a
			registers a 1
			strikes DEL instance:heartbeat:a
			evicts a 1
			happens <beat a> ; HSET connections:registry 1 a ; SADD instance:devices:a 1
		`),
		"entries are deleted and overwritten, and healed": tells(`
			boots a
			registers a 1 2
			strikes HDEL connections:registry 1 ; HSET connections:registry 2 z
			happens <beat a> ; HSET connections:registry 1 a 2 a ; SADD instance:devices:a 1 2
		`),
		"a stray entry is handed back": tells(`
			boots a b
			passes 1s
			registers b 9
			leaves b 9
			strikes HSET connections:registry 9 a
			releases a 9
		`),
		"a time that is written by hand is not believed": tells(`
			boots a
			registers a 1
			strikes HSET janitor:witness last <1h>
			holds gap
			passes 1s
			leaves a 1
			releases a 1
		`),
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
		"it keeps streams and lists of others": tells(`
			happens XADD telemetry:teltonika MAXLEN ~ 1000 5-0 a b
			happens XGROUP CREATE telemetry:teltonika reader 0 ; LPUSH elsewhere a ; RENAME elsewhere there
			happens PUBLISH janitor:leader x
		`),
		"a new life remembers nothing": tells(`
			swept
			lives SET janitor:paused x
			again
		`),
		"a new life remembers an earlier time, and the total of it": tells(`
			upToDeath
			evicts a 1 2 3
			lives HSET connections:registry 1 a 2 a 3 a ; SADD instance:devices:a 1 2 3 ; HSET janitor:witness evicted_total 40 last <-1m> since 1 gap 2000 grace 8000 ; SET janitor:leader b/token PXAT <-1m> ; XADD janitor:log 4-0 last one
			happens DEL janitor:leader
			again
			evicts a 1 2 3
		`),
		"it remembers a former life of an owner, which beats on": tells(`
			happens SET instance:heartbeat:a <0s>/boot-new PXAT <6s>
			lives SET instance:heartbeat:a <0s>/boot-a PXAT <6s>
			boots a
		`),
	})
}

func TestGoodHistoriesOfABrokenLineAreAccepted(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"a registration lands after the owner's outage":      tells("hop a"),
		"a registration lands after the outage of everybody": tells("hop -"),
		"a release lands after the outage, behind what came later": tells(`
			boots a
			registers a 1
			leaves a 1
			passes 20s
			out a 19s
			registers a 1
			releases a 1
		`),
	})
	rejects(t, map[string]bad{
		"the outage was another's": {"C3", tells("hop b")},
		"the outage was over long ago": {"C3", tells(`
			boots a b
			registers a 1
			leaves a 1
			registers b 1
			passes 4s
			out a 4s
			out a 2s
			passes 5s
			happens <beat a> ; HSET connections:registry 1 a
		`)},
		"a release lands long after the outage": {"C3", tells(`
			boots a
			registers a 1
			leaves a 1
			passes 2s
			out a 1s
			passes 20s
			registers a 1
			releases a 1
		`)},
	})
}

func TestBadHistoriesOfBrokenRunsAreRejected(t *testing.T) {
	t.Parallel()
	rejects(t, map[string]bad{
		"everything is deleted, and not by the harness": {"C3", tells("happens FLUSHALL")},
		"the registry goes with other keys":             {"C3", tells("happens UNLINK a connections:registry")},
		"a leader evicts while the lease is the harness'": {"C4", tells(`
			upToDeath
			strikes SET janitor:leader x/foreign
			evicts a 1 2 3
		`)},
		"an epoch is drawn again after all was deleted": {"C4", tells(`
			leads a
			strikes FLUSHALL
			happens SET {janitor:leader}:epoch <epoch>
		`)},
		"an epoch is drawn again in a new life": {"C4", tells(`
			leads a
			lives SET {janitor:leader}:epoch 5
			happens SET {janitor:leader}:epoch 6
		`)},
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
		"the witness is deleted and nothing holds": {"C4", tells(`
			upToDeath
			strikes DEL janitor:witness
			happens <tick> since 1
		`)},
		"the witness of a new life is old and nothing holds": {"C4", tells(`
			upToDeath
			lives HSET janitor:witness last <-3s> since 1 gap 2000 grace 8000
			tick
		`)},
		"an owner beats again, and its heartbeat is lost again": {"C2", tells(`
			boots b
			leads b
			passes 9s
			boots a
			strikes DEL instance:heartbeat:a
			registers a 1
			expires a
			evicts a 1
		`)},
		"a stray entry is taken out by another": {"C3", tells(`
			boots a
			strikes HSET connections:registry 9 a
			happens HDEL connections:registry 9 ; SREM instance:devices:b 9
		`)},
		"what was overwritten by hand is taken from where the device is": {"C3", tells(`
			boots a b
			registers a 1
			strikes HSET connections:registry 1 a
			happens <beat b> ; HSET connections:registry 1 b
		`)},
		"a new life's total is not added to": {"C5", tells(`
			upToDeath
			lives HSET connections:registry 1 a ; HSET janitor:witness evicted_total 7
			again
			happens HSET janitor:witness evicted_total 1
		`)},
		"the witness is lost, and Redis evicted nothing": {"C5", tells(`
			happens <tick> evicted_keys 0
			swept
			happens DEL janitor:witness
			happens <tick> evicted_keys 0 since <0s>
		`)},
		"the witness is lost at the end": {"C5", tells(`
			swept
			happens DEL janitor:witness
		`)},
		"a script is recorded and not its effects":      {"history", tells("happens EVAL x 0")},
		"the harness does what the model does not know": {"history", tells("strikes RENAME janitor:log elsewhere")},
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

// hop has a registration land that was under way while an instance was out.
func (s *builder) hop(id string) {
	tells(`
		boots a b
		registers a 1
		leaves a 1
		registers b 1
		passes 20s
	`)(s)
	s.out(id, 18*time.Second)
	tells("happens <beat a> ; HSET connections:registry 1 a")(s)
}

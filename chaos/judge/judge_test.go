package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checksOf names the checks that found something, each once.
func checksOf(vs []Violation) (names []string) {
	for _, v := range vs {
		names = append(names, v.Check)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestGoodHistoriesAreAccepted(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"nothing happens":                  func(*builder) {},
		"a dead owner's entries are swept": (*builder).swept,
		"in several batches, with two terms": tells(`
			upToDeath
			evicts a 1
			evicts a 2
			happens DEL janitor:leader
			boots c
			passes 1s
			leads c
			evicts a 3
		`),
		"the heartbeat expires in the very step that evicts": tells(`
			upToDeath
			unsaid 1
			happens DEL instance:heartbeat:a ; <evicts a 1 2 3>
		`),
		"a batch finds nothing left": func(s *builder) {
			s.swept()
			s.happens("%s ; XADD janitor:log %d-%d leader b owner a sweep registry count 0 reowned 1 imeis []", s.tick(), s.epoch, 9)
		},
		"devices leave": tells(`
			boots a
			registers a 1
			passes 1s
			leaves a 1
			releases a 1
		`),
		"a device hops away and back, and its old sockets close late": tells(`
			boots a b
			registers a 1
			passes 1s
			leaves a 1
			registers b 1
			happens SREM instance:devices:a 1
			passes 1s
			leaves b 1
			registers a 1
			happens SREM instance:devices:b 1
		`),
		"a new life takes out what the former left": func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.dies("a")
			s.passes(time.Second)
			s.facts.Sockets[0].Live, s.facts.Sockets[0].Ended = time.Time{}, time.Time{} // nobody knows
			s.happens("SET instance:heartbeat:a %s/boot-again PXAT %s", s.ms(0), s.ms(6*time.Second))
			s.releases("a", "1")
		},
		"planted entries are swept": tells(`
			planted ghost
			happens HSET connections:registry 7 ghost 8 ghost
			upToDeath
			evicts ghost 7 8
		`),
	})
}

// Each bad history goes wrong in one way, and the check that is there for it says so, and no other.
func TestBadHistoriesAreRejected(t *testing.T) {
	t.Parallel()
	// evictsWith is a death whose eviction is not as it should be.
	evictsWith := func(old, wrong string) func(*builder) {
		return func(s *builder) {
			s.upToDeath()
			text := s.evicts("a", "1", "2", "3")
			replaced := strings.Replace(text, old, wrong, 1)
			if replaced == text {
				panic("the history does not say " + old)
			}
			s.happens("%s", replaced)
		}
	}
	rejects(t, map[string]bad{
		"the owner's heartbeat exists": {"C1", tells(`
			upToDeath
			beat a
			evicts a 1 2 3
		`)},
		"its time is over, but nobody has deleted it yet": {"C1", tells(`
			upToDeath
			unsaid 1
			evicts a 1 2 3
		`)},
		"an entry has moved before it is evicted": {"C1", func(s *builder) {
			s.upToDeath()
			// it has not been answered yet
			s.facts.Sockets = append(s.facts.Sockets, Socket{IMEI: "2", Instance: "b"})
			s.happens("%s ; HSET connections:registry 2 b ; SADD instance:devices:b 2", s.heartbeat("b"))
			s.happens("%s", s.evicts("a", "1", "2", "3"))
		}},
		"an entry is evicted that is not there": {"C1", tells(`
			upToDeath
			evicts a 1 2 3 4
		`)},
		"a heartbeat was lost while its owner refreshed": {"C2", tells(`
			upToDeath
			boots a
			registers a 1 2 3
			expires a
			evicts a 1 2 3
		`)},
		"an entry goes without a log record": {"C3", tells(`
			boots a
			registers a 1
			happens HDEL connections:registry 1
		`)},
		"a late close takes out the newer socket's entry": {"C3", tells(`
			boots a
			registers a 1
			leaves a 1
			passes 1s
			registers a 1
			releases a 1
		`)},
		"a release does not compare": {"C3", tells(`
			boots a b
			registers a 1
			passes 1s
			leaves a 1
			registers b 1
			passes 1s
			leaves b 1
			releases a 1
		`)},
		"an entry is written without its heartbeat": {"C3", tells(`
			boots a
			happens HSET connections:registry 1 a
		`)},
		"a heal takes a device from where it is": {"C3", tells(`
			boots a b
			registers a 1
			leaves a 1
			registers b 1
			passes 6s
			happens <beat a> ; HSET connections:registry 1 a
		`)},
		"a superseded process goes on": {"C3", tells(`
			boots a
			happens SET instance:heartbeat:a <0s>/boot-newer PXAT <6s>
			happens SET instance:heartbeat:a <0s>/boot-a PXAT <6s>
		`)},
		"the registry is deleted": {"C3", tells("happens DEL connections:registry")},
		"a superseded leader evicts": {"C4", func(s *builder) {
			s.upToDeath()
			s.boots("c")
			old := s.evicts("a", "1", "2", "3")
			s.now = s.now.Add(time.Millisecond)
			s.leads("c")
			_, rest, _ := strings.Cut(old, " ; ")
			s.happens("%s ; %s", s.tick(), rest)
		}},
		"a leader evicts whose lease has lapsed": {"C4", tells(`
			upToDeath
			happens DEL janitor:leader
			evicts a 1 2 3
		`)},
		"a leader evicts while the lease is another's": {"C4", tells(`
			upToDeath
			happens SET janitor:leader c/token PXAT <3s>
			evicts a 1 2 3
		`)},
		"a term opens without the lease": {"C4", tells("happens XADD janitor:log 5-0 leader a term a/token")},
		"an epoch falls": {"C4", tells(`
			leads a
			happens SET {janitor:leader}:epoch 5
		`)},
		"a term has an older epoch": {"C4", tells(`
			leads a
			happens XADD janitor:log 5-0 leader a term a/token
		`)},
		"somebody held just before": {"C4", tells(`
			upToDeath
			holds restarted
			evicts a 1 2 3
		`)},
		"nobody noticed that Redis stood still": {"C4", tells(`
			upToDeath
			later 10s
			evicts a 1 2 3
		`)},
		"nothing held when Redis evicted keys": {"C4", tells(`
			happens <tick> evicted_keys 0
			upToDeath
			happens <tick> evicted_keys 7
		`)},
		"nothing held when settings changed": {"C4", func(s *builder) {
			s.upToDeath()
			s.happens("%s", strings.Replace(s.tick(), "grace 8000", "grace 1000", 1))
		}},
		"a hold is noted and has no effect": {"C4", tells(`
			upToDeath
			happens HSET janitor:witness hold <0s> reason self_check
			evicts a 1 2 3
		`)},
		"the witness is lost and goes on": {"C4", tells(`
			upToDeath
			happens DEL janitor:witness
			happens <tick> since 1
		`)},
		"there is no witness":             {"C4", evictsWith("HSET janitor:witness", "HSET elsewhere")},
		"the log counts one too many":     {"C5", evictsWith("count 3", "count 4")},
		"the log forgets one":             {"C5", evictsWith(`["1","2","3"]`, `["1","2"]`)},
		"the log lists another":           {"C5", evictsWith(`["1","2","3"]`, `["1","2","4"]`)},
		"the log cannot be read":          {"C5", evictsWith(`["1","2","3"]`, `1,2,3`)},
		"the total counts twice":          {"C5", evictsWith("evicted_total 3", "evicted_total 6")},
		"a record stands for no eviction": {"C5", evictsWith(" ; HDEL connections:registry 1 2 3", "")},
		"a command is not known":          {"history", tells("happens RENAME connections:registry b")},
	})
}

func TestFalseDeathsAreCountedApart(t *testing.T) {
	t.Parallel()
	s := newBuilder()
	s.upToDeath()
	for i := range s.facts.Sockets {
		s.facts.Sockets[i].Ended = time.Time{} // a had only been stopped
	}
	s.out("a", 7*time.Second)
	s.happens("%s", s.evicts("a", "1", "2", "3"))
	v := Judge(s.history, s.facts)
	require.Empty(t, v.Violations)
	require.Equal(t, 3, v.FalseDeaths)
}

func TestTheVerdictTellsWhoLedAndEvicted(t *testing.T) {
	t.Parallel()
	s := newBuilder()
	s.swept()
	v := Judge(s.history, s.facts)
	require.Equal(t, 3, v.Evicted("a"))
	require.Zero(t, v.Evicted("b"))
	require.Equal(t, 3, v.EvictedBy("b"))
	require.Equal(t, []Lease{{once, "b/token"}}, v.Leases)
	require.Equal(t, []Term{{once, uint64(once.UnixMicro()), "b", "b/token"}}, v.Terms)
	require.Equal(t, s.now, v.Batches[0].At)
}

func TestConvergedMeansTheTruthAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		spoil func(s *builder)
		want  string // "": nothing to complain about
	}{
		"it is":                              {func(*builder) {}, ""},
		"an entry is missing":                {func(s *builder) { s.happens("HDEL connections:registry 1") }, "device 1 is at a"},
		"an entry names another":             {func(s *builder) { s.happens("HSET connections:registry 1 b") }, `names "b"`},
		"an entry is left over":              {func(s *builder) { s.happens("HSET connections:registry 9 a") }, "there is no socket"},
		"an entry of an index is missing":    {func(s *builder) { s.happens("SREM instance:devices:a 1") }, "not in its index"},
		"an entry of an index is left over":  {func(s *builder) { s.happens("SADD instance:devices:a 9") }, "the index of a has 9"},
		"the index of a dead owner is left":  {func(s *builder) { s.happens("SADD instance:devices:z 1") }, "the index of z has 1"},
		"a dead owner is on the roster":      {func(s *builder) { s.happens("SADD instances:roster z") }, "z is on the roster"},
		"a living one is not on the roster":  {func(s *builder) { s.happens("SREM instances:roster a") }, "a lives and is not on the roster"},
		"a heartbeat is left over":           {func(s *builder) { s.happens("SET instance:heartbeat:z 1/x") }, "z has a heartbeat"},
		"a living one's heartbeat is absent": {func(s *builder) { s.expires("b") }, "b lives and has no heartbeat"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBuilder()
			s.boots("a", "b")
			s.registers("a", "1", "2")
			row.spoil(s)
			s.facts.Truth, s.facts.Alive = map[string]string{"1": "a", "2": "a"}, []string{"a", "b"}
			found := Judge(s.history, s.facts).Settled()
			if row.want == "" {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Contains(t, found[0].String(), row.want)
			require.Equal(t, []string{"C7"}, checksOf(found))
		})
	}
}

func TestSpansBoundWhatHasNoTimeOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newBuilder() // tells once
	s.happens("HSET connections:registry 1 a")
	s.happens("HDEL connections:registry 1")
	s.now = once.Add(5 * time.Second)
	s.boots("a")
	s.happens("HDEL connections:registry 2")
	s.history[2].Second = once.Unix() + 2
	spans := Spans(s.history, &s.facts)
	beat := once.Add(5*time.Second + time.Millisecond)
	require.Equal(t, Span{once, once.Add(time.Millisecond)}, spans[0])
	require.Equal(t, Span{once, beat}, spans[1])
	require.Equal(t, once.Add(2*time.Second).Unix(), spans[2].From.Unix(), "the file's own annotation")
	require.Equal(t, beat, spans[2].Until)
	require.Equal(t, Span{once.Add(5 * time.Second), beat}, spans[3])
	require.True(t, spans[4].Until.After(beat.Add(time.Hour)), "nothing is known after the end")
}

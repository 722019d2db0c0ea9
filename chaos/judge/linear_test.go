package judge

import (
	"testing"
	"time"
)

// C8: what was seen from outside fits into the one order.
func TestWhatWasSeenHasAnOrder(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	accepts(t, map[string]func(s *builder){
		"each after the other": func(s *builder) {
			s.seen("1", "", -10*time.Second, -9*time.Second)
			s.moves()
			s.seen("1", "a", -5*time.Second, -5*time.Second+ms)
			s.seen("1", "b", -3*time.Second, -3*time.Second+ms)
			s.seen("1", "", 0, ms)
			s.seen("2", "", -3*time.Second, 0)
		},
		"at the same time as the change, either": func(s *builder) {
			s.moves()
			s.seen("1", "a", -4*time.Second-ms, -4*time.Second+ms)
			s.seen("1", "b", -4*time.Second-ms, -4*time.Second+ms)
			s.seen("1", "b", -2*time.Second, 0)
			s.seen("1", "", -2*time.Second, 0)
		},
		"a registration was confirmed": func(s *builder) {
			s.moves()
			s.facts.Acks = []Lookup{{"1", "b", s.now.Add(-5 * time.Second), s.now.Add(-2 * time.Second)}}
		},
		"by hand and by a new life it changes too": tells(`
			boots a
			registers a 1
			passes 1s
			strikes FLUSHALL
			holds gap
			passes 1s
			seen 1 - 0s 1ms
			passes 1s
			lives HSET connections:registry 1 z
			holds gap
			passes 1s
			seen 1 z 0s 1ms
		`),
	})
	rejects(t, map[string]bad{
		"a look-up sees what was long gone": {"C8", tells(`
			moves
			seen 1 a -3s -2s
		`)},
		"a look-up sees what came later": {"C8", tells(`
			moves
			seen 1 b -6s -5s
		`)},
		"a look-up sees what never was": {"C8", tells(`
			moves
			seen 1 c -6s 0s
		`)},
		"look-ups go back": {"C8", func(s *builder) {
			s.moves()
			s.seen("1", "b", -4*time.Second-3*ms, -4*time.Second)
			s.seen("1", "a", -4*time.Second+ms/2, -3*time.Second)
		}},
		"a confirmed registration was not there": {"C8", func(s *builder) {
			s.moves()
			s.facts.Acks = []Lookup{{"1", "b", s.now.Add(2 * ms), s.now.Add(time.Second)}}
		}},
		"what was deleted by hand is seen": {"C8", func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.passes(time.Second)
			s.strikes("HDEL connections:registry 1")
			s.passes(2 * time.Second)
			s.seen("1", "a", -time.Second+2*ms, 0)
			s.passes(2 * time.Second)
		}},
	})
}

// A device that is busy for long, and looked up all the time, is decided in no time: a time-out
// would be a failure.
func TestAnOrderOfManyIsFound(t *testing.T) {
	t.Parallel()
	accepts(t, map[string]func(s *builder){
		"a thousand changes": func(s *builder) {
			s.boots("a", "b")
			for range 500 {
				for _, id := range []string{"a", "b"} {
					s.registers(id, "1")
					s.seen("1", id, -time.Microsecond, time.Second)
					s.passes(time.Second)
					s.seen("1", id, -900*time.Millisecond, -800*time.Millisecond)
					s.leaves(id, "1")
				}
			}
		},
		"forty changes within a second, of which nothing tells the time": func(s *builder) {
			s.boots("a")
			s.registers("a", "1")
			s.passes(time.Second)
			for range 20 {
				s.strikes("HSET connections:registry 1 x")
				s.strikes("HSET connections:registry 1 y")
			}
			s.passes(time.Second)
			for i := range 40 {
				s.seen("1", []string{"x", "y"}[i%2], time.Duration(i-45)*20*time.Millisecond, time.Duration(i-40)*20*time.Millisecond)
			}
		},
	})
}

// moves is a device that comes to a, after 2 s to b, and 2 s later leaves it.
func (s *builder) moves() {
	tells(`
		boots a b
		registers a 1
		passes 2s
		leaves a 1
		registers b 1
		passes 2s
		leaves b 1
		releases b 1
	`)(s)
}

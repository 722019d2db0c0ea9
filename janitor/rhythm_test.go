package janitor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
)

// A beater is an owner in virtual time: it beats at first, then at each interval, until it is cut
// off.
type beater struct {
	id         string
	ttl, every time.Duration
	first, cut time.Duration
	lost       map[int]time.Duration // delay of these beats
}

const never = 1 << 62

// left is the remaining life of its heartbeat; 0 or less: expired. A ttl of 0 never expires.
func (b beater) left(at time.Duration) time.Duration {
	last := time.Duration(-never / 2)
	most := int((min(at, b.cut) - b.first) / b.every)
	for k := max(0, most-3); k <= most; k++ {
		if beat := b.first + time.Duration(k)*b.every + b.lost[k]; beat <= min(at, b.cut) {
			last = beat
		}
	}
	return last + b.ttl - at
}

// A stage is a fleet in virtual time and a term's breaker. The leader is not among its owners, and
// beats.
type stage struct {
	timing guard.Timing
	epoch  time.Time
	owners []beater
	*breaker
}

func newStage(t guard.Timing, owners ...beater) *stage {
	s := &stage{timing: t, epoch: time.Now(), owners: owners}
	s.newTerm()
	return s
}

func (s *stage) newTerm() { s.breaker = newBreaker(s.timing, time.Minute) }

// look reads all heartbeats, and returns the breaker's counts.
func (s *stage) look(at time.Duration) count {
	found, left := map[string]Liveness{"leader": Alive}, map[string]time.Duration{"leader": s.timing.TTL}
	for _, o := range s.owners {
		switch d := o.left(at); {
		case o.ttl == 0:
			found[o.id] = Alive
		case d <= 0:
			found[o.id] = Dead
		default:
			found[o.id], left[o.id] = Alive, d
		}
	}
	now := s.epoch.Add(at)
	s.rosterRead(now, found, nil, nil)
	s.beats(now, found, left)
	return s.count(now)
}

func (s *stage) firstEnd(after time.Duration) time.Duration {
	end := time.Duration(never)
	for _, o := range s.owners {
		if o.ttl > 0 && o.cut < never {
			end = min(end, o.cut+o.left(o.cut))
		}
	}
	return max(end, after)
}

// watch looks each second, and once more when the first heartbeat has expired.
func (s *stage) watch(from, until time.Duration) count {
	for at := from; at < until; at += time.Second {
		s.look(at)
	}
	return s.look(until + time.Millisecond)
}

func TestAWaveIsCountedBeforeAnyOfItIsSwept(t *testing.T) {
	t.Parallel()
	for _, timing := range []guard.Timing{
		fleetTiming, {Interval: 2 * time.Second, TTL: 6 * time.Second}, {Interval: 15 * time.Second, TTL: 90 * time.Second},
	} {
		for _, replicas := range []int{3, 11, 21} {
			for _, over := range []float64{0, 0.25, 0.5, 1} {
				if replicas == 3 && over > 0.25 {
					continue // the second may have beaten when the first heartbeat expires, see breaker
				}
				name := fmt.Sprintf("%d replicas, %v/%v, over %v of an interval", replicas, timing.Interval, timing.TTL, over)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					for seed := range uint64(20) {
						rnd := rand.New(rand.NewPCG(seed, 0))
						within := func(d time.Duration) time.Duration { return time.Duration(rnd.Float64() * float64(d)) }
						cut := 3*timing.TTL + within(timing.Interval)
						var owners []beater
						for i := range replicas - 1 {
							owners = append(owners, beater{
								id: fmt.Sprint(i), ttl: timing.TTL, every: timing.Interval, first: within(timing.Interval),
								cut: cut + time.Duration(float64(timing.Interval)*over*float64(i)/float64(replicas-2)),
							})
						}
						s := newStage(timing, owners...)
						first := s.firstEnd(0)
						c := s.watch(cut-timing.Interval, first)
						require.Positive(t, c.fallen, "seed %d", seed)
						require.True(t, c.tripped(), "seed %d: %+v", seed, c)

						s.newTerm() // in the middle of it
						c = s.look(first + time.Second)
						require.True(t, c.tripped(), "seed %d, a new leader: %+v", seed, c)
					}
				})
			}
		}
	}
}

// ours is an owner with the fleet's timing.
func ours(id string, first, cut time.Duration) beater {
	return beater{id: id, ttl: fleetTiming.TTL, every: fleetTiming.Interval, first: first, cut: cut}
}

func TestOneOfThreeDiesWithoutDelayWhileAnotherIsLate(t *testing.T) {
	t.Parallel()
	for timing, late := range map[guard.Timing]time.Duration{ // timeout of the lost beat, and two tenths
		fleetTiming: 8 * time.Second,
		{Interval: 2 * time.Second, TTL: 6 * time.Second}: 1400 * time.Millisecond,
	} {
		a := beater{id: "a", ttl: timing.TTL, every: timing.Interval, cut: 4 * timing.TTL}
		b := a
		b.id, b.first, b.cut, b.lost = "b", timing.Interval/2, never, map[int]time.Duration{}
		for k := range 100 {
			b.lost[k] = late * time.Duration(k%2)
		}
		s := newStage(timing, a, b)
		for at := timing.Interval; at < s.firstEnd(0)+timing.TTL; at += timing.Interval / 20 {
			require.False(t, s.look(at).tripped(), "at %v", at)
		}
	}
}

func TestAnOwnerIsHeldToItsOwnTTL(t *testing.T) {
	t.Parallel()
	minute := time.Minute
	for name, writer := range map[string]beater{
		"a third of ours":        {ttl: 30 * time.Second, every: 10 * time.Second, cut: never},
		"hardly in time":         {ttl: 30 * time.Second, every: 28 * time.Second, cut: never},
		"much longer":            {ttl: 10 * minute, every: 3 * minute, cut: never},
		"longer, hardly in time": {ttl: 5 * minute, every: 4 * minute, cut: never},
		"ours, hardly in time":   {ttl: 90 * time.Second, every: 80 * time.Second, cut: never},
		"without an end":         {every: minute, cut: never},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writer.id = "writer"
			s := newStage(fleetTiming, writer, ours("b", 0, never))
			learnt := 4*writer.every + minute
			s.watch(0, learnt)
			for at := learnt; at < learnt+10*minute; at += time.Second {
				require.Zero(t, s.look(at).late, "at %v", at)
			}
		})
	}
}

func TestAShorterTTLIsKnownAfterABeat(t *testing.T) {
	t.Parallel()
	s := newStage(fleetTiming, beater{id: "writer", ttl: 30 * time.Second, every: 10 * time.Second, cut: never})
	require.Equal(t, 1, s.watch(time.Second, 9*time.Second).late, "it may have been cut off a while ago")
	for at := 11 * time.Second; at < time.Minute; at += time.Second {
		require.Zero(t, s.look(at).late, "at %v", at)
	}
}

func TestAWaveOfWritersWithAnotherTTL(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{15 * time.Second, 30 * time.Second, 5 * time.Minute} {
		every := ttl / 3
		owners := []beater{{id: "first", ttl: ttl, every: every, cut: 3 * ttl}}
		for i := range 9 { // the others have just beaten
			first := every * time.Duration(20+i) / 30
			owners = append(owners, beater{id: fmt.Sprint(i), ttl: ttl, every: every, first: first, cut: 3 * ttl})
		}
		s := newStage(fleetTiming, owners...)
		c := s.watch(every, s.firstEnd(0))
		require.Positive(t, c.fallen)
		require.True(t, c.tripped(), "%v: %+v", ttl, c)
	}
}

func TestAnOwnerThatWasCutOffBeforeIsCountedTheNextTime(t *testing.T) {
	t.Parallel()
	a, b := ours("a", 0, 1246*time.Second), ours("b", 25*time.Second, 1246*time.Second)
	for _, o := range []*beater{&a, &b} { // the last two beats are late; then the network fails for good
		o.lost = map[int]time.Duration{37: 50 * time.Second, 38: 20 * time.Second, 39: 50 * time.Second, 40: 20 * time.Second, 41: time.Minute}
	}
	s := newStage(fleetTiming, a, b)
	c := s.watch(fleetTiming.Interval, s.firstEnd(0))
	require.Equal(t, count{fallen: 1, late: 1, known: 3}, c)
}

func TestReadingsFarApartTeachNoHabit(t *testing.T) {
	t.Parallel()
	s := newStage(fleetTiming, ours("a", 0, 1226*time.Second), ours("b", 26*time.Second, 1226*time.Second))
	for at := time.Second; at < 1226*time.Second; at += 59 * time.Second {
		s.look(at)
	}
	require.Equal(t, count{fallen: 1, late: 1, known: 3}, s.look(s.firstEnd(0)+time.Millisecond))
}

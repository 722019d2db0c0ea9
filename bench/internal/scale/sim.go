package scale

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

// Scenario is the steady state if it is zero.
type Scenario struct {
	For    time.Duration // to watch the steady state; else until the fleet has recovered
	Deaths int           // at the same time; their devices do not come back
	Flush  bool          // on all masters: owners restore their entries
	Storm  bool          // an empty registry, and all devices register at once
}

// Result has no order of masters.
type Result struct {
	Took   time.Duration   // watched, or until recovery
	CPU    []time.Duration // by master
	By     map[string]time.Duration
	Waited time.Duration // the longest wait for a turn
	Late   int           // calls that their callers would have given up
}

// Total sums up the CPU of all masters.
func (r Result) Total() (total time.Duration) {
	for _, cpu := range r.CPU {
		total += cpu
	}
	return total
}

// Busiest returns the busiest master's CPU.
func (r Result) Busiest() (most time.Duration) {
	for _, cpu := range r.CPU {
		most = max(most, cpu)
	}
	return most
}

type kind int

const (
	beats kind = iota
	checks
	ticks
	readings
	scans
	registrations
	lookups
	records
	sweeps
	heals
)

var kinds = []string{
	"beats", "claims compared", "ticks and leases", "roster readings", "full scans", "registrations",
	"look-ups", "telemetry", "sweeps", "healing",
}

const (
	beatPatience, callPatience = 2e6, 3e6 // µs
	fluid                      = 1e4      // µs; even load is served in such portions
)

// sim counts µs since its beginning.
type sim struct {
	p       Prices
	f       Fleet
	rng     *rand.Rand
	events  events
	number  uint64
	from    float64 // earlier work is not counted
	masters []master
	writers map[[2]int]int // waiting devices by replica and partition, while a call is under way
	leaders []leader       // by partition

	busy     map[kind]float64
	ended    float64 // last task done
	open     int     // tasks not done
	storming int     // 1: writers are among them
	result   Result
}

type master struct{ free, busy float64 }

type leader struct {
	paid, putOff float64
	dead         []int // unswept entries by owner
}

// Simulate plays a scenario, and is deterministic.
func Simulate(p Prices, f Fleet, sc Scenario) Result {
	s := &sim{
		p: p, f: f.WithDefaults(p), rng: rand.New(rand.NewPCG(15, 15)), busy: map[kind]float64{},
		writers: map[[2]int]int{},
	}
	s.masters, s.leaders = make([]master, s.f.Masters), make([]leader, s.f.Partitions)
	begin, end := us(s.f.Interval), math.Inf(1) // everybody has beaten once
	s.open = 1
	switch {
	case sc.Storm:
		begin = 0
		s.at(0, func(float64) { s.storm() })
	case sc.Deaths > 0:
		s.at(begin, func(now float64) { s.die(now, min(sc.Deaths, s.f.Replicas)) })
	case sc.Flush:
		s.at(begin, s.flush)
	default:
		end = begin + us(sc.For)
		s.open++
	}
	s.at(begin, func(float64) { s.open-- })
	if s.from = begin; !sc.Storm {
		s.fleet()
	}
	for s.open > 0 && len(s.events) > 0 && s.events[0].at < end {
		e := heap.Pop(&s.events).(event)
		e.do(e.at)
	}
	if math.IsInf(end, 1) {
		end = s.ended
	}
	s.result.Took, s.result.By = micros(end-s.from), map[string]time.Duration{}
	for _, m := range s.masters {
		s.result.CPU = append(s.result.CPU, micros(m.busy))
	}
	for k, spent := range s.busy {
		s.result.By[kinds[k]] = micros(spent)
	}
	return s.result
}

func (s *sim) at(when float64, do func(now float64)) {
	s.number++
	heap.Push(&s.events, event{when, s.number, do})
}

// every starts at a random time within the first period.
func (s *sim) every(period func() float64, do func(now float64)) {
	var again func(now float64)
	again = func(now float64) {
		do(now)
		s.at(now+period(), again)
	}
	s.at(s.rng.Float64()*period(), again)
}

func always(d time.Duration) func() float64 { return func() float64 { return us(d) } }

// call gives a master work, and returns when its answer arrives.
func (s *sim) call(m int, now float64, k kind, work, patience float64) (back float64) {
	server := &s.masters[m]
	begins := math.Max(now, server.free)
	work += s.p.cold(work, begins-server.free)
	server.free = begins + work
	if now >= s.from {
		server.busy += work
		s.busy[k] += work
		s.result.Waited = max(s.result.Waited, micros(begins-now))
		if patience > 0 && server.free-now > patience {
			s.result.Late++
		}
	}
	return server.free + us(s.f.RTT)
}

func (s *sim) master(partition int) int { return partition % s.f.Masters }

func (s *sim) parts(m int) float64 {
	n := s.f.Partitions / s.f.Masters
	if m < s.f.Partitions%s.f.Masters {
		n++
	}
	return float64(n)
}

func (s *sim) claims() float64 {
	return float64(s.f.Devices) / float64(s.f.Replicas) / float64(s.f.Partitions)
}

func (s *sim) fleet() {
	for range s.f.Replicas {
		if s.f.Partitions > 1 {
			s.every(always(s.f.ranksEvery()), func(now float64) {
				s.call(s.master(s.rng.IntN(s.f.Partitions)), now, ticks, ranking(s.p, float64(s.f.Replicas)), beatPatience)
			})
		}
		phase := s.rng.Float64() * us(s.f.Interval)
		for m := range s.f.Masters {
			if s.parts(m) > 0 {
				s.at(phase, func(now float64) { s.beat(m, now) })
			}
		}
	}
	for p := range s.f.Partitions {
		s.contend(p)
		s.read(p)
		s.every(always(s.f.Scan), func(now float64) {
			s.call(s.master(p), now, scans, counting(s.p, float64(s.f.Replicas)), 0)
		})
		s.every(always(s.f.scanEvery(s.p)), func(now float64) { s.scanFrom(p, now, float64(s.f.Devices)/float64(s.f.Partitions)) })
	}
	s.random(s.f.Registrations, func(now float64) {
		p := s.rng.IntN(s.f.Partitions)
		s.register(s.rng.IntN(s.f.Replicas), p, 1, now)
		s.call(s.master(p), now, registrations, moving(s.p), callPatience)
	})
	s.random(s.f.Lookups, func(now float64) {
		s.call(s.rng.IntN(s.f.Masters), now, lookups, s.p.trip(Lookup, 1), callPatience)
	})
	if s.f.Records > 0 {
		each := s.f.Records / float64(s.f.Masters) * fluid / 1e6 * s.p.us(Record, 1)
		for m := range s.f.Masters {
			s.every(func() float64 { return fluid }, func(now float64) { s.call(m, now, records, each, 0) })
		}
	}
}

func (s *sim) random(rate float64, do func(now float64)) {
	if rate > 0 {
		s.every(func() float64 { return s.rng.ExpFloat64() / rate * 1e6 }, do)
	}
}

// beat beats in all partitions of a master, in one pipeline, and compares a tenth of a replica's
// claims there.
func (s *sim) beat(m int, now float64) {
	parts := s.parts(m)
	back := s.call(m, now, beats, s.p.us(Trip, 0)+parts*s.p.us(Beat, 0), beatPatience)
	s.at(back, func(now float64) {
		s.call(m, now, checks, parts*checking(s.p, s.claims())/tenth, callPatience)
	})
	s.at(now+us(s.f.Interval), func(now float64) { s.beat(m, now) })
}

func (s *sim) contend(p int) {
	m, gap := s.master(p), us(s.f.TTL-s.f.Interval)/2
	do := func(work float64) func(now float64) {
		return func(now float64) { s.call(m, now, ticks, work, beatPatience) }
	}
	s.every(func() float64 { return gap / 5 }, do(ticking(s.p)))
	s.every(always(s.f.LeaseTTL/3), do(s.p.trip(Script, 0)))
	for range s.f.Contenders - 1 {
		s.every(func() float64 { return gap / 3 * (0.5 + s.rng.Float64()) }, do(ticking(s.p)))
		s.every(always(s.f.LeaseTTL*5/6), do(asking(s.p)))
	}
	if reserves := float64(s.f.Replicas - s.f.Contenders); reserves > 0 { // on average
		parts := float64(s.f.Partitions)
		s.every(always(s.f.TTL/4-s.f.Interval/4), do(reserves*s.f.reading(s.p)/parts))
		s.every(always(s.f.LeaseTTL), do(reserves*s.f.looking(s.p)/parts))
	}
}

func (s *sim) read(p int) {
	m, work := s.master(p), fullReading(s.p, float64(s.f.Replicas))
	s.every(always(s.f.Interval/looks), func(now float64) { s.call(m, now, readings, work, 0) })
}

func (s *sim) scanFrom(p int, now, left float64) {
	if left < 1 {
		return
	}
	n := math.Min(left, page)
	s.paced(p, now, scans, s.p.trip(Entries, n), func(now float64) { s.scanFrom(p, now, left-n) })
}

// paced waits until the leader's share of Redis' time allows a call.
func (s *sim) paced(p int, now float64, k kind, work float64, then func(now float64)) {
	l, spare := &s.leaders[p], (1-s.f.share())*us(burst)
	if now-l.paid >= us(burst) {
		l.putOff = now + us(burst)
	}
	rest := l.paid - now
	if now < l.putOff {
		rest -= spare
	}
	begin := func(now float64) {
		back := s.call(s.master(p), now, k, work, 0)
		l.paid = math.Max(l.paid, now) + work/s.f.share()
		s.at(back, then)
	}
	if rest > 0 {
		s.at(now+rest, begin)
		return
	}
	begin(now)
}

// register writes n devices. Devices that arrive during a replica's call share the next one.
func (s *sim) register(replica, p, n int, now float64) {
	key := [2]int{replica, p}
	waiting, under := s.writers[key]
	if s.writers[key] = waiting + n; !under {
		s.write(key, now)
	}
}

func (s *sim) write(key [2]int, now float64) {
	n := min(batch, s.writers[key])
	if n == 0 {
		delete(s.writers, key)
		s.open -= s.storming
		return
	}
	s.writers[key] -= n
	back := s.call(s.master(key[1]), now, registrations, s.p.trip(Register, float64(n)), callPatience)
	s.at(back, func(now float64) {
		s.ended = now
		s.write(key, now)
	})
}

func (s *sim) storm() {
	s.storming = 1
	for r := range s.f.Replicas {
		for p := range s.f.Partitions {
			s.open++
			s.register(r, p, int(math.Round(s.claims())), 0)
		}
	}
}

func (s *sim) die(now float64, deaths int) {
	for range deaths {
		for p := range s.f.Partitions {
			s.open++
			s.at(now, func(now float64) {
				l := &s.leaders[p]
				l.dead = append(l.dead, int(math.Round(s.claims())))
				if len(l.dead) == 1 {
					back := s.call(s.master(p), now, readings, fullReading(s.p, float64(s.f.Replicas)), 0)
					s.at(back, func(now float64) { s.sweep(p, now, l.dead[0]) })
				}
			})
		}
	}
}

func (s *sim) sweep(p int, now float64, left int) {
	if left > 0 {
		n := float64(min(left, batch))
		work := s.p.trip(Evict, n) + n*s.p.each(Members) + s.p.trip(Members, 0)*n/page
		s.paced(p, now, sweeps, work, func(now float64) { s.sweep(p, now, left-int(n)) })
		return
	}
	// The index is counted first, and the owner is taken off the roster afterwards.
	back := s.call(s.master(p), now, sweeps, s.p.trip(Get, 0)+s.p.trip(Members, 0)+s.p.trip(Script, 0), 0)
	s.at(back, func(now float64) {
		l := &s.leaders[p]
		l.dead, s.ended = l.dead[1:], now
		if s.open--; len(l.dead) > 0 {
			s.sweep(p, now, l.dead[0])
		}
	})
}

// flush lets each replica notice at its next beat, and then compare and write in batches.
func (s *sim) flush(now float64) {
	for range s.f.Replicas {
		phase := now + s.rng.Float64()*us(s.f.Interval)
		for m := range s.f.Masters {
			if s.parts(m) > 0 {
				s.open++
				s.at(phase, func(now float64) { s.heal(m, now, s.claims()) })
			}
		}
	}
}

func (s *sim) heal(m int, now, left float64) {
	n := math.Min(left, batch)
	back := s.call(m, now, heals, s.parts(m)*s.p.trip(Check, n), callPatience)
	s.at(back, func(now float64) {
		back := s.call(m, now, heals, s.parts(m)*s.p.trip(Heal, n), callPatience)
		s.at(back, func(now float64) {
			if s.ended = now; left > batch {
				s.heal(m, now, left-batch)
				return
			}
			s.open--
		})
	})
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Of two events at the same time, the one scheduled first goes first.
type event struct {
	at     float64
	number uint64
	do     func(now float64)
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *events) Push(x any) { *e = append(*e, x.(event)) }

func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}

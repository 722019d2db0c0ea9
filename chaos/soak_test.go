package chaos

import (
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// Row 30: everything at once, at random, until this process has run for ROLLCALL_DURATION, but each fault at least once.
func TestEverythingAtRandom(t *testing.T) {
	// A full share, for volume: a machine as busy as this keeps sweeps to a fifth of it nearly all the time.
	r := row{nr: 30, name: "EverythingAtRandom", devices: 100, settings: map[string]string{"JANITOR_REDIS_SHARE": "1"}, run: everythingAtRandom}
	r.run(newWorld(t, buildIngest(t), r))
}

// A herd's devices, and how many herds there are at a time.
const (
	herdSize = 30_000
	herds    = 4
)

// soak is a world to which everything happens at random, with herds for volume.
type soak struct {
	*world
	calm
	herds   []*herd
	ranges  map[*herd][2]int // the devices that it holds
	stale   []func()         // old sockets of devices that moved, not noticed yet
	animals int              // devices of herds so far
	names   int
	met     map[string]int
}

// soakFaults return how often they were met.
var soakFaults = []chance[*soak, int]{
	{"the leader stops past its lease", 1, func(s *soak) int { return s.stopped(s.leader(), leaseTTL*3/2) }},
	{"a replica stops for a TTL", 1, func(s *soak) int { return s.stopped(s.someone(), ttl*6/5) }},
	{"the leader is killed", 1, func(s *soak) int {
		s.kill(s.leader())
		s.joins(s.name())
		return 1
	}},
	{"a replica is killed and comes back under its id", 1, func(s *soak) int {
		r := s.someone()
		s.kill(r)
		s.joins(r.id)
		return 1
	}},
	{"a replica leaves gracefully", 1, func(s *soak) int {
		s.leaves(s.someone())
		s.joins(s.name())
		return 1
	}},
	{"a herd stops for longer than the TTL", 1, func(s *soak) int {
		cont := s.herd1().stop()
		lasting(ttl * 3 / 2)
		cont()
		return 1
	}},
	{"a herd is cut off for longer than the TTL", 1, func(s *soak) int {
		h := s.herd1()
		return s.during(h.id, h.proxy.Hold(), ttl*3/2)
	}},
	{"Redis stalls", 1, func(s *soak) int { return s.stalled(interval) }},
	{"Redis stalls for longer than the TTL", 1, func(s *soak) int { return s.stalled(ttl * 3 / 2) }},
	{"Redis is killed and loads its file", 1, func(s *soak) int {
		defer s.away("")()
		s.anew(s.server.Restart)
		return 1
	}},
	{"Redis takes no writes", 1, func(s *soak) int {
		defer s.away("")()
		require.NoError(s.t, s.Do(s.t.Context(), "CLIENT", "PAUSE", interval.Milliseconds(), "WRITE").Err())
		lasting(interval)
		return 1
	}},
	{"Redis' memory is full", 1, func(s *soak) int {
		defer s.away("")()
		require.NoError(s.t, s.ConfigSet(s.t.Context(), "maxmemory", "1").Err())
		lasting(2 * interval)
		require.NoError(s.t, s.ConfigSet(s.t.Context(), "maxmemory", "0").Err())
		return 1
	}},
	{"replies of evictions are lost", 3, func(s *soak) int { return s.whileSweeping(s.leader().proxy.LoseReply(isBatch, 3)) }},
	{"requests for evictions are lost", 2, func(s *soak) int { return s.whileSweeping(s.leader().proxy.LoseRequest(isBatch, 3)) }},
	{"an eviction is late by more than its term", 10, (*soak).fenced},
	{"an eviction is late, and nobody listened", 3, (*soak).unheard},
	{"the leader is cut off", 1, func(s *soak) int {
		r := s.leader()
		return s.during(r.id, r.proxy.Hold(), leaseTTL*3/2)
	}},
	{"replies to a replica are late", 1, func(s *soak) int {
		r := s.someone()
		return s.during(r.id, r.proxy.HoldReplies(), interval)
	}},
	{"packets are lost", 1, func(s *soak) int {
		n := 0
		for _, r := range s.fleet() {
			rule := r.proxy.Loss(0.3)
			defer func() { n += rule.Hits(); rule.End() }()
		}
		lasting(2 * interval)
		return 1
	}},
	{"all connections are reset", 1, func(s *soak) (n int) {
		for _, r := range s.fleet() {
			n += r.proxy.Reset()
		}
		for _, h := range s.herds {
			n += h.proxy.Reset()
		}
		return n
	}},
	{"replies of registrations are lost", 1, func(s *soak) int {
		s.ends1()
		var rule *proxy.Rule
		s.comes(func(h *herd) { rule = h.proxy.LoseReply(isRegister, 3) })
		rule.End()
		return rule.Hits()
	}},
	{"everything is lost", 1, func(s *soak) int {
		s.forgot = time.Now()
		return s.lost(func(p redis.Pipeliner) { p.FlushAll(s.t.Context()) })
	}},
	{"the lease is lost", 1, func(s *soak) int { return s.lost(func(p redis.Pipeliner) { p.Del(s.t.Context(), s.Lease()) }) }},
	{"the witness is lost", 1, func(s *soak) int { return s.lost(func(p redis.Pipeliner) { p.Del(s.t.Context(), s.Witness()) }) }},
	{"a heartbeat is evicted, and Redis starts again", 1, func(s *soak) int {
		return s.evictsOne(func() { s.anew(s.server.Restart) })
	}},
	{"a heartbeat is evicted, and Redis forgets its statistics", 1, func(s *soak) int {
		return s.evictsOne(func() { statisticsReset(s.world, nil) })
	}},
	{"a heartbeat is evicted, and one may not ask", 1, (*soak).uninformed},
	{"one of other settings comes and goes", 1, (*soak).disagreed},
	{"a heartbeat is lost", 1, func(s *soak) int {
		return s.lost(func(p redis.Pipeliner) { p.Del(s.t.Context(), s.Heartbeat(s.herd1().id)) })
	}},
}

func everythingAtRandom(w *world) {
	s := &soak{world: w, ranges: make(map[*herd][2]int), met: make(map[string]int)}
	w.fault, w.slack = &s.calm, patience
	var until time.Time
	if given := os.Getenv("ROLLCALL_DURATION"); given != "" {
		d, err := time.ParseDuration(given)
		require.NoError(w.t, err, "ROLLCALL_DURATION")
		until = begun.Add(d)
	}
	for range 3 {
		w.start(s.name())
	}
	for range herds {
		s.comes()
	}
	w.spread(some(0, w.devices.Len()))
	w.listened()
	w.traffic.start(w.base)
	play(w.rnd, soakFaults, func() bool { return time.Now().Before(until) }, func(f chance[*soak, int]) {
		w.t.Log(f.name)
		s.dies()
		n := f.do(s)
		s.met[f.name] += n
		s.hit(n)
	})
	for _, notice := range s.stale {
		notice()
	}
	w.ends()
	var ids []string
	for _, h := range s.herds {
		ids = append(ids, h.id)
	}
	v := w.judge(ids...)
	for _, f := range soakFaults {
		w.t.Logf("%4d %s", s.met[f.name], f.name)
		require.Positive(w.t, s.met[f.name], f.name)
	}
	require.Positive(w.t, v.Evicted(""))
}

func (s *soak) name() string {
	s.names++
	return fmt.Sprintf("n%d", s.names)
}

func (s *soak) joins(id string) {
	r := s.launch(id)
	r.ready()
	s.running(r)
}

func (s *soak) someone() *replica {
	fleet := s.fleet()
	return fleet[s.rnd.IntN(len(fleet))]
}

func (s *soak) herd1() *herd { return s.herds[s.rnd.IntN(len(s.herds))] }

// comes starts a herd, of new devices. Something may befall it first.
func (s *soak) comes(first ...func(h *herd)) {
	h := s.herd(s.name())
	for _, f := range first {
		f(h)
	}
	s.joined(h, s.animals, s.animals+herdSize)
	s.animals += herdSize
}

// joined lets a herd have a range of devices.
func (s *soak) joined(h *herd, from, to int) {
	s.herds = append(s.herds, h)
	h.claim(from, to, nil)
	s.ranges[h] = [2]int{from, to}
}

// ends1 kills a herd.
func (s *soak) ends1() (h *herd, had [2]int) {
	i := s.rnd.IntN(len(s.herds))
	h = s.herds[i]
	had = s.ranges[h]
	s.herds = append(s.herds[:i:i], s.herds[i+1:]...)
	delete(s.ranges, h)
	h.kill()
	for _, notice := range s.stale { // of the dead nothing can be noticed any more
		notice()
	}
	s.stale = nil
	return h, had
}

// dies kills a herd. Another comes: a new one, or the same id again with some of the devices; and some of the devices may go to
// others.
func (s *soak) dies() {
	h, had := s.ends1()
	switch s.rnd.IntN(4) {
	case 0: // the same id
		s.joined(s.herd(h.id), had[0], had[0]+(had[1]-had[0])/4)
	case 1: // its devices go to a new one, all but some
		s.joined(s.herd(s.name()), had[0], had[1]-(had[1]-had[0])/10)
	default:
		s.comes()
	}
	if s.rnd.IntN(3) == 0 {
		s.moves1()
	}
}

// moves1 moves some devices of one herd to another, which then has them besides its own; the former notices late.
func (s *soak) moves1() {
	from, to := s.herd1(), s.herd1()
	had := s.ranges[from]
	if from == to || had[1]-had[0] < 1000 {
		return
	}
	a, b := had[1]-500, had[1]
	s.ranges[from] = [2]int{had[0], a}
	to.claim(a, b, from)
	s.stale = append(s.stale, func() {
		if _, lives := s.ranges[from]; lives {
			from.order("release", a, b)
		}
	})
}

// stopped freezes a replica.
func (s *soak) stopped(r *replica, d time.Duration) int {
	cont := s.stop(r)
	lasting(d)
	cont()
	return 1
}

// stalled freezes Redis.
func (s *soak) stalled(d time.Duration) int {
	defer s.away("")()
	s.server.Stop()
	lasting(d)
	s.server.Cont()
	return 1
}

// during lets a line's fault last while an instance is away.
func (s *soak) during(id string, r *proxy.Rule, d time.Duration) int {
	defer s.away(id)()
	lasting(d)
	r.End()
	return r.Hits()
}

// whileSweeping waits until a rule has hit evictions: a herd has just died.
func (s *soak) whileSweeping(r *proxy.Rule) int {
	defer r.End()
	s.soon(func() bool { return r.Hits() > 0 })
	return r.Hits()
}

// soon waits for what may come, or not, since the evidence is in doubt.
func (s *soak) soon(cond func() bool) bool {
	ticker := time.NewTicker(patiencePause)
	defer ticker.Stop()
	for late := time.Now().Add(ttl + warm + janitorEvery); time.Now().Before(late); <-ticker.C {
		if cond() {
			return true
		}
	}
	return false
}

// late catches an eviction on its way, and lets go of it when meanwhile has returned. It was met if the server then refused it
// with one of the verdicts.
func (s *soak) late(meanwhile func(r *replica), verdicts ...string) (met int) {
	leader := s.leader()
	defer s.away(leader.id)()
	refused := func() (n int) {
		for _, v := range verdicts {
			n += leader.proxy.verdicts()[v]
		}
		return n
	}
	caught, release := leader.proxy.HoldNext(isBatch)
	defer release()
	s.plant(fmt.Sprintf("ghost-%d", len(s.ghosts)), 50, true) // something to evict, whatever else is to be swept by then
	if !s.soon(func() bool { return len(caught) > 0 }) {
		s.t.Log("nothing was caught")
		return 0
	}
	answered := func() (n int) {
		for _, v := range leader.proxy.verdicts() {
			n += v
		}
		return n
	}
	before := refused()
	meanwhile(leader)
	then := answered()
	release()
	s.soon(func() bool { return refused() > before || answered() > then && leader.proxy.unanswered() == 0 })
	s.t.Logf("refused %d, by now %v", refused()-before, leader.proxy.verdicts())
	return refused() - before
}

// fenced: the lease is another's when the eviction lands. It was lost, or lapsed while the leader stood still.
func (s *soak) fenced() int {
	return s.late(func(r *replica) {
		term := s.Get(s.t.Context(), s.Lease()).Val()
		if s.rnd.IntN(4) > 0 {
			s.lost(func(p redis.Pipeliner) { p.Del(s.t.Context(), s.Lease()) })
		} else {
			defer s.stop(r)()
		}
		eventually(s.t, "another term begins", func() bool {
			now := s.Get(s.t.Context(), s.Lease()).Val() // also of the same replica: it is no other's to win
			return now != "" && now != term
		})
	}, "FENCED")
}

// unheard: when the eviction lands nobody has listened for longer than the GAP, and perhaps the lease has lapsed too.
func (s *soak) unheard() int {
	return s.late(func(*replica) { s.stalled((ttl - interval) * 3 / 4) }, "WARMING", "FENCED")
}

// evictsOne has Redis evict the heartbeat of a herd that lives, and something happen before anybody ticks.
func (s *soak) evictsOne(then func()) int {
	h := s.herd1()
	var others []string
	for _, other := range s.herds {
		others = append(others, other.id)
	}
	alive, speaks := s.mute(h.id, h.proxy, others...)
	defer speaks()
	holds := make(map[*redisProxy]*proxy.Rule)
	for _, p := range s.proxies {
		holds[p] = p.Hold()
	}
	s.config("maxmemory-policy", "volatile-ttl")
	s.config("maxmemory-samples", "64")
	evicted := s.evict(h.id)
	s.config("maxmemory-policy", "noeviction")
	then()
	for p, r := range holds {
		if p != h.proxy {
			r.End()
		}
	}
	defer func() {
		for _, r := range holds {
			r.End()
		}
	}()
	for alive() {
		lasting(patiencePause)
	}
	if !evicted {
		return 0
	}
	return 1
}

// uninformed has a replica come for a while that may not ask Redis how many keys it has evicted.
func (s *soak) uninformed() int {
	id := s.name()
	require.NoError(s.t, s.acl(id, "on", ">secret", "~*", "&*", "+@all", "-info").Err())
	s.logins[id] = id + ":secret@"
	poor := s.start(id)
	defer s.leaves(poor)
	return s.evictsOne(func() {})
}

// disagreed has a replica come for a while that beats more slowly.
func (s *soak) disagreed() int {
	usual := maps.Clone(s.settings)
	s.settings["HEARTBEAT_INTERVAL"], s.settings["HEARTBEAT_TTL"] = (interval * 3 / 2).String(), (ttl * 3 / 2).String()
	slow := s.start(s.name())
	s.settings = usual
	s.doubted("settings")
	s.slower(slow, interval*3/2, ttl*3/2)
	n := s.evictsOne(func() {})
	s.leaves(slow)
	s.slowerEnded(slow)
	return n
}

// lost has Redis lose something.
func (s *soak) lost(what func(p redis.Pipeliner)) int {
	s.meddle("lost", what)
	return 1
}

package chaos

import (
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// Row 30: everything at once, at random, until this process has run for ROLLCALL_DURATION, but each
// fault at least once.
func TestEverythingAtRandom(t *testing.T) {
	redistest.OnlyIfAsked(t)
	// A full share, for volume: a machine as busy as this keeps sweeps to a fifth of it nearly all
	// the time.
	r := row{nr: 30, name: "EverythingAtRandom", devices: 100, settings: map[string]string{"JANITOR_REDIS_SHARE": "1"}, run: everythingAtRandom}
	r.run(newEnvironment(t, harness.BuildIngest(t), r))
}

// A load process's devices, and how many load processes there are at a time.
const (
	loadSize = 30_000
	loads    = 4
)

// soak is an environment to which everything happens at random, with load processes for volume.
type soak struct {
	*environment
	calm
	loads       []*harness.LoadProcess
	ranges      map[*harness.LoadProcess][2]int // the devices that it holds
	stale       []func()                        // old sockets of devices that moved, not noticed yet
	loadDevices int                             // devices of load processes so far
	names       int
	met         map[string]int
}

// soakFaults return how often they were met.
var soakFaults = []chance{
	{"the leader stops past its lease", 1, func(s *soak) int { return s.stopped(s.Leader(), harness.LeaseTTL*3/2) }},
	{"a replica stops for a TTL", 1, func(s *soak) int { return s.stopped(s.someone(), harness.TTL*6/5) }},
	{"the leader is killed", 1, func(s *soak) int {
		s.Kill(s.Leader())
		s.joins(s.name())
		return 1
	}},
	{"a replica is killed and comes back under its id", 1, func(s *soak) int {
		r := s.someone()
		s.Kill(r)
		s.joins(r.ID)
		return 1
	}},
	{"a replica leaves gracefully", 1, func(s *soak) int {
		r := s.someone()
		require.Zero(s, s.Terminate(r), r.Log())
		s.joins(s.name())
		return 1
	}},
	{"a load process stops for longer than the TTL", 1, func(s *soak) int {
		cont := s.someLoad().Stop()
		harness.Lasting(harness.TTL * 3 / 2)
		cont()
		return 1
	}},
	{"a load process is cut off for longer than the TTL", 1, func(s *soak) int {
		h := s.someLoad()
		return s.during(h.ID, h.Proxy.Hold(), harness.TTL*3/2)
	}},
	{"Redis stalls", 1, func(s *soak) int { return s.stalled(harness.Interval) }},
	{"Redis stalls for longer than the TTL", 1, func(s *soak) int { return s.stalled(harness.TTL * 3 / 2) }},
	{"Redis is killed and loads its file", 1, func(s *soak) int {
		defer s.Outage("")()
		s.CountersBeginAnew(s.Server.Restart)
		return 1
	}},
	{"Redis takes no writes", 1, func(s *soak) int {
		defer s.Outage("")()
		require.NoError(s, s.Do(s.Context(), "CLIENT", "PAUSE", harness.Interval.Milliseconds(), "WRITE").Err())
		harness.Lasting(harness.Interval)
		return 1
	}},
	{"Redis' memory is full", 1, func(s *soak) int {
		defer s.Outage("")()
		require.NoError(s, s.ConfigSet(s.Context(), "maxmemory", "1").Err())
		harness.Lasting(2 * harness.Interval)
		require.NoError(s, s.ConfigSet(s.Context(), "maxmemory", "0").Err())
		return 1
	}},
	{"replies of evictions are lost", 3, func(s *soak) int { return s.whileSweeping(s.Leader().Proxy.LoseReply(harness.IsBatch, 3)) }},
	{"requests for evictions are lost", 2, func(s *soak) int { return s.whileSweeping(s.Leader().Proxy.LoseRequest(harness.IsBatch, 3)) }},
	{"an eviction is late by more than its term", 10, (*soak).fenced},
	{"an eviction is late, and nobody listened", 3, (*soak).unheard},
	{"the leader is cut off", 1, func(s *soak) int {
		r := s.Leader()
		return s.during(r.ID, r.Proxy.Hold(), harness.LeaseTTL*3/2)
	}},
	{"replies to a replica are late", 1, func(s *soak) int {
		r := s.someone()
		return s.during(r.ID, r.Proxy.HoldReplies(), harness.Interval)
	}},
	{"packets are lost", 1, func(s *soak) int {
		n := 0
		for _, r := range s.Replicas() {
			rule := r.Proxy.Loss(0.3)
			defer func() { n += rule.Hits(); rule.End() }()
		}
		harness.Lasting(2 * harness.Interval)
		return 1
	}},
	{"all connections are reset", 1, func(s *soak) (n int) {
		for _, r := range s.Replicas() {
			n += r.Proxy.Reset()
		}
		for _, h := range s.loads {
			n += h.Proxy.Reset()
		}
		return n
	}},
	{"replies of registrations are lost", 1, func(s *soak) int {
		s.loadDies()
		var rule *proxy.Rule
		s.loadComes(func(h *harness.LoadProcess) { rule = h.Proxy.LoseReply(harness.IsRegister, 3) })
		rule.End()
		return rule.Hits()
	}},
	{"everything is lost", 1, func(s *soak) int {
		s.Forgot = time.Now()
		return s.lost(func(p redis.Pipeliner) { p.FlushAll(s.Context()) })
	}},
	{"the lease is lost", 1, func(s *soak) int { return s.lost(func(p redis.Pipeliner) { p.Del(s.Context(), s.Lease()) }) }},
	{"the witness is lost", 1, func(s *soak) int { return s.lost(func(p redis.Pipeliner) { p.Del(s.Context(), s.Witness()) }) }},
	{"a heartbeat is evicted, and Redis starts again", 1, func(s *soak) int {
		return s.evictsOne(func() { s.CountersBeginAnew(s.Server.Restart) })
	}},
	{"a heartbeat is evicted, and Redis forgets its statistics", 1, func(s *soak) int {
		return s.evictsOne(func() { statisticsReset(s.environment, nil) })
	}},
	{"a heartbeat is evicted, and one may not ask", 1, (*soak).uninformed},
	{"one of other settings comes and goes", 1, (*soak).disagreed},
	{"a heartbeat is lost", 1, func(s *soak) int {
		return s.lost(func(p redis.Pipeliner) { p.Del(s.Context(), s.Heartbeat(s.someLoad().ID)) })
	}},
}

func everythingAtRandom(w *environment) {
	s := &soak{environment: w, ranges: make(map[*harness.LoadProcess][2]int), met: make(map[string]int)}
	w.fault, w.Slack = &s.calm, harness.Patience
	var until time.Time
	if given := os.Getenv("ROLLCALL_DURATION"); given != "" {
		d, err := time.ParseDuration(given)
		require.NoError(w, err, "ROLLCALL_DURATION")
		until = begun.Add(d)
	}
	for range 3 {
		w.Start(s.name())
	}
	for range loads {
		s.loadComes()
	}
	w.Spread(harness.Some(0, w.Fleet.Len()))
	w.Listened()
	w.Traffic.Start(w.Environment)
	play(w.Rand, soakFaults, func() bool { return time.Now().Before(until) }, func(f chance) {
		w.T.Log(f.name)
		s.loadIsReplaced()
		n := f.do(s)
		s.met[f.name] += n
		s.hit(n)
	})
	for _, notice := range s.stale {
		notice()
	}
	w.ends()
	var ids []string
	for _, h := range s.loads {
		ids = append(ids, h.ID)
	}
	v := w.judge(ids...)
	for _, f := range soakFaults {
		w.Logf("%4d %s", s.met[f.name], f.name)
		require.Positive(w, s.met[f.name], f.name)
	}
	require.Positive(w, v.Evicted(""))
}

func (s *soak) name() string {
	s.names++
	return fmt.Sprintf("n%d", s.names)
}

func (s *soak) joins(id string) {
	r := s.Launch(s.Proxy(), id)
	r.Ready()
	s.Runs(r)
}

func (s *soak) someone() *harness.Replica {
	fleet := s.Replicas()
	return fleet[s.Rand.IntN(len(fleet))]
}

func (s *soak) someLoad() *harness.LoadProcess { return s.loads[s.Rand.IntN(len(s.loads))] }

// loadComes starts a load process, of new devices. Something may befall it first.
func (s *soak) loadComes(first ...func(h *harness.LoadProcess)) {
	h := s.StartLoad(s.name())
	for _, f := range first {
		f(h)
	}
	s.loadClaims(h, s.loadDevices, s.loadDevices+loadSize)
	s.loadDevices += loadSize
}

// loadClaims lets a load process have a range of devices.
func (s *soak) loadClaims(h *harness.LoadProcess, from, to int) {
	s.loads = append(s.loads, h)
	h.Claim(from, to, nil)
	s.ranges[h] = [2]int{from, to}
}

// loadDies kills a load process.
func (s *soak) loadDies() (h *harness.LoadProcess, had [2]int) {
	i := s.Rand.IntN(len(s.loads))
	h = s.loads[i]
	had = s.ranges[h]
	s.loads = append(s.loads[:i:i], s.loads[i+1:]...)
	delete(s.ranges, h)
	h.Kill()
	for _, notice := range s.stale { // of the dead nothing can be noticed any more
		notice()
	}
	s.stale = nil
	return h, had
}

// loadIsReplaced kills a load process. Another comes: a new one, or the same id again with some of
// the devices; and some of the devices may go to others.
func (s *soak) loadIsReplaced() {
	h, had := s.loadDies()
	switch s.Rand.IntN(4) {
	case 0: // the same id
		s.loadClaims(s.StartLoad(h.ID), had[0], had[0]+(had[1]-had[0])/4)
	case 1: // its devices go to a new one, all but some
		s.loadClaims(s.StartLoad(s.name()), had[0], had[1]-(had[1]-had[0])/10)
	default:
		s.loadComes()
	}
	if s.Rand.IntN(3) == 0 {
		s.loadMoves()
	}
}

// loadMoves moves some devices of one load process to another, which then has them besides its own;
// the former notices late.
func (s *soak) loadMoves() {
	from, to := s.someLoad(), s.someLoad()
	had := s.ranges[from]
	if from == to || had[1]-had[0] < 1000 {
		return
	}
	a, b := had[1]-500, had[1]
	s.ranges[from] = [2]int{had[0], a}
	to.Claim(a, b, from)
	s.stale = append(s.stale, func() {
		if _, lives := s.ranges[from]; lives {
			from.Order("release", a, b)
		}
	})
}

// stopped freezes a replica.
func (s *soak) stopped(r *harness.Replica, d time.Duration) int {
	cont := s.Stop(r)
	harness.Lasting(d)
	cont()
	return 1
}

// stalled freezes Redis.
func (s *soak) stalled(d time.Duration) int {
	defer s.Outage("")()
	s.Server.Stop()
	harness.Lasting(d)
	s.Server.Cont()
	return 1
}

// during lets a proxy's fault last while an instance is away.
func (s *soak) during(id string, r *proxy.Rule, d time.Duration) int {
	defer s.Outage(id)()
	harness.Lasting(d)
	r.End()
	return r.Hits()
}

// whileSweeping waits until a rule has hit evictions: a load process has just died.
func (s *soak) whileSweeping(r *proxy.Rule) int {
	defer r.End()
	s.soon(func() bool { return r.Hits() > 0 })
	return r.Hits()
}

// soon waits for what may come, or not, since the evidence is not certain.
func (s *soak) soon(cond func() bool) bool {
	ticker := time.NewTicker(harness.PatiencePause)
	defer ticker.Stop()
	for late := time.Now().Add(harness.TTL + harness.GracePeriod + harness.JanitorInterval); time.Now().Before(late); <-ticker.C {
		if cond() {
			return true
		}
	}
	return false
}

// late catches an eviction on its way, and lets go of it when meanwhile has returned. It was met if
// the server then refused it with one of the verdicts.
func (s *soak) late(meanwhile func(r *harness.Replica), verdicts ...string) (met int) {
	leader := s.Leader()
	defer s.Outage(leader.ID)()
	refused := func() (n int) {
		for _, v := range verdicts {
			n += leader.Proxy.Verdicts()[v]
		}
		return n
	}
	caught, release := leader.Proxy.HoldNext(harness.IsBatch)
	defer release()
	// something to evict, whatever else is to be swept by then
	s.Plant(fmt.Sprintf("ghost-%d", len(s.Ghosts)), 50, true)
	if !s.soon(func() bool { return len(caught) > 0 }) {
		s.T.Log("nothing was caught")
		return 0
	}
	answered := func() (n int) {
		for _, v := range leader.Proxy.Verdicts() {
			n += v
		}
		return n
	}
	before := refused()
	meanwhile(leader)
	then := answered()
	release()
	s.soon(func() bool { return refused() > before || answered() > then && leader.Proxy.Unanswered() == 0 })
	s.Logf("refused %d, by now %v", refused()-before, leader.Proxy.Verdicts())
	return refused() - before
}

// fenced: the lease is another's when the eviction lands. It was lost, or lapsed while the leader
// stood still.
func (s *soak) fenced() int {
	return s.late(func(r *harness.Replica) {
		term := s.lease()
		if s.Rand.IntN(4) > 0 {
			s.lost(func(p redis.Pipeliner) { p.Del(s.Context(), s.Lease()) })
		} else {
			defer s.Stop(r)()
		}
		harness.Eventually(s, "another term begins", func() bool {
			now := s.lease() // also of the same replica: it is no other's to win
			return now != "" && now != term
		})
	}, "FENCED")
}

// unheard: when the eviction lands nobody has listened for longer than the GAP, and perhaps the
// lease has lapsed too.
func (s *soak) unheard() int {
	return s.late(func(*harness.Replica) { s.stalled((harness.TTL - harness.Interval) * 3 / 4) }, "HELD", "FENCED")
}

// evictsOne has Redis evict the heartbeat of a load process that lives, and something happen before
// anybody ticks.
func (s *soak) evictsOne(then func()) int {
	h := s.someLoad()
	var others []string
	for _, other := range s.loads {
		others = append(others, other.ID)
	}
	alive, speaks := s.mute(h.ID, h.Proxy, others...)
	defer speaks()
	holds := make(map[*harness.Proxy]*proxy.Rule)
	for _, p := range s.Proxies {
		holds[p] = p.Hold()
	}
	s.config("maxmemory-policy", "volatile-ttl")
	s.config("maxmemory-samples", "64")
	evicted := s.evict(h.ID)
	s.config("maxmemory-policy", "noeviction")
	then()
	for p, r := range holds {
		if p != h.Proxy {
			r.End()
		}
	}
	defer func() {
		for _, r := range holds {
			r.End()
		}
	}()
	for alive() {
		harness.Lasting(harness.PatiencePause)
	}
	if !evicted {
		return 0
	}
	return 1
}

// uninformed has a replica come for a while that may not ask Redis how many keys it has evicted.
func (s *soak) uninformed() int {
	id := s.name()
	require.NoError(s, s.acl(id, "on", ">secret", "~*", "&*", "+@all", "-info").Err())
	s.Logins[id] = id + ":secret@"
	poor := s.Start(id)
	defer s.Terminate(poor)
	return s.evictsOne(func() {})
}

// disagreed has a replica come for a while that beats more slowly.
func (s *soak) disagreed() int {
	usual := maps.Clone(s.Settings)
	s.Settings["HEARTBEAT_INTERVAL"], s.Settings["HEARTBEAT_TTL"] = (harness.Interval * 3 / 2).String(), (harness.TTL * 3 / 2).String()
	slow := s.Start(s.name())
	s.Settings = usual
	s.raised("settings")
	s.SlowerSettings(slow, harness.Interval*3/2, harness.TTL*3/2)
	n := s.evictsOne(func() {})
	require.Zero(s, s.Terminate(slow), slow.Log())
	s.SlowerSettingsEnd(slow)
	return n
}

// lost has Redis lose something.
func (s *soak) lost(what func(p redis.Pipeliner)) int {
	s.Meddle("lost", what)
	return 1
}

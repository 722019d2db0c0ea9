package janitor_test

import (
	"fmt"
	"iter"
	"maps"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func keysOf[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// judge is the oracle for a deleted entry: was its owner dead, or could nobody know better?
func (m *model) judge(l *leader, sweep, imei string, n *instance, breaker string) {
	now := time.Now()
	// it beat before anybody listened, and not since; see README
	untold := !n.told && n.ttl > l.ttl
	if n.alive && !n.byHand && !untold && now.Sub(n.beat) < n.ttl {
		m.found("%s went, and %s lives: it beat %s ago", imei, n.id, now.Sub(n.beat))
	}
	// The breaker: owners that fell within the leader's TTL, as far as it can know, against all
	// that it may know.
	const slack = 3 * time.Second
	within := func(d time.Duration, at time.Time) bool { return !at.IsZero() && now.Sub(at) < d }
	fallen, known := 0, 0
	for _, o := range m.instances {
		first := within(l.ttl-slack, l.began) && m.silent(o) &&
			(l.mute[o] || o.old && !l.full && sweep == "registry" && m.entries(o) > 0)
		fell := l.seen[o] && m.silent(o) && within(l.ttl-slack, o.fell) && !within(slack, o.fell) && (!o.old || o.scanned)
		if first || fell {
			fallen++
		}
		if first || !o.expires.IsZero() || within(l.ttl+slack, o.fell) {
			known++
		}
	}
	ms, _ := strconv.ParseInt(breaker, 10, 64)
	lately := ms > 0 && m.server().Sub(time.UnixMilli(ms)).Abs() < 2*l.grace()+slack
	if fallen >= 2 && 2*fallen > known && !lately {
		m.found("%s of %s went, while %d of %d owners had fallen and no hold was raised for it", imei, n.id, fallen, known)
	}
}

// step is one random event. Events that need another one nearby are likely.
func (m *model) step() {
	m.Steps++
	for _, s := range []struct {
		weight int
		do     func()
	}{
		{24, func() { m.pass(m.upTo(1500 * time.Millisecond)); m.sweep(m.leader, 0) }},
		{12, func() { m.pass(m.upTo(1500 * time.Millisecond)); m.sweep(m.leader, 1) }},
		{4, func() { m.pass(m.upTo(m.instances[0].grace() * 3)) }},
		{10, m.listen},
		{10, m.evict},
		{6, func() { m.restart(m.upTo(2 * time.Second)) }},
		{1, func() { m.restart(m.upTo(5 * time.Minute)) }},
		{1, m.loseAll},
		{2, m.save},
		{2, m.promote},
		{1, m.jump},
		{3, m.resetStat},
		{5, m.cutOff},
		{3, m.kill},
		{5, m.revive},
		{2, m.goodbye},
		{4, func() { m.electAny() }},
		{2, func() { m.sweep(m.stale, 0) }},
		{2, func() { m.sweep(m.stale, 1) }},
		{3, m.lose},
	} {
		if roll := m.rng.IntN(102); roll < s.weight {
			s.do()
			return
		}
	}
	m.pass(m.upTo(10 * time.Second))
}

// listen waits until nothing holds, if that comes.
func (m *model) listen() {
	if m.leader == nil {
		m.electAny()
		return
	}
	for range 3 {
		m.pass(m.leader.janitor.NextTick())
		grace := m.leader.janitor.HeldFor()
		if grace == 0 || m.gaveUp {
			return
		}
		m.pass(grace)
	}
}

func (m *model) evict() {
	for range 1 + m.rng.IntN(2) {
		if n := m.any(); !n.expires.IsZero() && !m.down {
			m.say("Redis evicts %s's heartbeat", n.id)
			m.evictedKeys++
			m.silence(n)
		}
	}
}

func (m *model) restart(down time.Duration) {
	m.say("Redis goes away for %s", down)
	m.down = true
	m.pass(down)
	m.up()
}

// up starts another life of the server.
func (m *model) up() {
	m.run++
	m.commands, m.evictedKeys, m.down = m.rng.IntN(m.commands+10), 0, false
	for _, n := range m.instances {
		if !n.expires.IsZero() && !m.server().Before(n.expires) {
			m.expire(n)
		}
	}
	m.say("Redis is back")
	m.changed()
}

func (m *model) loseAll() {
	m.say("Redis restarts without a file")
	m.wipe()
	m.up()
	m.leader = nil
}

func (m *model) wipe() {
	keys, err := m.db.Keys(m.ctx, m.Prefix+"*").Result()
	require.NoError(m.t, err)
	if len(keys) > 0 {
		require.NoError(m.t, m.db.Del(m.ctx, keys...).Err())
	}
	clear(m.present)
	for _, n := range m.instances {
		if !n.expires.IsZero() && n.fell.IsZero() {
			n.fell = time.Now()
		}
		n.expires, n.since, n.listed, n.written = time.Time{}, time.Time{}, false, false
	}
}

// snapshot is a replica's or a file's copy of the keyspace.
type snapshot struct {
	hashes  map[string]map[string]string
	sets    map[string][]string
	texts   map[string]string
	stream  []redis.XMessage
	expires map[*instance]time.Time
	told    map[*instance]bool // whose settings the witness knows
}

func (m *model) save() {
	if m.down {
		return
	}
	s := &snapshot{map[string]map[string]string{}, map[string][]string{}, map[string]string{}, nil, map[*instance]time.Time{}, map[*instance]bool{}}
	for _, key := range []string{m.Registry(), m.Witness()} {
		s.hashes[key] = m.db.HGetAll(m.ctx, key).Val()
	}
	for _, key := range []string{m.Lease()} {
		s.texts[key] = m.db.Get(m.ctx, key).Val()
	}
	s.sets[m.Roster()] = m.db.SMembers(m.ctx, m.Roster()).Val()
	for _, n := range m.instances {
		s.sets[m.Devices(n.id)] = m.db.SMembers(m.ctx, m.Devices(n.id)).Val()
		s.expires[n], s.told[n] = n.expires, n.told
	}
	s.stream = m.db.XRange(m.ctx, m.Log(), "-", "+").Val()
	m.saved = s
	m.say("the replica has all of this, and nothing more")
}

// promote makes the replica the server: everything after the snapshot is lost.
func (m *model) promote() {
	s := m.saved
	if s == nil {
		m.save()
		return
	}
	m.say("a replica is promoted that lacks the last writes")
	m.wipe()
	m.do(func(p redis.Pipeliner) {
		for key, h := range s.hashes {
			for f, v := range h {
				p.HSet(m.ctx, key, f, v)
			}
		}
		for key, v := range s.texts {
			p.Set(m.ctx, key, v, 0)
		}
		for key, set := range s.sets {
			for _, v := range set {
				p.SAdd(m.ctx, key, v)
			}
		}
		for _, x := range s.stream {
			p.XAdd(m.ctx, &redis.XAddArgs{Stream: m.Log(), ID: x.ID, Values: x.Values})
		}
		for _, n := range m.instances {
			n.told = n.told && s.told[n] // otherwise lost until its next beat
		}
		for n, expires := range s.expires {
			if n.expires = expires; !expires.IsZero() {
				p.Set(m.ctx, m.Heartbeat(n.id), "1/1", 0)
				n.fell = time.Time{}
			}
		}
	})
	for imei, id := range s.hashes[m.Registry()] {
		for _, n := range m.instances {
			if n.id == id {
				m.present[imei] = n
			}
		}
	}
	m.up()
	if m.chance(1, 2) {
		m.electAny()
	}
}

func (m *model) jump() {
	by := m.upTo(time.Hour)
	if m.chance(1, 2) {
		by = -by
	}
	m.say("the server's clock jumps by %s", by)
	m.offset += by
}

func (m *model) resetStat() {
	m.say("CONFIG RESETSTAT")
	m.commands, m.evictedKeys = 0, 0
}

// cutOff stops the beats of some from landing, or resumes them.
func (m *model) cutOff() {
	if m.chance(1, 2) {
		for _, n := range m.instances {
			n.cut = false
		}
		m.say("nobody is cut off any more")
		return
	}
	for range 1 + m.rng.IntN(5) {
		if n := m.any(); m.leader == nil || n != m.leader.instance || m.chance(1, 5) {
			n.cut = true
			m.say("%s is cut off", n.id)
		}
	}
	m.pass(m.upTo(30 * time.Second))
}

func (m *model) kill() {
	if n := m.any(); n.alive {
		m.say("%s is killed", n.id)
		m.end(n)
	}
}

func (m *model) end(n *instance) {
	n.alive = false
	if m.leader != nil && m.leader.instance == n {
		m.leader = nil
	}
}

// revive starts a dead instance, perhaps with other settings, or restarts one with such.
func (m *model) revive() {
	n := m.any()
	if n.alive && m.chance(3, 4) || m.down {
		return
	}
	if n.alive {
		m.leave(n)
	}
	if !n.old && m.chance(1, 4) {
		n.settings = []settings{quick, slow}[m.rng.IntN(2)]
	}
	m.start(n)
}

func (m *model) goodbye() {
	if n := m.any(); n.alive && !m.down && !n.cut && !n.old {
		m.leave(n)
	}
}

func (m *model) leave(n *instance) {
	m.say("%s says goodbye", n.id)
	m.do(func(p redis.Pipeliner) {
		for _, imei := range n.imeis {
			if m.present[imei] == n {
				delete(m.present, imei)
				p.HDel(m.ctx, m.Registry(), imei)
			}
		}
		p.Del(m.ctx, m.Devices(n.id), m.Heartbeat(n.id))
		p.SRem(m.ctx, m.Roster(), n.id)
	})
	n.expires, n.since, n.fell, n.listed = time.Time{}, time.Time{}, time.Time{}, false
	m.changed()
	m.end(n)
}

func (m *model) electAny() {
	n := m.any()
	if n.old || !n.alive || n.cut || m.down || n.expires.IsZero() {
		return
	}
	m.elect(n)
}

// lose deletes a key by hand. A fleet that disagrees keeps its witness, whose loss would forget the
// larger settings; see README.
func (m *model) lose() {
	if m.down {
		return
	}
	n := m.any()
	keys := []string{m.Roster(), m.Devices(n.id), m.Heartbeat(n.id), m.Lease(), m.Log(), m.Registry(), m.Witness()}
	key := keys[m.rng.IntN(len(keys))]
	switch key {
	case m.Witness():
		if m.mixed() {
			return
		}
	case m.Heartbeat(n.id):
		if n.expires.IsZero() {
			return
		}
		n.byHand = true
		m.silence(n)
	case m.Registry():
		clear(m.present)
	case m.Roster():
		for _, o := range m.instances {
			o.listed = false
		}
	}
	for _, o := range m.instances {
		o.written = false
	}
	m.say("somebody deletes %s", key[len(m.Prefix):])
	require.NoError(m.t, m.db.Del(m.ctx, key).Err())
	m.changed()
}

// tellGrace does what settings.lua does at a beat.
func (m *model) tellGrace(n *instance) {
	w := m.db.HMGet(m.ctx, m.Witness(), "grace", "largest").Val()
	ms := func(v any) int64 { i, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64); return i }
	grace := n.grace().Milliseconds()
	if n.told = n.told || w[0] != nil; w[0] == nil || ms(w[0]) == grace {
		return
	}
	m.do(func(p redis.Pipeliner) {
		p.HSet(m.ctx, m.Witness(), "grace", 0, "disagreed", m.server().UnixMilli(), "largest", max(grace, ms(w[0]), ms(w[1])))
	})
}

// mixed: settings of both fleets are in use, or lately were.
func (m *model) mixed() bool {
	s := map[time.Duration]bool{}
	for _, n := range m.instances {
		if !n.old {
			s[n.ttl] = true
		}
	}
	return len(s) > 1
}

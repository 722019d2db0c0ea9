package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// A storm's time is counted in beats, so that the schedule depends on the seed alone.
const (
	stormBeat     = 20 * time.Millisecond
	stormEvents   = 20  // of devices, each beat
	stormRhythm   = 16  // beats from one fault to the next
	stormLongest  = 100 // beats that a fault lasts at most: above the TTL
	stormInterval = 500 * time.Millisecond
	stormTTL      = 3 * stormInterval
	stormDevices  = 300
)

// stormFaults return their end, if they last.
var stormFaults = []chance[*storm, func()]{
	{"the proxy of a replica is held", 3, func(s *storm) func() { return s.someone().Proxy.Hold().End }},
	{"replies to a replica are lost", 3, func(s *storm) func() { return s.someone().Proxy.LoseReplies().End }},
	{"requests of a replica arrive late", 3, func(s *storm) func() { return s.someone().Proxy.Delay(stormTTL / 2).End }},
	{"connections of a replica are cut", 2, func(s *storm) func() { s.someone().Proxy.Cut(); return nil }},
	{"a replica dies, and one of another id comes", 2, func(s *storm) func() {
		dead := s.someone()
		dead.Proxy.Hold()
		s.replace(dead, fmt.Sprintf("replica-%d", len(s.all)))
		return nil
	}},
	{"a new process takes the id of one that leaves", 1, func(s *storm) func() {
		old := s.someone()
		s.replace(old, old.Instance())
		return nil
	}},
	{"a new process takes the id of one that is cut off and heard of later", 1, func(s *storm) func() {
		old := s.someone()
		end := old.Proxy.Hold().End
		s.replace(old, old.Instance())
		if !s.indexed {
			return nil // of a write that lands after a TTL, only the index can tell
		}
		return end
	}},
	{"everything is lost", 1, func(s *storm) func() { s.lose(func(p redis.Pipeliner) { p.FlushAll(s.t.Context()) }); return nil }},
	{"scripts are lost", 1, func(s *storm) func() { require.NoError(s.t, s.ScriptFlush(s.t.Context()).Err()); return nil }},
	{"a key is lost", 2, func(s *storm) func() {
		keys := []string{s.Registry(), s.Roster(), s.Witness(), s.Log(), s.Lease(), s.epoch(), s.Heartbeat(s.someone().Instance())}
		key := keys[s.rnd.IntN(len(keys))]
		s.t.Log(key)
		s.unknown = s.unknown || key == s.Roster()
		s.lose(func(p redis.Pipeliner) { p.Del(s.t.Context(), key) })
		return nil
	}},
	{"entries are lost", 2, func(s *storm) func() {
		s.lose(func(p redis.Pipeliner) {
			for range 30 {
				p.HDel(s.t.Context(), s.Registry(), s.device())
			}
		})
		return nil
	}},
	{"wrong entries appear", 3, (*storm).haunt},
	{"Redis does not answer", 1, func(s *storm) func() {
		mode := []string{"ALL", "WRITE"}[s.rnd.IntN(2)]
		require.NoError(s.t, s.Do(s.t.Context(), "CLIENT", "PAUSE", 200+s.rnd.IntN(1000), mode).Err())
		return nil
	}},
	{"Redis' memory is full", 1, func(s *storm) func() {
		s.memory("1")
		return func() { s.memory("0") }
	}},
	{"Redis forgets its statistics", 1, func(s *storm) func() { require.NoError(s.t, s.ConfigResetStat(s.t.Context()).Err()); return nil }},
	{"Redis is killed and loads its file", 1, func(s *storm) func() { s.server.Restart(); return nil }},
}

func TestEverythingAtOnce(t *testing.T) {
	redistest.OnlyIfAsked(t)
	seed := seed(t)
	for name, indexed := range map[string]bool{"with the index": true, "without it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes")
			s := &storm{
				Client: server.Client(), t: t, rnd: rand.New(rand.NewPCG(seed, 0)), server: server, indexed: indexed,
				ends: map[int][]func(){}, live: map[string]socket{},
			}
			for range 3 {
				s.members = append(s.members, s.join(fmt.Sprintf("replica-%d", len(s.all))))
			}
			s.rage()
			s.calm()
			s.leave()
		})
	}
}

// haunt writes entries as only the dead may have left them: in the name of nobody, or of a replica
// whose index has them too.
func (s *storm) haunt() (end func()) {
	ctx := s.t.Context()
	s.atomically(func(p redis.Pipeliner) {
		for n := range 30 {
			p.HSet(ctx, s.Registry(), s.device(), "nobody", fmt.Sprintf("stray-%d-%d", s.beats, n), "nobody")
			if m, imei := s.someone(), s.device(); s.indexed {
				p.HSet(ctx, s.Registry(), imei, m.Instance())
				p.SAdd(ctx, s.Devices(m.Instance()), imei, fmt.Sprintf("stray-%d", s.beats))
			}
		}
	})
	return nil
}

// rage has every fault happen while devices come, move, speak and go.
func (s *storm) rage() {
	ticker := time.NewTicker(stormBeat)
	defer ticker.Stop()
	once := func() bool { return false }
	play(s.rnd, stormFaults, once, func(f chance[*storm, func()]) {
		for range stormRhythm {
			<-ticker.C
			for range stormEvents {
				s.event()
			}
			s.succeed()
			for _, end := range s.ends[s.beats] {
				end()
			}
			delete(s.ends, s.beats)
			s.beats++
		}
		s.t.Logf("beat %d: %s", s.beats, f.name)
		until := s.beats + s.rnd.IntN(stormLongest)
		if end := f.do(s); end != nil {
			s.ends[until] = append(s.ends[until], end)
		}
	})
}

// event is one thing that happens to one device.
func (s *storm) event() {
	imei := s.device()
	k, held := s.live[imei]
	switch n := s.rnd.IntN(10); {
	case n < 4: // it connects; of a former socket its replica hears at once, or later
		m := s.someone()
		switch {
		case held && n%2 == 0:
			s.stale = append(s.stale, k)
		case held:
			k.Release()
		}
		s.live[imei] = socket{m, m.Register(imei, harness.Nobody)}
	case n < 6 && held:
		k.Release()
		delete(s.live, imei)
	case n < 9 && held:
		k.Touch()
	case len(s.stale) > 0: // some replica notices at last
		i := s.rnd.IntN(len(s.stale))
		s.stale[i].Release()
		s.stale = slices.Delete(s.stale, i, i+1)
	}
}

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// storm is a small fleet to which everything happens at once.
type storm struct {
	*redis.Client
	registry.Layout
	t       *testing.T
	rnd     *rand.Rand
	server  *redistest.Server
	indexed bool
	members []*harness.Member // the newest process of each replica
	all     []*harness.Member // every process ever
	beats   int
	ends    map[int][]func() // by beat: faults that end then

	live    map[string]socket // IMEI -> where the device really is
	stale   []socket          // nobody is at their other end any more
	lost    tally             // what the log and the total said of when they were lost
	unknown bool              // the roster was lost, and with it who died lately
	vague   bool              // a process, or the log, ended before the fate of a batch was known
}

type socket struct {
	*harness.Member
	*registry.Claim
}

func (s *storm) join(id string) *harness.Member {
	m := harness.NewMember(s.t, s.server, 120*time.Millisecond,
		registry.Config{Instance: id, HeartbeatInterval: stormInterval, HeartbeatTTL: stormTTL, Drain: 5 * time.Second, NoReverseIndex: !s.indexed},
		janitor.Config{Interval: stormInterval, LeaseTTL: stormTTL})
	s.all = append(s.all, m)
	return m
}

func (s *storm) someone() *harness.Member { return s.members[s.rnd.IntN(len(s.members))] }
func (s *storm) device() string           { return fmt.Sprintf("device-%d", s.rnd.IntN(stormDevices)) }
func (s *storm) epoch() string            { return "{" + s.Lease() + "}:epoch" }
func (s *storm) memory(m string) {
	require.NoError(s.t, s.ConfigSet(s.t.Context(), "maxmemory", m).Err())
}

// atomically does something in one transaction. Redis takes none while its memory is full, so it is
// given some for that time.
func (s *storm) atomically(what func(p redis.Pipeliner)) {
	limit := s.ConfigGet(s.t.Context(), "maxmemory").Val()["maxmemory"]
	s.memory("0")
	_, err := s.TxPipelined(s.t.Context(), func(p redis.Pipeliner) error {
		what(p)
		return nil
	})
	if !errors.Is(err, redis.Nil) {
		require.NoError(s.t, err)
	}
	s.memory(limit)
}

// replace ends a replica, gracefully if its proxy lets it, and its sockets; another process takes
// its place.
func (s *storm) replace(old *harness.Member, id string) {
	s.members[slices.Index(s.members, old)] = s.join(id)
	old.Leave()
	maps.DeleteFunc(s.live, func(_ string, k socket) bool { return k.on(old) })
	s.stale = slices.DeleteFunc(s.stale, func(k socket) bool { return k.on(old) })
}

// on: the socket is one of m, and closed as m ends.
func (k socket) on(m *harness.Member) bool {
	if k.Member == m {
		k.Release()
	}
	return k.Member == m
}

// succeed replaces replicas that were superseded: the boot of a former process can arrive late, and
// is then the newest.
func (s *storm) succeed() {
	for _, m := range s.members {
		if m.Over() {
			require.ErrorIs(s.t, m.Err, registry.ErrReplaced)
			s.replace(m, m.Instance())
		}
	}
}

// calm ends every fault and waits until everything is as it should be. Nothing is said of who was
// taken for dead meanwhile: a slow machine alone can do that.
func (s *storm) calm() {
	for _, beat := range slices.Sorted(maps.Keys(s.ends)) {
		for _, end := range s.ends[beat] {
			end()
		}
	}
	for _, k := range s.stale {
		k.Release()
	}
	begun, during := time.Now(), s.counted()
	s.haunt() // so that there is something to sweep whatever was lost
	s.eventually(func() string {
		s.succeed()
		for _, k := range s.live {
			k.Touch()
		}
		if !harness.FullScanned(s.members, begun) {
			return "no full scan is done"
		}
		return s.wrong()
	})
	swept := s.counted()
	require.GreaterOrEqual(s.t, swept.recorded-during.recorded, 30)
	s.t.Logf("%d processes; swept %d during the faults, %d after; own counters compared: %v; at rest after %v",
		len(s.all), during.recorded, swept.recorded-during.recorded, !s.vague, time.Since(begun).Round(10*time.Millisecond))
}

// leave ends everybody gracefully: nothing is left behind.
func (s *storm) leave() {
	for _, k := range s.live {
		k.Release()
	}
	for _, m := range s.members {
		m.Leave()
	}
	for _, m := range s.members {
		<-m.Ended
		require.NoError(s.t, m.Err)
	}
	stays := []string{s.Witness(), s.Log(), s.Timeline(), s.Beats(), s.epoch()}
	for _, m := range s.all {
		if s.unknown && !slices.Contains(s.members, m) {
			// Only the roster leads to a dead contender, and to an index without entries.
			stays = append(stays, s.Devices(m.Instance()), s.Contenders())
		}
	}
	s.eventually(func() string {
		left := slices.DeleteFunc(s.Keys(s.t.Context(), "*").Val(), func(k string) bool { return slices.Contains(stays, k) })
		return strings.Join(left, ", ")
	})
}

// eventually waits until nothing is wrong, as long as a slow machine may need.
func (s *storm) eventually(wrong func() string) {
	s.t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for begun := time.Now(); ; <-ticker.C {
		what := wrong()
		if what == "" {
			return
		}
		require.Less(s.t, time.Since(begun), harness.Patience, what)
	}
}

// wrong tells how Redis and the replicas differ from what should be; "": not at all.
func (s *storm) wrong() string {
	ctx := s.t.Context()
	want, got := map[string]string{}, map[string]string{}
	for imei, k := range s.live {
		want["entry "+imei] = k.Instance()
		if s.indexed {
			want["index of "+k.Instance()+": "+imei] = "in"
		}
	}
	for imei, owner := range s.HGetAll(ctx, s.Registry()).Val() {
		got["entry "+imei] = owner
	}
	for _, id := range s.SMembers(ctx, s.Roster()).Val() {
		got["roster: "+id] = "in"
	}
	for _, m := range s.members {
		id, st := m.Instance(), m.Status()
		want["roster: "+id] = "in"
		for _, imei := range s.SMembers(ctx, s.Devices(id)).Val() {
			got["index of "+id+": "+imei] = "in"
		}
		want["status of "+id] = "0 pending, 0 foreign, failing map[], 0 batches of unknown fate"
		got["status of "+id] = fmt.Sprintf("%d pending, %d foreign, failing %v, %d batches of unknown fate",
			st.Pending, st.Foreign, st.Failing, m.Janitor.Status().Unsettled)
	}
	n := s.counted()
	want["total"], got["total"] = fmt.Sprint(n.recorded), fmt.Sprint(n.total)
	var own int
	for _, m := range s.all {
		st := m.Janitor.Status()
		own += int(st.Evicted)
		s.vague = s.vague || st.Unsettled > 0 && m.Over()
	}
	if !s.vague {
		want["own counters"], got["own counters"] = fmt.Sprint(n.recorded), fmt.Sprint(own)
	}
	var differ []string
	for _, k := range slices.Sorted(maps.Keys(union(want, got))) {
		if want[k] != got[k] {
			differ = append(differ, fmt.Sprintf("%s: want %q, got %q", k, want[k], got[k]))
		}
	}
	return strings.Join(differ[:min(len(differ), 20)], "\n")
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// tally is what Redis says was evicted.
type tally struct {
	recorded int // by the log's records
	total    int // by the total beside it
}

// read queues the reading of a tally.
func (s *storm) read(p redis.Pipeliner) func() tally {
	records := p.XRange(s.t.Context(), s.Log(), "-", "+")
	total := p.HGet(s.t.Context(), s.Witness(), "evicted_total")
	return func() (n tally) {
		n.total, _ = strconv.Atoi(total.Val()) // there is none before the first
		for _, r := range records.Val() {
			list, ok := r.Values["imeis"].(string)
			if !ok {
				continue // a term's beginning
			}
			var imeis []string
			require.NoError(s.t, json.Unmarshal([]byte(list), &imeis))
			require.Equal(s.t, fmt.Sprint(len(imeis)), r.Values["count"], "the record's own list")
			n.recorded += len(imeis)
		}
		return n
	}
}

// lose lets Redis lose something, and keeps in mind, from the same instant, what that takes from
// the tally. It returns what was evicted since the beginning, by all that Redis ever said.
func (s *storm) lose(what func(p redis.Pipeliner)) tally {
	open := func(m *harness.Member) bool { return m.Janitor.Status().Unsettled > 0 }
	opened := slices.ContainsFunc(s.all, open)
	var before, after func() tally
	s.atomically(func(p redis.Pipeliner) {
		before = s.read(p)
		what(p)
		after = s.read(p)
	})
	b, a := before(), after()
	s.lost.recorded += b.recorded - a.recorded
	s.lost.total += b.total - a.total
	if b.recorded != a.recorded && (opened || slices.ContainsFunc(s.all, open)) {
		s.vague = true
	}
	return tally{s.lost.recorded + a.recorded, s.lost.total + a.total}
}

func (s *storm) counted() tally { return s.lose(func(redis.Pipeliner) {}) }

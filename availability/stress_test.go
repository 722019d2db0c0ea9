package availability

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	stressWriters = 16
	// stressMitras are fewer than the breaker looks at: it would hold for a minute.
	stressMitras = 18
	stressStale  = 250 * time.Millisecond
)

// stress is everything at once: writers, some of which do not apply their changes; lost calls to
// Redis; late and repeated states; an emptied server; two concurrent sweepers with a failing
// source.
type stress struct {
	source  *fake
	rigs    []*rig
	flushes atomic.Int64

	mu              sync.Mutex
	kept            map[string][]time.Time // when heartbeats began that were answered: kept
	wrong           []string
	versions, beats int // that readers judged, and that were kept
	outcomes        map[string]int
}

func (s *stress) found(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// mitra is any; those whose number is divisible by three seldom, so that they fall silent.
func (s *stress) mitra() string {
	n := rand.IntN(stressMitras)
	if n%3 == 0 && rand.IntN(200) > 0 {
		n++
	}
	return fmt.Sprintf("m%02d", n)
}

// write is one step of a writer. It ignores refusals.
func (s *stress) write(ctx context.Context) {
	r, id, session := s.rigs[rand.IntN(len(s.rigs))], s.mitra(), fmt.Sprint("s", rand.IntN(60))
	switch rand.IntN(13) {
	case 0, 1:
		_, _ = r.Online(ctx, id)
	case 2:
		_, _ = r.Offline(ctx, id)
	case 3:
		_, _ = s.source.SetOnline(ctx, id, rand.IntN(3) > 0) // by psql
	case 4:
		_, _ = r.Deactivate(ctx, id)
	case 5, 6:
		_, _ = r.Activate(ctx, id)
	case 7, 8:
		_, _ = r.Accept(ctx, session, id)
	case 9:
		_, _ = r.Reroute(ctx, session, id)
	case 10:
		_, _ = r.End(ctx, session)
		s.source.searching(fmt.Sprint("s", rand.IntN(60)+int(time.Now().UnixMilli()%1000)*60))
	case 11:
		_, _, _ = s.source.Accept(ctx, session, id, 3)
	case 12:
		_, _ = r.Extend(ctx, session, rand.IntN(2) > 0)
	}
}

// beat pings: those whose number is divisible by three so seldom that they fall silent in between.
func (s *stress) beat(ctx context.Context) {
	n := rand.IntN(stressMitras)
	if n%3 == 0 && rand.IntN(50) > 0 {
		n++
	}
	id := fmt.Sprintf("m%02d", n)
	if rand.IntN(4) == 0 { // one whose auto-offline is under way
		r := s.rigs[0]
		if ids := r.client.HRandField(ctx, r.keys.condemned(), 1).Val(); len(ids) == 1 {
			id = ids[0]
		}
	}
	began := time.Now()
	if beat, err := s.rigs[rand.IntN(len(s.rigs))].Heartbeat(ctx, id); err == nil && beat == BeatKept {
		s.mu.Lock()
		s.beats++
		s.kept[id] = append(s.kept[id], began)
		s.mu.Unlock()
	}
}

// late brings some state of any time, once more.
func (s *stress) late(ctx context.Context) {
	id := s.mitra()
	s.source.mu.Lock()
	var any State
	for _, any = range s.source.history[id] { // the order is random
		break
	}
	s.source.mu.Unlock()
	_, _ = s.rigs[0].apply(ctx, newer, any)
}

// judge reads one mitra atomically: its fields must match the state of its version, and versions
// must never go back.
func (s *stress) judge(c *redis.Client, k keys, id string, last map[string]int64) {
	ctx, flushes := context.Background(), s.flushes.Load()
	since := fmt.Sprint(id, " ", flushes) // an emptied server begins anew
	var (
		on, off    *redis.BoolCmd
		n, version *redis.StringCmd
	)
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		on, off = p.SIsMember(ctx, k.online(), id), p.SIsMember(ctx, k.deactivated(), id)
		n, version = p.Get(ctx, k.capacity(id)), p.HGet(ctx, k.version(), id)
		return nil
	})
	if err != nil || s.flushes.Load() != flushes {
		return
	}
	v, _ := version.Int64()
	if v < last[since] {
		s.found("%s: version %d stands behind %d", id, v, last[since])
	}
	last[since] = v
	sessions, _ := n.Int()
	s.source.mu.Lock()
	want := s.source.history[id][v]
	s.source.mu.Unlock()
	if on.Val() != want.working() || off.Val() == want.Active || sessions != want.Sessions {
		s.found("%s: torn at version %d: online %t, deactivated %t, %d sessions, not %+v",
			id, v, on.Val(), off.Val(), sessions, want)
	}
	s.mu.Lock()
	s.versions++
	s.mu.Unlock()
}

func TestUnderStressNothingIsLostTornTurnedBackOrCondemnedTwice(t *testing.T) {
	t.Parallel()
	lasts := 5 * time.Second
	if text := os.Getenv("ROLLCALL_DURATION"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	server := redistest.Start(t)
	w := redistest.World{Client: server.Client(), Options: server.Options(), Real: true}
	s := &stress{source: newFake(), kept: map[string][]time.Time{}, outcomes: map[string]int{}}
	s.source.settings.StaleAfter, s.source.settings.PingInterval = stressStale, stressStale/10
	for i := range stressMitras {
		s.source.put(online(fmt.Sprintf("m%02d", i)))
	}
	for i := range 60 {
		s.source.searching(fmt.Sprint("s", i))
	}
	// So long a transaction has its locks, so that others meet them. Nothing is waited for.
	s.source.held.set(func() { time.Sleep(rand.N(2 * time.Millisecond)) })
	var calm atomic.Bool
	s.source.fault.set(func(op string) error {
		rare := 50
		if strings.HasPrefix(op, "AutoOffline") {
			rare = 6 // the sweeper dies before or after the transaction
		}
		if !calm.Load() && op != "Settings" && rand.IntN(rare) == 0 {
			return errors.New("no answer")
		}
		return nil
	})
	lossy := commands{func(cmd redis.Cmder) error {
		if !calm.Load() && strings.HasPrefix(cmd.Name(), "eval") && rand.IntN(20) == 0 {
			return errors.New("lost on its way")
		}
		return nil
	}}
	timing := guard.Timing{Interval: time.Second, TTL: 3 * time.Second}
	soon := *w.Options // all deadlines are shorter than half a gap
	within := timing.Gap()/2 - 1
	soon.DialTimeout, soon.ReadTimeout, soon.WriteTimeout, soon.PoolTimeout = within, within, within, within
	var leaders []*leader
	for _, prefix := range []string{"", "other:"} { // two leases, and so two leaders at once
		r := newRig(t, w, s.source, slowly)
		r.janitors = guard.Layout{Prefix: prefix}
		r.run()
		leaders = append(leaders, r.leadsWith(&soon, r.janitors, timing, janitor.Config{
			LeaseTTL: 3 * time.Second,
		}))
		r.rdb.AddHook(lossy)
		s.rigs = append(s.rigs, r)
	}

	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var work conc.WaitGroup
	// A pause between two steps leaves the machine to the others. Nothing is waited for.
	repeat := func(n int, pause time.Duration, f func()) {
		for range n {
			work.Go(func() {
				for ok := true; ok; ok = wait.For(ctx, pause) {
					f()
				}
			})
		}
	}
	repeat(stressWriters, time.Millisecond, func() { s.write(ctx) })
	repeat(4, time.Millisecond, func() { s.beat(ctx) })
	repeat(2, time.Millisecond, func() { s.late(ctx) })
	for _, l := range leaders {
		repeat(1, 5*time.Millisecond, func() {
			reports, _ := l.jan.Sweep(ctx, janitor.Request{})
			for _, r := range reports {
				s.mu.Lock()
				s.outcomes[fmt.Sprint(r.Sweep, " ", r.Outcome, " ", r.Reason)]++
				s.mu.Unlock()
			}
		})
	}
	work.Go(func() {
		last := map[string]int64{}
		for ctx.Err() == nil {
			s.judge(w.Client, s.rigs[0].keys, s.mitra(), last)
		}
	})
	flushed := time.Now()
	work.Go(func() {
		for n := 1; wait.For(ctx, 10*time.Millisecond); n++ {
			if n%200 == 0 { // every two seconds
				s.flushes.Add(1)
				_ = w.Client.FlushAll(ctx).Err()
				flushed = time.Now()
				s.flushes.Add(1)
			}
			// A hold of the grace period would be all of this test. It is cut to what matters here: all that
			// time heartbeats were heard, and twice as long as a mitra may be silent.
			for _, l := range leaders {
				since := flushed.Add(2*stressStale - timing.Grace()).UnixMilli()
				_ = w.Client.HSet(ctx, l.layout.Witness(), "since", since).Err()
			}
		}
	})
	work.Wait()
	calm.Store(true)

	r := s.rigs[0]
	r.eventually(func() bool {
		for _, found := range r.differences() {
			if !strings.Contains(found, "heartbeat") { // if Redis lost it, a reconciliation finds it
				return false
			}
		}
		return r.Health().Whole
	}, "at rest nothing differs")
	r.reconciled()
	// The leaders still sweep: who is silent may go offline between a look at the source and one at
	// Redis.
	var found []string
	waittest.Becomes(5*time.Millisecond, func() bool {
		found = r.differences()
		return len(found) == 0
	})
	require.Empty(t, found)
	t.Log(s.outcomes)
	require.Empty(t, s.wrong)
	s.judgeFlips(t)
	require.Positive(t, s.versions)
	t.Logf("%d versions judged, %d heartbeats kept, %d set offline, %d emptied",
		s.versions, s.beats, len(s.source.flips), s.flushes.Load()/2)
}

// judgeFlips looks at each auto-offline, and at each state that ever was.
func (s *stress) judgeFlips(t *testing.T) {
	t.Helper()
	seen := map[Condemned]bool{}
	require.NotEmpty(t, s.source.flips, "the sweeps have done something")
	for _, f := range s.source.flips {
		require.False(t, seen[f.Condemned], "condemned twice: %+v", f)
		seen[f.Condemned] = true
		for _, began := range s.kept[f.ID] {
			require.False(t, began.After(f.at.Add(-stressStale)) && began.Before(f.at),
				"%s was set offline at %s, and had an answered heartbeat at %s", f.ID, f.at, began)
		}
	}
	for id, states := range s.source.history {
		for _, state := range states {
			require.True(t, state.Sessions >= 0 && state.Sessions <= 3, "%s: %+v", id, state)
		}
	}
}

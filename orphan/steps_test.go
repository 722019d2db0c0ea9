package orphan

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// watching is a hook that remembers how much a client asks for.
type watching struct {
	mu      sync.Mutex
	calls   map[string]int // by command
	keys    int            // the most of one script
	answers int            // the longest of one pipeline (bytes)
}

func watch(c redis.UniversalClient) *watching {
	w := &watching{calls: map[string]int{}}
	c.AddHook(w)
	return w
}

func (*watching) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *watching) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.saw(cmd)
		return next(ctx, cmd)
	}
}

func (w *watching) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		answers := 0
		for _, cmd := range cmds {
			w.saw(cmd)
			if c, ok := cmd.(*redis.Cmd); ok {
				answers += bytesOf(c)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answers = max(w.answers, answers)
		return err
	}
}

func (w *watching) saw(cmd redis.Cmder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[cmd.Name()]++
	if n, ok := cmd.Args()[min(2, len(cmd.Args())-1)].(int); ok && strings.HasPrefix(cmd.Name(), "eval") {
		w.keys = max(w.keys, n)
	}
}

func (w *watching) count(command string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[command]
}

// rooms is a rule that reads its candidates: what it has read is gone with them.
func rooms(p string, related ...string) rules.Rule {
	return rules.Rule{
		Name: "rooms", Delete: true, Keys: p + "room:{id}", Read: "hash", Related: related,
		GoneIf: &rules.Evidence{Value: &rules.Value{Field: ".state", In: []string{"closed"}}},
	}
}

func TestRelatedKeysGoInAsManyStepsAsTheyNeed(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		for name, bin := range map[string]time.Duration{"deleted": 0, "binned": time.Hour} {
			t.Run(name, func(t *testing.T) {
				p := w.Prefix + name + ":"
				rule := rooms(p, p+"room:{id}:seat:*", p+"room:{id}:chat")
				rule.Bin = bin
				r := newRig(t, w.Options, p, nil, rule)
				const seats = 230
				for i := range seats {
					r.do("SET", fmt.Sprint(p, "room:1:seat:", i), i)
				}
				r.do("SET", p+"room:1:chat", "hello")
				r.do("HSET", p+"room:1", "state", "closed")
				seen := watch(r.set.c.Client)
				result := r.sweep("rooms")
				require.Equal(t, []int{1, seats + 2}, []int{result.Removed, result.Keys}, result)
				require.Equal(t, uint64(1), r.set.Stats().Rules["rooms"])
				require.Equal(t, "1", r.rdb.HGet(t.Context(), r.layout.Witness(), "evicted_total").Val())
				require.LessOrEqual(t, seen.keys, 9+stepOf+3)
				require.False(t, r.exists(p+"room:1:chat") || r.exists(p+"room:1:seat:229"))
				require.False(t, r.exists(restsKey(r.layout, "rooms")), "all has gone")
				binned, err := Bins{Client: r.rdb, Layout: r.layout}.List(t.Context(), "rooms")
				require.NoError(t, err)
				require.Len(t, binned, map[string]int{"deleted": 0, "binned": seats + 2}[name])
			})
		}
	})
}

// Whatever a leader leaves behind is found without its candidate, whose value nobody can read any
// more.
func TestWhatALeaderLeavesBehindGoesAndIsCountedWithItsCandidate(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rooms(p, p+"room:{id}:seat:*"))
		const seats = 130
		for i := range seats {
			r.do("SET", fmt.Sprint(p, "room:1:seat:", i), i)
		}
		r.do("HSET", p+"room:1", "state", "closed")
		dies := &refusing{command: "evalsha", with: `"follows":true`, times: 1}
		r.set.c.Client.AddHook(dies)
		require.Equal(t, janitor.Failed, r.sweep("rooms").Outcome)
		require.Zero(t, dies.times)
		require.False(t, r.exists(p+"room:1"))
		require.True(t, r.exists(p+"room:1:seat:99"), "it had not come to that")
		require.True(t, r.exists(restsKey(r.layout, "rooms")))
		for range 3 {
			r.sweep("rooms")
			r.pass("rooms", time.Minute)
		}
		require.Equal(t, Stats{map[string]uint64{"rooms": 1}, map[string]uint64{"rooms": 1}, seats + 1, map[string]uint64{"rooms": seats + 1}}, r.set.Stats())
		require.Empty(t, r.rdb.Keys(t.Context(), p+"room:1:*").Val())
		r.sweep("rooms")
		require.False(t, r.exists(restsKey(r.layout, "rooms")))
	})
}

// Names are used again, and what is related may be written before its parent.
func TestWhatIsWrittenUnderTheNameOfACandidateThatHasGoneDoesNotGoAtOnce(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rooms(p, p+"room:{id}:seat:*"))
		for i := range 130 {
			r.do("SET", fmt.Sprint(p, "room:1:seat:", i), i)
		}
		r.do("HSET", p+"room:1", "state", "closed")
		r.set.c.Client.AddHook(&refusing{command: "evalsha", with: `"follows":true`, times: 1})
		require.Equal(t, janitor.Failed, r.sweep("rooms").Outcome)
		r.do("SET", p+"room:1:seat:ann", "new")
		require.Equal(t, 1, r.sweep("rooms").Kept[waiting])
		r.pass("rooms", 59*time.Second)
		require.Equal(t, 1, r.sweep("rooms").Kept[waiting])
		require.True(t, r.exists(p+"room:1:seat:ann"))
		r.do("HSET", p+"room:1", "state", "open")
		r.pass("rooms", time.Minute)
		r.sweep("rooms")
		require.True(t, r.exists(p+"room:1:seat:ann"))
	})
}

// A related key that is made anew while the others go is no longer what the look saw.
func TestARelatedKeyThatIsChangedWhileTheOthersGoStays(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := session(p)
		rule.Related = []string{p + "cart:{user}:*"}
		r := newRig(t, w.Options, p, nil, rule)
		for i := range 130 {
			r.do("SET", fmt.Sprintf("%scart:a:%03d", p, i), "old")
		}
		r.do("SET", p+"session:a", "old")
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		r.set.c.Client.AddHook(&before{command: "evalsha", with: `"follows":true`, f: func() {
			r.do("SET", p+"cart:a:129", "new")
		}})
		result := r.sweep("sessions")
		require.Equal(t, 1, result.Removed, result)
		require.Equal(t, []string{p + "cart:a:129"}, r.rdb.Keys(t.Context(), p+"cart:a:*").Val())
		// It is an orphan of its own kind, and still counted already.
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		result = r.sweep("sessions")
		require.Equal(t, []int{0, 1}, []int{result.Removed, result.Keys}, result)
	})
}

// With a parent that is there again, what is related is that one's.
func TestARestEndsWhenItsCandidateIsThereAgain(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rooms(p, p+"room:{id}:seat:*"))
		for i := range 130 {
			r.do("SET", fmt.Sprint(p, "room:1:seat:", i), i)
		}
		r.do("HSET", p+"room:1", "state", "closed")
		r.set.c.Client.AddHook(&refusing{command: "evalsha", with: `"follows":true`, times: 1})
		r.sweep("rooms")
		r.do("HSET", p+"room:1", "state", "open")
		for range 3 {
			r.pass("rooms", time.Minute)
			require.Zero(t, r.sweep("rooms").Keys)
		}
		require.True(t, r.exists(p+"room:1:seat:99"))
		require.False(t, r.exists(restsKey(r.layout, "rooms")))
	})
}

func TestBusyCandidatesDoNotHoldAllMarks(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := session(p)
		rule.Cap = 1 // ten marks
		r := newRig(t, w.Options, p, nil, rule)
		for i := range 3 {
			r.do("SET", fmt.Sprintf("%ssession:orphan%d", p, i), "old")
		}
		left := func() int { return len(r.rdb.Keys(t.Context(), p+"session:orphan*").Val()) }
		for n := 0; left() > 0 && n < 300; n++ {
			for i := range 30 {
				r.do("SET", fmt.Sprintf("%ssession:busy%d", p, i), n)
			}
			r.sweep("sessions")
			r.do("HDEL", stateKey(r.layout, "sessions"), heldUntil)
			r.pass("sessions", time.Minute)
			require.LessOrEqual(t, r.rdb.HLen(t.Context(), marksKey(r.layout, "sessions")).Val(), int64(10))
		}
		require.Zero(t, left())
		require.Len(t, r.rdb.Keys(t.Context(), p+"session:busy*").Val(), 30)
	})
}

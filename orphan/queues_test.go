package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// One rule is about the finished jobs of all queues. What a queue relies on is asked for each.
func TestMembersOfManyKeys(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rules.Rule{
			Name: "done", Delete: true, Members: &rules.Members{ZSet: p + "q:{queue}:done", As: "job"},
			KeepIf:     []rules.Sign{{Exists: p + "q:{queue}:{job}"}},
			UnlessLost: []rules.Reference{{Exists: p + "q:{queue}:id"}}, Related: []string{p + "q:{queue}:{job}:logs"},
			Only: map[string]string{"job": "integer"}, Bin: time.Hour,
		})
		for i := range 3 {
			key := fmt.Sprintf("%sq:%d:", p, i)
			r.do("ZADD", key+"done", 1, "1", 2, "2")
			r.do("SET", key+"id", "2")
			r.do("SET", key+"1", "job")
			r.do("RPUSH", key+"2:logs", "line")
		}
		r.do("SET", p+"q:0:2", "job")
		r.do("DEL", p+"q:2:id")
		r.do("SADD", p+"q:set:done", "2")
		r.do("ZADD", p+"q:a b:done", 1, "2")
		r.do("RPUSH", p+"q:1:9:logs", "line") // without its member
		require.Equal(t, map[string]int{alive: 4, unknown: 1, waiting: 1}, r.sweep("done").Kept)
		r.pass("done", rules.DefaultGrace)
		found, err := r.set.Explain(t.Context(), p+"q:1:done 2")
		require.NoError(t, err)
		require.Equal(t, []string{p + "q:1:done 2", condemned}, []string{found[0].Name, found[0].Verdict})
		require.Equal(t, 1, r.sweep("done").Removed)
		r.rounds(1, rules.DefaultGrace)
		require.Equal(t, []string{"1"}, r.rdb.ZRange(t.Context(), p+"q:1:done", 0, -1).Val())
		require.Equal(t, int64(2), r.rdb.ZCard(t.Context(), p+"q:2:done").Val(), "what it relies on is lost")
		require.Equal(t, int64(1), r.rdb.ZCard(t.Context(), p+"q:a b:done").Val())
		require.False(t, r.exists(p+"q:1:2:logs"))
		require.False(t, r.exists(p+"q:1:9:logs"))
		require.True(t, r.exists(p+"q:0:2:logs", p+"q:set:done"))
	})
}

func TestWhatACandidateReliesOnIsAskedAgainAtTheDelete(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rules.Rule{
			Name: "jobs", Delete: true, Keys: p + "q:{queue}:{job}", Type: "hash",
			Not:        map[string][]string{"job": {"id", "meta"}},
			KeepIf:     []rules.Sign{{Member: &rules.Member{ZSet: p + "q:{queue}:done", Of: "{job}"}}, {Member: &rules.Member{List: p + "q:{queue}:wait", Of: "{job}"}}},
			UnlessLost: []rules.Reference{{Exists: p + "q:{queue}:id"}},
		})
		for _, queue := range []string{"a", "b"} {
			r.do("SET", p+"q:"+queue+":id", "3")
			r.do("HSET", p+"q:"+queue+":meta", "v", "1")
			r.do("ZADD", p+"q:"+queue+":done", 1, "uuid-1")
			r.do("RPUSH", p+"q:"+queue+":wait", "uuid-2")
			for i := range 3 {
				r.do("HSET", fmt.Sprintf("%sq:%s:uuid-%d", p, queue, i+1), "v", "1")
			}
		}
		require.Equal(t, map[string]int{foreign: 2 * 4, alive: 4, waiting: 2}, r.sweep("jobs").Kept)
		r.pass("jobs", rules.DefaultGrace)
		r.set.c.Client.AddHook(&before{command: "evalsha", with: `"seen"`, f: func() { r.do("DEL", p+"q:a:id") }})
		require.Equal(t, 1, r.sweep("jobs").Kept[changed])
		require.True(t, r.exists(p+"q:a:uuid-3", p+"q:a:meta", p+"q:b:meta", p+"q:b:uuid-1", p+"q:b:uuid-2"))
		require.False(t, r.exists(p+"q:b:uuid-3"))
	})
}

func TestANameThatBeginsWithAVariable(t *testing.T) {
	s := redistest.Start(t)
	r := newRig(t, s.Options(), "", nil,
		rules.Rule{
			Name: "replies", Delete: true, Keys: "{client}.reply.pidbox", Only: map[string]string{"client": "uuid"},
			GoneIf: &rules.Evidence{NoExpiry: true}, Grace: time.Hour,
		},
		session(""))
	uuid := "123e4567-e89b-12d3-a456-426614174000"
	r.do("RPUSH", uuid+".reply.pidbox", "1")
	r.do("RPUSH", "celery.reply.pidbox", "1")
	r.do("RPUSH", uuid, "1")
	r.do("SET", "session:a", "1")
	r.sweep("replies")
	r.pass("replies", time.Hour)
	r.pass("sessions", time.Hour)
	r.sweep("replies")
	require.False(t, r.exists(uuid+".reply.pidbox"))
	require.False(t, r.exists("session:a"))
	require.True(t, r.exists(uuid, "celery.reply.pidbox"))
}

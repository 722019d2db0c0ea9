package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// The signs that job queues need, with their keys all over a Cluster.
func TestOnAClusterListsMissingFieldsAndMembersOfManyKeysCondemn(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	rules := []rules.Rule{
		{
			Name: "jobs", Delete: true, Keys: "q:{queue}:{job}", Read: "hash", Not: map[string][]string{"job": {"id"}},
			MinAge: &rules.Age{Field: ".done", Unit: "iso", Over: time.Hour},
			KeepIf: []rules.Sign{
				{Member: &rules.Member{ZSet: "q:{queue}:finished", Of: "{job}"}}, {Member: &rules.Member{List: "q:{queue}:wait", Of: "{job}"}},
			},
			UnlessLost: []rules.Reference{{Exists: "q:{queue}:id"}},
		},
		{
			Name: "finished", Delete: true, Members: &rules.Members{ZSet: "q:{queue}:finished", As: "job"},
			KeepIf: []rules.Sign{{Exists: "q:{queue}:{job}"}}, UnlessLost: []rules.Reference{{Exists: "q:{queue}:id"}},
		},
		{
			Name: "ghosts", Delete: true, Keys: "ghost:{id}", Read: "hash",
			GoneIf: &rules.Evidence{Missing: ".created"}, Grace: time.Hour,
		},
		{
			Name: "replies", Delete: true, Keys: "{client}.reply.box", Only: map[string]string{"client": "uuid"}, Type: "list",
			GoneIf: &rules.Evidence{NoExpiry: true}, Grace: time.Hour,
		},
		{
			Name: "routes", Delete: true, Keys: "route:{conn}", Read: "text", Bind: map[string]string{"worker": "."},
			KeepIf: []rules.Sign{{Field: &rules.Field{Hash: "beats:{worker}", Field: "at", Unit: "ms", Within: time.Minute}}},
		},
		{
			Name: "workers", Delete: true, Members: &rules.Members{Set: "workers:{site}", As: "{host}:{pid}"},
			KeepIf: []rules.Sign{{Exists: "ping:{host}"}},
		},
	}
	r := newClusterRig(t, c, nil, rules...)
	r.set.evidence = time.Minute // this machine may be slow
	const n = 12
	old := time.Now().Add(-2 * time.Hour)
	for i := range n {
		queue := fmt.Sprintf("q:%d:", i)
		r.do("SET", queue+"id", "9")
		for job := range 4 { // finished; waits; in no state; in no state, and young
			r.do("HSET", fmt.Sprint(queue, job), "done", old.UTC().Format(time.RFC3339))
		}
		r.do("HSET", queue+"3", "done", time.Now().UTC().Format(time.RFC3339))
		r.do("ZADD", queue+"finished", 1, "0", 1, "gone")
		r.do("RPUSH", queue+"wait", "1")
		r.do("HSET", fmt.Sprint("ghost:", i), "beat", "1")
		r.do("HSET", fmt.Sprint("ghost:live", i), "created", "1")
		r.do("RPUSH", fmt.Sprintf("11111111-2222-4333-8444-5555555555%02d.reply.box", i), "1")
		r.do("RPUSH", fmt.Sprintf("99999999-2222-4333-8444-5555555555%02d.reply.box", i), "1")
		r.do("PEXPIRE", fmt.Sprintf("11111111-2222-4333-8444-5555555555%02d.reply.box", i), 7200_000)
		r.do("HSET", fmt.Sprintf("beats:w%d", i), "at", ms(map[bool]time.Time{true: time.Now(), false: old}[i%2 == 0]))
		r.do("SET", fmt.Sprint("route:", i), fmt.Sprintf("w%d", i))
		r.do("SADD", fmt.Sprint("workers:", i), "web:1", "old:2")
	}
	r.do("SET", "ping:web", "1")
	r.do("DEL", "q:0:id")
	r.sweep("")
	for _, rule := range rules {
		r.pass(rule.Name, time.Hour)
	}
	r.sweep("")
	require.Equal(t, map[string]uint64{
		"jobs": n - 1, "finished": n - 1, "ghosts": n, "replies": n, "routes": n / 2, "workers": n,
	}, r.set.Stats().Rules)
	for i := range n {
		queue := fmt.Sprintf("q:%d:", i)
		require.True(t, r.exists(queue+"0") && r.exists(queue+"1") && r.exists(queue+"3"), i)
		require.Equal(t, i == 0, r.exists(queue+"2"), i)
		require.Equal(t, i == 0, r.rdb.ZScore(t.Context(), queue+"finished", "gone").Err() == nil, i)
		require.True(t, r.exists(fmt.Sprint("ghost:live", i)))
		require.True(t, r.exists(fmt.Sprintf("11111111-2222-4333-8444-5555555555%02d.reply.box", i)))
		require.Equal(t, i%2 == 0, r.exists(fmt.Sprint("route:", i)), i)
		require.Equal(t, []string{"web:1"}, r.rdb.SMembers(t.Context(), fmt.Sprint("workers:", i)).Val())
	}
}

package orphan

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// fill makes a key of more elements than are compared whole. In Lua, as there are many.
const fill = `for i = 1, 1300 do
  if ARGV[1] == 'ZADD' then redis.call('ZADD', KEYS[1], i, 'm' .. i)
  elseif ARGV[1] == 'HSET' then redis.call('HSET', KEYS[1], 'm' .. i, i)
  elseif ARGV[1] == 'XADD' then redis.call('XADD', KEYS[1], i .. '-1', 'f', i)
  else redis.call(ARGV[1], KEYS[1], 'm' .. i) end
end`

func TestAStreamThatIsWorkedOnStays(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := session(p)
		rule.Bin = time.Hour
		r := newRig(t, w.Options, p, nil, rule)
		for _, name := range []string{"idle", "acked", "polled", "grouped"} {
			r.do("EVAL", fill, 1, p+"session:"+name, "XADD")
			r.do("XGROUP", "CREATE", p+"session:"+name, "workers", "0")
		}
		r.do("XREADGROUP", "GROUP", "workers", "one", "COUNT", 1, "STREAMS", p+"session:polled", ">")
		require.Equal(t, 3, r.sweep("sessions").Condemned, "one was read just now")
		r.pass("sessions", time.Minute)
		r.do("XGROUP", "CREATE", p+"session:grouped", "others", "0")
		r.do("XREADGROUP", "GROUP", "workers", "one", "COUNT", 1, "NOACK", "STREAMS", p+"session:acked", ">")
		require.Equal(t, 1, r.sweep("sessions").Removed)
		require.False(t, r.exists(p+"session:idle"))
	})
}

func TestWhatIsBeyondTheBoundIsKeptAndCounted(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		r.do("EVAL", fill, 1, p+"session:a", "XADD")
		for i := range 65 {
			r.do("XGROUP", "CREATE", p+"session:a", i, "0")
		}
		require.Equal(t, map[string]int{large: 1}, r.sweep("sessions").Kept)
	})
}

// Fields of hashes can expire on Redis 7.4 and newer, and on Valkey 9.
func TestTheExpiryOfAFieldIsPartOfWhatItIs(t *testing.T) {
	expires := func(t *testing.T, o *redis.Options, p string) (offered bool) {
		keys := session(p)
		members := rules.Rule{
			Name: "members", Delete: true, Members: &rules.Members{Hash: p + "members", As: "user"},
			KeepIf: []rules.Sign{{Exists: p + "user:{user}"}}, Grace: time.Minute, Bin: time.Hour,
		}
		r := newRig(t, o, p, nil, keys, members)
		r.do("HSET", p+"members", "ann", 1, "bob", 1, "cyd", 1)
		if r.rdb.Do(t.Context(), "HPEXPIRE", p+"members", 600_000, "FIELDS", 2, "ann", "bob").Err() != nil {
			return false
		}
		r.do("EVAL", fill, 1, p+"session:large", "HSET")
		r.do("HSET", p+"session:small", "m650", 1, "other", 1)
		refresh := func(ms int) {
			r.do("HPEXPIRE", p+"session:large", ms, "FIELDS", 1, "m650")
			r.do("HPEXPIRE", p+"session:small", ms, "FIELDS", 1, "m650")
			r.do("HPEXPIRE", p+"members", ms, "FIELDS", 1, "ann")
		}
		refresh(600_000)
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		r.pass("members", time.Minute)
		refresh(900_000)
		require.Zero(t, r.sweep("sessions").Removed)
		require.Equal(t, 2, r.result("members").Removed)
		require.Equal(t, map[string]string{"ann": "1"}, r.rdb.HGetAll(t.Context(), p+"members").Val())

		bins := Bins{Client: r.rdb, Layout: r.layout}
		binned, err := bins.List(t.Context(), "members")
		require.NoError(t, err)
		for _, b := range binned {
			_, err := bins.Restore(t.Context(), b.ID)
			require.NoError(t, err)
		}
		left, err := r.rdb.HPTTL(t.Context(), p+"members", "bob", "cyd").Result()
		require.NoError(t, err)
		require.Greater(t, left[0], int64(500_000))
		require.Equal(t, int64(-1), left[1])
		return true
	}
	redistest.OnReal(t, func(t *testing.T, w redistest.World) { expires(t, w.Options, w.Prefix) })
	t.Run("newest", func(t *testing.T) {
		if !expires(t, redistest.StartNewest(t).Options(), "") {
			t.Log("no field expires on any server here: scripts/redis 8 finds or fetches one")
		}
	})
}

func TestWhatIsNoHashIsUnreadableAlsoWhereNoFieldIsRead(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.Read = "hash"
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SADD", p+"session:set", "a")
		r.do("SET", p+"session:text", "a")
		require.Equal(t, map[string]int{unreadable: 2}, r.sweep("sessions").Kept)
		if w.Real { // miniredis cannot DUMP a hash
			r.do("HSET", p+"session:hash", "a", 1)
			require.Equal(t, map[string]int{unreadable: 2, waiting: 1}, r.sweep("sessions").Kept)
		}
	})
}

// The empty text is a value. A field that is missing, or holds what is none, is not.
func TestAMissingFieldIsNoEnd(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rules.Rule{
			Name: "rooms", Delete: true, Keys: p + "room:{id}", Read: "json",
			GoneIf: &rules.Evidence{Value: &rules.Value{Field: ".end", In: []string{"", "true"}}},
		})
		for i, text := range []string{`{}`, `{"end":null}`, `{"end":{}}`, `{"end":[""]}`, `{"end":1.5}`, `{"end":"\ud800"}`} {
			r.do("SET", p+"room:"+string(rune('a'+i)), text)
		}
		r.do("SET", p+"room:runs", `{"end":false}`)
		r.do("SET", p+"room:empty", `{"end":""}`)
		r.do("SET", p+"room:over", `{"end":true}`)
		result := r.sweep("rooms")
		require.Equal(t, map[string]int{unreadable: 6, alive: 1}, result.Kept)
		require.Equal(t, 2, result.Removed)
	})
}

func TestATimeThatStandsForNoneIsNoStatement(t *testing.T) {
	t.Parallel()
	now := time.Now()
	before := rules.Condition{Field: "at", Before: time.Hour}
	for _, at := range []any{
		time.Time{}, time.UnixMilli(0), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		int64(0), "1970-01-01",
	} {
		is, known := holds(before, Document{"at": at}, now)
		require.Equal(t, []bool{false, false}, []bool{is, known}, at)
	}
	is, known := holds(before, Document{"at": now.Add(-2 * time.Hour)}, now)
	require.True(t, is && known)
	is, known = holds(before, Document{"at": now}, now)
	require.True(t, !is && known)
}

// A deployment writes a shorter expiry than the rule says: what is new looks old.
func TestAnAgeFromAnExpiryHasToBeSeen(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := session(p)
		rule.MinAge = &rules.Age{FromTTL: time.Hour, Over: 10 * time.Minute}
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SET", p+"session:a", 1, "EX", 600)
		require.Equal(t, map[string]int{young: 1}, r.sweep("sessions").Kept)
		r.pass("sessions", 9*time.Minute)
		require.Equal(t, map[string]int{young: 1}, r.sweep("sessions").Kept)
		r.pass("sessions", time.Minute)
		require.Equal(t, 1, r.sweep("sessions").Removed)
	})
}

// go-redis returns the refusal of a new connection for the whole pipeline, and its commands look
// answered: nothing is there.
func TestAConnectionThatIsRefusedIsNoAnswer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	require.NoError(t, srv.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	o := srv.Options()
	o.Password = "wrong"
	c := redis.NewClient(o)
	defer c.Close()
	told := func(*redis.Cmd) { t.Error("it was told of an answer") }
	asked := []question{{args: []string{"EXISTS", "user:a"}, told: told}}
	require.ErrorContains(t, (&looking{caller: plainly{c}}).ask(t.Context(), asked), "WRONGPASS")
}

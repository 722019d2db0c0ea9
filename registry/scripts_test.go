package registry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// owner is a Registry that has reached Redis but does not run: tests call its scripts one by one.
type owner struct {
	*testing.T
	*Registry
	w redistest.World
	c *redis.Client
}

func newOwner(t *testing.T, w redistest.World, id string) *owner {
	c := redis.NewClient(lease.Options(w.Options))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	r, err := New(Config{Client: c, Control: c, Instance: id, Layout: Layout{Prefix: w.Prefix}})
	require.NoError(t, err)
	require.NoError(t, r.drawBoot(t.Context()))
	return &owner{T: t, Registry: r, w: w, c: c}
}

// owners runs a test with the owner "o" on each kind of server.
func owners(t *testing.T, test func(o *owner)) {
	t.Helper()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		test(newOwner(t, w, "o"))
	})
}

// other is another owner, or a newer life of this one.
func (o *owner) other(id string) *owner { return newOwner(o.T, o.w, id) }

func (o *owner) do(args ...any) { o.Helper(); require.NoError(o, o.c.Do(o.Context(), args...).Err()) }

// poor is a client of a user who has all rights but for these rules; nil on miniredis, which has no
// users.
func (o *owner) poor(rules ...any) *redis.Client {
	if !o.w.Real {
		return nil
	}
	user := fmt.Sprint(o.w.Prefix, "poor", rand.Int())
	o.do(append([]any{"ACL", "SETUSER", user, "on", ">p", "~*", "&*", "+@all"}, rules...)...)
	options := *o.w.Options
	options.Username, options.Password = user, "p"
	poor := redis.NewClient(lease.Options(&options))
	o.Cleanup(func() {
		require.NoError(o, poor.Close())
		require.NoError(o, o.w.Client.Do(context.Background(), "ACL", "DELUSER", user).Err())
	})
	return poor
}

func (o *owner) beats() reply {
	o.Helper()
	return o.run(beatScript, o.Timing().Grace().Milliseconds())
}

func (o *owner) run(s *redis.Script, more ...any) reply {
	o.Helper()
	got, err := o.own(o.Context(), s, more...)
	require.NoError(o, err)
	require.InDelta(o, time.Now().UnixMilli(), got.ms, 60_000)
	got.ms = 0
	return got
}

// bare runs a script and returns its answer without the times.
func (o *owner) bare(s *redis.Script, more ...any) reply {
	o.Helper()
	got := o.run(s, more...)
	got.found, got.last, got.ms = 0, 0, 0
	return got
}

func (o *owner) record() doubt.Record {
	return doubt.Parse(o.c.HGet(o.Context(), o.keys.Beats(), o.id).Val())
}

func (o *owner) entries() map[string]string {
	return o.c.HGetAll(o.Context(), o.keys.Registry()).Val()
}

func (o *owner) indexed() []string {
	return o.c.SMembers(o.Context(), o.keys.Devices(o.id)).Val()
}

// lives: the heartbeat is this boot's, with its full TTL, and the roster has the owner.
func (o *owner) lives() {
	o.Helper()
	ctx := o.Context()
	value := o.c.Get(ctx, o.keys.Heartbeat(o.id)).Val()
	ms, token, _ := strings.Cut(value, "/")
	require.Equal(o, o.boot, token)
	require.Len(o, ms, 13, "unix time in ms, whole: %s", value)
	require.InDelta(o, o.Timing().TTL.Seconds(), o.c.PTTL(ctx, o.keys.Heartbeat(o.id)).Val().Seconds(), 30)
	require.True(o, o.c.SIsMember(ctx, o.keys.Roster(), o.id).Val())
}

func (o *owner) forgetHeartbeat() {
	o.Helper()
	o.do("DEL", o.keys.Heartbeat(o.id), o.keys.Roster())
}

func TestOwnerScripts(t *testing.T) {
	for name, test := range map[string]func(o *owner){
		"boot writes the first heartbeat, answers the same token when asked again, and a higher one to a newer life": func(o *owner) {
			o.lives()
			require.Len(o, o.boot, 26)
			first := o.boot
			require.NoError(o, o.drawBoot(o.Context()))
			require.Equal(o, first, o.boot)
			require.Greater(o, o.other("o").boot, first)
		},
		"beat says what record it found, the size of the index, and when entries may have been lost": func(o *owner) {
			grace := int64(92_000)
			first := o.run(beatScript, grace)
			require.Equal(o, reply{found: o.newest, last: first.last}, first)
			require.GreaterOrEqual(o, first.last, o.newest)
			o.do("SADD", o.keys.Devices("o"), "a", "b")
			o.do("HSET", o.keys.Witness(), "lost", "123")
			o.forgetHeartbeat()
			got := o.run(beatScript, grace)
			require.Equal(o, reply{found: first.last, last: got.last, size: 2, lost: "123"}, got, "the heartbeat was evicted: nothing is lost")
			o.lives()
			o.do("DEL", o.keys.Beats())
			require.Zero(o, o.run(beatScript, grace).found)
			older := "1/0" + o.boot[1:]
			o.do("SET", o.keys.Heartbeat("o"), older, "EX", 60)
			require.Zero(o, o.run(beatScript, grace).found, "a former life was here")
			o.do("DEL", o.keys.Witness())
			o.do("SET", o.keys.Witness(), "no hash")
			require.Equal(o, reply{size: 2}, o.bare(beatScript, grace))
			o.do("DEL", o.keys.Beats())
			o.do("SET", o.keys.Beats(), "no hash")
			require.Zero(o, o.run(beatScript, grace).last, "it lives all the same")
			o.lives()
		},
		"a beat tells everybody that the registry is missing which has its entries": func(o *owner) {
			grace := 92_000
			lost := func() string { return o.c.HGet(o.Context(), o.keys.Witness(), "lost").Val() }
			require.Empty(o, o.run(beatScript, grace, false).lost)
			require.NotEmpty(o, o.run(beatScript, grace, true).lost)
			require.Empty(o, lost(), "nobody listens")
			o.do("HSET", o.keys.Witness(), "last", "1")
			require.Equal(o, o.run(beatScript, grace, true).lost, lost())
			require.NotEmpty(o, lost())
			o.run(registerScript, "a")
			was := lost()
			require.Equal(o, was, o.run(beatScript, grace, true).lost)
		},
		"a beat shows the settings of an owner that does not contend, and the next to listen holds": func(o *owner) {
			tick := func(timing guard.Timing) guard.Witness {
				got, err := guard.New(o.c, o.c, o.keys, timing, "leader").Tick(o.Context())
				require.NoError(o, err)
				return got
			}
			o.beats()
			require.Zero(o, o.c.Exists(o.Context(), o.keys.Witness()).Val(), "the first tick begins the witness")
			for _, agree := range []guard.Timing{o.Timing(), o.Timing()} {
				require.Equal(o, "gap", tick(agree).Reason)
				o.beats()
			}
			quick := guard.Timing{Interval: 3 * time.Second, TTL: 63 * time.Second}
			require.Equal(o, "settings", tick(quick).Reason)
			o.do("HDEL", o.keys.Witness(), "reason")
			require.LessOrEqual(o, tick(quick).HeldFor, quick.Grace(), "a fleet of quick ones")
			o.beats()
			got := tick(quick)
			require.Equal(o, "settings", got.Reason)
			require.Equal(o, quick.Grace(), got.HeldFor)

			o.do("HDEL", o.keys.Witness(), "reason")
			o.beats()
			o.run(beatScript, quick.Grace().Milliseconds())
			require.Equal(o, "settings", tick(quick).Reason, "a beat like the last tick does not hide the other")

			o.do("DEL", o.keys.Witness())
			require.Equal(o, "gap", tick(quick).Reason)
			large := o.other("large") // its boot reports it
			require.Equal(o, quick.Gap(), large.Timing().Gap())
			// and it is not forgotten when others beat before anybody listens
			o.run(beatScript, quick.Grace().Milliseconds())
			require.Equal(o, "settings", tick(quick).Reason)
		},
		"a beat says whether its user may keep the roster and the index, and tell": func(o *owner) {
			if !o.w.Real {
				return // miniredis has no users
			}
			on := func(command, key string) string { return "(+" + command + " ~" + key + ")" }
			for name, c := range map[string]struct {
				rules       []any // besides all other rights
				index, none int   // the beat's answer with an index, and without
			}{
				"no SADD":          {[]any{"-sadd"}, 1, 1},
				"no SREM":          {[]any{"-srem"}, 1, 1},
				"SADD, the roster": {[]any{"-sadd", on("sadd", o.keys.Roster())}, 1, 0},
				"SREM, the roster": {[]any{"-srem", on("srem", o.keys.Roster())}, 1, 0},
				"SADD, the index":  {[]any{"-sadd", on("sadd", o.keys.Devices("o"))}, 1, 1},
				"SREM, the index":  {[]any{"-srem", on("srem", o.keys.Devices("o"))}, 1, 1},
				"no PUBLISH":       {[]any{"-publish"}, 2, 2},
				"another channel":  {[]any{"resetchannels", "&other"}, 2, 2},
				"one channel":      {[]any{"resetchannels", "&" + o.keys.Heartbeat("o")}, 0, 0},
				"no record":        {[]any{"-hset", on("hset", o.keys.Witness()), on("hset", o.keys.Registry())}, 1, 1},
				"neither":          {[]any{"-sadd", "-publish"}, 3, 3},
				"all":              {nil, 0, 0},
			} {
				poor := o.poor(c.rules...)
				for without, want := range map[bool]int{false: c.index, true: c.none} {
					o.cfg.NoReverseIndex = without
					o.cfg.Control = poor
					got := o.beats()
					require.Equal(o, want, got.count, "%s, without an index: %v", name, without)
					require.NoError(o, o.beat(o.Context()), "it lives all the same")
					require.Equal(o, want != 0, o.rights.Failing())
					o.cfg.Control = o.c
					require.NoError(o, o.beat(o.Context()))
					require.False(o, o.rights.Failing())
				}
			}
		},
		"an owner that may not tell others writes all the same": func(o *owner) {
			ctx := o.Context()
			if o.c = o.poor("-publish"); o.c == nil {
				return
			}
			o.cfg.Client, o.cfg.Control = o.c, o.c
			require.NoError(o, o.w.Client.HSet(ctx, o.keys.Registry(), "a", "x", "b", "x").Err())
			require.Equal(o, 1, o.run(registerScript, "a").size)
			require.Equal(o, 1, o.run(healScript, "b", "new").count)
			require.Equal(o, map[string]string{"a": "o", "b": "x", "new": "o"}, o.entries())
			require.ElementsMatch(o, []string{"a", "new"}, o.indexed())
			_, err := o.message(ctx, "x", "x")
			require.ErrorContains(o, err, "NOPERM", "what was not asked must not count as unanswered")
		},
		"register writes entries, index, roster and heartbeat, over whatever stands there": func(o *owner) {
			o.forgetHeartbeat()
			o.do("HSET", o.keys.Registry(), "b", "other")
			require.Equal(o, reply{size: 2}, o.bare(registerScript, "a", "b"))
			require.Equal(o, map[string]string{"a": "o", "b": "o"}, o.entries())
			require.ElementsMatch(o, []string{"a", "b"}, o.indexed())
			o.lives()
		},
		"heal writes what is absent, never what is somebody else's": func(o *owner) {
			o.forgetHeartbeat()
			o.do("HSET", o.keys.Registry(), "own", "o", "moved", "y", "foreign", "z", "nobody", "")
			got := o.bare(healScript, "absent", "own", "moved", "foreign", "nobody")
			require.Equal(o, reply{size: 3, count: 2, foreign: map[string]string{"moved": "y", "foreign": "z"}}, got)
			require.Equal(o, map[string]string{
				"absent": "o", "own": "o", "nobody": "o", "moved": "y", "foreign": "z",
			}, o.entries())
			require.ElementsMatch(o, []string{"absent", "own", "nobody"}, o.indexed())
			o.lives()
		},
		"register tells former owners what they lost": func(o *owner) {
			ctx := o.Context()
			told := o.w.Client.Subscribe(ctx, o.keys.Heartbeat("o"), o.keys.Heartbeat("x"), o.keys.Heartbeat("y"))
			defer told.Close()
			for range 3 {
				_, err := told.Receive(ctx)
				require.NoError(o, err)
			}
			o.do("DEL", o.keys.Registry())
			o.do("HSET", o.keys.Registry(), "a", "x", "b", "y", "c", "x", "d", "o", "e", "")
			o.run(registerScript, "a", "b", "c", "d", "e", "new")
			require.NoError(o, o.c.Publish(ctx, o.keys.Heartbeat("o"), "no more").Err())
			got := map[string]string{}
			for len(got) < 3 {
				m, err := told.ReceiveMessage(ctx)
				require.NoError(o, err)
				require.NotContains(o, got, m.Channel)
				got[m.Channel] = m.Payload
			}
			require.Equal(o, map[string]string{
				o.keys.Heartbeat("x"): "a c", o.keys.Heartbeat("y"): "b", o.keys.Heartbeat("o"): "no more",
			}, got)
		},
		"heal tells every owner of a registry that is gone": func(o *owner) {
			for name, s := range map[string][]any{"register": {"a"}, "heal": {"a"}} {
				o := o.other(name)
				o.do("DEL", o.keys.Registry(), o.keys.Witness())
				o.do("HSET", o.keys.Witness(), "last", 1)
				o.run(map[string]*redis.Script{"register": registerScript, "heal": healScript}[name], s...)
				require.NotEmpty(o, o.c.HGet(o.Context(), o.keys.Witness(), "lost").Val(), name)
			}
		},
		"a boot is above what the heartbeat remembers, if that is a token": func(o *owner) {
			later := laterBoot()
			for held, above := range map[string]bool{
				"1/" + strings.Repeat("9", 30): false, "1/" + strings.Repeat("9", 25): false, "1795188960111": false, "": false,
				"1/8" + strings.Repeat("9", 25): false, "1/" + later: true,
			} {
				o.do("SET", o.keys.Heartbeat("o"), held, "EX", 60)
				o.do("HDEL", o.keys.Witness(), "boot") // from the case before
				o = o.other("o")
				require.Len(o, o.boot, 26)
				require.Equal(o, above, o.boot > later, held)
				o.lives()
			}
		},
		"release takes out its own only": func(o *owner) {
			o.run(registerScript, "a", "b", "c", "0", "1")
			o.do("HSET", o.keys.Registry(), "b", "other")
			require.Equal(o, reply{size: 3, count: 1}, o.bare(releaseScript, "a", "b", "never"))
			require.Equal(o, map[string]string{"b": "other", "c": "o", "0": "o", "1": "o"}, o.entries())
			require.ElementsMatch(o, []string{"c", "0", "1"}, o.indexed())
		},
		"goodbye leaves nothing but a record when nothing is left": func(o *owner) {
			ctx := o.Context()
			o.run(registerScript, "a")
			o.run(goodbyeScript, "1")
			require.Zero(o, o.c.Exists(ctx, o.keys.Heartbeat("o")).Val())
			require.True(o, o.c.SIsMember(ctx, o.keys.Roster(), "o").Val())
			require.Equal(o, doubt.Bye, o.record().State)

			o = o.other("o")
			require.Equal(o, doubt.Idle, o.record().State, "it is back")
			o.run(releaseScript, "a")
			o.do("DEL", o.keys.Beats())
			o.run(goodbyeScript, "0")
			require.Equal(o, []string{o.keys.Beats()}, o.c.Keys(ctx, o.w.Prefix+"*").Val())
			require.Equal(o, doubt.Bye, o.record().State)
		},
		"each proof of life is recorded as package doubt has it": func(o *owner) {
			own := doubt.Own{Interval: 30_000, TTL: 90_000}
			boot := o.record()
			require.Equal(o, doubt.Record{}.Proves(o.newest, own, doubt.Idle), boot)
			due := own.Due()
			for name, was := range map[string]string{
				"none": "", "nonsense": "1/2/3", "too large": fmt.Sprintf("1/90000/38000/%d/0/h", int64(1e16)), "without TTL": "1/0/1/1/1/h",
				"idle": "5/90000/38000/4/3/i", "left": "5/90000/38000/4/3/b", "plain": "5/90000/38000/4/3/p",
				"found silent": fmt.Sprintf("%d/90000/0/4/3/p", o.newest),
				"in time":      fmt.Sprintf("%d/90000/%d/4/3/h", o.newest-due+20_000, due), "late": fmt.Sprintf("%d/90000/%d/4/3/h", o.newest-90_000+due-1, due), "nearly late": fmt.Sprintf("%d/90000/%d/4/3/h", o.newest-due-1, due),
			} {
				for script, state := range map[*redis.Script]doubt.State{beatScript: doubt.Idle, registerScript: doubt.Holds, goodbyeScript: doubt.Bye} {
					o.do("HSET", o.keys.Beats(), "o", was)
					last := o.run(script, "92000").last
					want := doubt.Parse(was)
					if fresh := script == registerScript && name == "in time"; !fresh {
						want = want.Proves(last, own, state)
					}
					require.Equal(o, want.String(), o.c.HGet(o.Context(), o.keys.Beats(), "o").Val(), "%s, %c", name, state)
				}
			}
		},
		"a write through Client leaves a record that is not overdue to the beats, whose time it must not hide": func(o *owner) {
			now, due := o.newest, doubt.Own{Interval: 30_000, TTL: 90_000}.Due()
			for last, renewed := range map[int64]bool{now - due + 20_000: false, now - due - 1: true, now + 60_000: true} {
				for _, s := range []*redis.Script{registerScript, healScript} {
					record := fmt.Sprintf("%d/90000/%d/1/0/h", last, due)
					o.do("HSET", o.keys.Beats(), "o", record)
					got := o.run(s, "a")
					require.Equal(o, renewed, got.last != last, last-now)
					require.Equal(o, o.record().Last, got.last)
				}
			}
		},
		"whatever an owner asks, a server that lacks its newest beat refuses, and does nothing": func(o *owner) {
			ctx := o.Context()
			o.run(registerScript, "a")
			before, record := o.entries(), o.record()
			o.newest = record.Last + 1
			for _, s := range []*redis.Script{registerScript, healScript, releaseScript} {
				keys, args := o.owning(o.Newest(), "a")
				_, err := o.owned(time.Now(), s.Run(ctx, o.c, keys, args...))
				require.True(o, isFormer(err), err)
				require.True(o, o.surprises.unheard, "the new primary may lack more")
				o.surprises.unheard = false
				require.True(o, redis.IsReadOnlyError(err), "so that the connection is dialed anew")
				require.False(o, refused(err), "nobody has to act on it")
			}
			_, err := o.Lookup(ctx, "a")
			require.ErrorContains(o, err, "READONLY former primary")
			_, err = o.LookupMany(ctx, []string{"a"})
			require.ErrorContains(o, err, "READONLY former primary")
			_, err = o.Registry.entries(ctx, []string{"a"})
			require.ErrorContains(o, err, "READONLY former primary")
			require.Equal(o, before, o.entries())
			require.Equal(o, record, o.record())
			o.newest = record.Last
			owner, err := o.Lookup(ctx, "a")
			require.NoError(o, err)
			require.Equal(o, Owner{"o", true}, owner)
			o.newest++
			o.do("DEL", o.keys.Beats())
			_, err = o.Lookup(ctx, "a")
			require.NoError(o, err, "a missing record proves nothing")
		},
		"a replaced life writes nothing": func(o *owner) {
			older := o.other("o")
			older.run(registerScript, "a")
			newer := o.other("o")
			newer.run(registerScript, "b")
			before, heartbeat := newer.entries(), newer.c.Get(o.Context(), newer.keys.Heartbeat("o")).Val()
			for _, s := range []*redis.Script{beatScript, hereScript, registerScript, healScript, releaseScript, goodbyeScript} {
				_, err := older.own(o.Context(), s, "b")
				require.ErrorIs(o, err, ErrReplaced)
			}
			require.Equal(o, before, newer.entries())
			require.Equal(o, heartbeat, newer.c.Get(o.Context(), newer.keys.Heartbeat("o")).Val())
			newer.lives()
		},
		"an index or a roster of another type keeps nobody from registering and releasing": func(o *owner) {
			for _, key := range []string{o.keys.Roster(), o.keys.Devices("o")} {
				o.do("SET", key, "x")
				o = o.other("o")
				size := o.run(registerScript, "a", "b").size
				require.Equal(o, key == o.keys.Devices("o"), size == -1, "it is told")
				o.run(healScript, "c")
				o.run(releaseScript, "a")
				require.Equal(o, map[string]string{"b": "o", "c": "o"}, o.entries())
				o.run(goodbyeScript, "2")
				o.do("DEL", key)
			}
		},
		"without the index none is written": func(o *owner) {
			o.cfg.NoReverseIndex = true
			require.Zero(o, o.run(registerScript, "a").size)
			require.Zero(o, o.run(healScript, "b").size)
			require.Len(o, o.entries(), 2)
		},
		"a heartbeat of another type or without a token is replaced": func(o *owner) {
			key := o.keys.Heartbeat("o")
			o.c.Del(o.Context(), key)
			o.do("SADD", key, "x")
			o.beats()
			o.lives()
			o.do("SET", key, "1795188960111", "EX", 60)
			o.beats()
			o.lives()
		},
	} {
		t.Run(name, func(t *testing.T) { owners(t, test) })
	}
}

// laterBoot returns a boot token from half a year in the future.
func laterBoot() string {
	return fmt.Sprintf("%d%010d", time.Now().Add(180*24*time.Hour).UnixMicro(), 7)
}

package registry

import (
	"fmt"
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
	*Registry
	t *testing.T
	c *redis.Client
}

func newOwner(t *testing.T, w redistest.World, id string) *owner {
	c := redis.NewClient(lease.Options(w.Options))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	r, err := New(Config{Client: c, Control: c, Instance: id, Layout: Layout{Prefix: w.Prefix}})
	require.NoError(t, err)
	require.NoError(t, r.drawBoot(t.Context()))
	return &owner{Registry: r, t: t, c: c}
}

func (o *owner) run(s *redis.Script, more ...any) reply {
	o.t.Helper()
	got, err := o.own(o.t.Context(), s, more...)
	require.NoError(o.t, err)
	require.InDelta(o.t, time.Now().UnixMilli(), got.ms, 60_000)
	got.ms = 0
	return got
}

// bare runs a script and returns its answer without the times.
func (o *owner) bare(s *redis.Script, more ...any) reply {
	o.t.Helper()
	got := o.run(s, more...)
	got.found, got.last, got.ms = 0, 0, 0
	return got
}

func (o *owner) record() doubt.Record {
	return doubt.Parse(o.c.HGet(o.t.Context(), o.keys.Beats(), o.id).Val())
}

func (o *owner) entries() map[string]string {
	return o.c.HGetAll(o.t.Context(), o.keys.Registry()).Val()
}

func (o *owner) indexed() []string {
	return o.c.SMembers(o.t.Context(), o.keys.Devices(o.id)).Val()
}

// lives: the heartbeat is this boot's, with its full TTL, and the roster has the owner.
func (o *owner) lives() {
	o.t.Helper()
	ctx := o.t.Context()
	value := o.c.Get(ctx, o.keys.Heartbeat(o.id)).Val()
	ms, token, _ := strings.Cut(value, "/")
	require.Equal(o.t, o.boot, token)
	require.Len(o.t, ms, 13, "unix time in ms, whole: %s", value)
	require.InDelta(o.t, o.Timing().TTL.Seconds(), o.c.PTTL(ctx, o.keys.Heartbeat(o.id)).Val().Seconds(), 30)
	require.True(o.t, o.c.SIsMember(ctx, o.keys.Roster(), o.id).Val())
}

func (o *owner) forgetHeartbeat() {
	o.t.Helper()
	require.NoError(o.t, o.c.Del(o.t.Context(), o.keys.Heartbeat(o.id), o.keys.Roster()).Err())
}

func TestOwnerScripts(t *testing.T) {
	cases := map[string]func(t *testing.T, w redistest.World){
		"boot writes the first heartbeat, answers the same token when asked again, and a higher one to a newer life": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			o.lives()
			require.Len(t, o.boot, 26)
			first := o.boot
			require.NoError(t, o.drawBoot(t.Context()))
			require.Equal(t, first, o.boot)
			require.Greater(t, newOwner(t, w, "o").boot, first)
		},
		"beat says what record it found, the size of the index, and when entries may have been lost": func(t *testing.T, w redistest.World) {
			o, grace := newOwner(t, w, "o"), int64(92_000)
			first := o.run(beatScript, grace)
			require.Equal(t, reply{found: o.newest, last: first.last}, first)
			require.GreaterOrEqual(t, first.last, o.newest)
			require.NoError(t, o.c.SAdd(t.Context(), o.keys.Devices("o"), "a", "b").Err())
			require.NoError(t, o.c.HSet(t.Context(), o.keys.Witness(), "lost", "123").Err())
			o.forgetHeartbeat()
			got := o.run(beatScript, grace)
			require.Equal(t, reply{found: first.last, last: got.last, size: 2, lost: "123"}, got, "the heartbeat was evicted: nothing is lost")
			o.lives()
			require.NoError(t, o.c.Del(t.Context(), o.keys.Beats()).Err())
			require.Zero(t, o.run(beatScript, grace).found)
			older := "1/0" + o.boot[1:]
			require.NoError(t, o.c.Set(t.Context(), o.keys.Heartbeat("o"), older, time.Minute).Err())
			require.Zero(t, o.run(beatScript, grace).found, "a former life was here")
			require.NoError(t, o.c.Del(t.Context(), o.keys.Witness()).Err())
			require.NoError(t, o.c.Set(t.Context(), o.keys.Witness(), "no hash", 0).Err())
			require.Equal(t, reply{size: 2}, o.bare(beatScript, grace))
			require.NoError(t, o.c.Del(t.Context(), o.keys.Beats()).Err())
			require.NoError(t, o.c.Set(t.Context(), o.keys.Beats(), "no hash", 0).Err())
			require.Zero(t, o.run(beatScript, grace).last, "it lives all the same")
			o.lives()
		},
		"a beat tells everybody that the registry is missing which has its entries": func(t *testing.T, w redistest.World) {
			o, grace := newOwner(t, w, "o"), 92_000
			lost := func() string { return o.c.HGet(t.Context(), o.keys.Witness(), "lost").Val() }
			require.Empty(t, o.run(beatScript, grace, false).lost)
			require.NotEmpty(t, o.run(beatScript, grace, true).lost)
			require.Empty(t, lost(), "nobody listens")
			require.NoError(t, o.c.HSet(t.Context(), o.keys.Witness(), "last", "1").Err())
			require.Equal(t, o.run(beatScript, grace, true).lost, lost())
			require.NotEmpty(t, lost())
			o.run(registerScript, "a")
			was := lost()
			require.Equal(t, was, o.run(beatScript, grace, true).lost)
		},
		"a beat shows the settings of an owner that does not contend, and the next to listen holds": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			tick := func(timing guard.Timing) guard.Witness {
				got, err := guard.New(o.c, o.c, o.keys, timing, "leader").Tick(t.Context())
				require.NoError(t, err)
				return got
			}
			o.run(beatScript, o.Timing().Grace().Milliseconds())
			require.Zero(t, o.c.Exists(t.Context(), o.keys.Witness()).Val(), "the first tick begins the witness")
			for _, agree := range []guard.Timing{o.Timing(), o.Timing()} {
				require.Equal(t, "gap", tick(agree).Reason)
				o.run(beatScript, o.Timing().Grace().Milliseconds())
			}
			quick := guard.Timing{Interval: 3 * time.Second, TTL: 63 * time.Second}
			require.Equal(t, "settings", tick(quick).Reason)
			require.NoError(t, o.c.HDel(t.Context(), o.keys.Witness(), "reason").Err())
			require.LessOrEqual(t, tick(quick).HeldFor, quick.Grace(), "a fleet of quick ones")
			o.run(beatScript, o.Timing().Grace().Milliseconds())
			got := tick(quick)
			require.Equal(t, "settings", got.Reason)
			require.Equal(t, quick.Grace(), got.HeldFor)

			require.NoError(t, o.c.HDel(t.Context(), o.keys.Witness(), "reason").Err())
			o.run(beatScript, o.Timing().Grace().Milliseconds())
			o.run(beatScript, quick.Grace().Milliseconds())
			require.Equal(t, "settings", tick(quick).Reason, "a beat like the last tick does not hide the other")

			require.NoError(t, o.c.Del(t.Context(), o.keys.Witness()).Err())
			require.Equal(t, "gap", tick(quick).Reason)
			large := newOwner(t, w, "large") // its boot reports it
			require.Equal(t, quick.Gap(), large.Timing().Gap())
			// and it is not forgotten when others beat before anybody listens
			o.run(beatScript, quick.Grace().Milliseconds())
			require.Equal(t, "settings", tick(quick).Reason)
		},
		"a beat says whether its user may keep the roster and the index, and tell": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			if o.c.Do(t.Context(), "ACL", "WHOAMI").Err() != nil {
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
				user := w.Prefix + strings.ReplaceAll(name, " ", "")
				rules := append([]any{"ACL", "SETUSER", user, "on", ">p", "~*", "&*", "+@all"}, c.rules...)
				require.NoError(t, o.c.Do(t.Context(), rules...).Err())
				options := *w.Options
				options.Username, options.Password = user, "p"
				poor := redis.NewClient(lease.Options(&options))
				for without, want := range map[bool]int{false: c.index, true: c.none} {
					o.cfg.NoReverseIndex = without
					o.cfg.Control = poor
					got := o.run(beatScript, o.Timing().Grace().Milliseconds())
					require.Equal(t, want, got.count, "%s, without an index: %v", name, without)
					require.NoError(t, o.beat(t.Context()), "it lives all the same")
					require.Equal(t, want != 0, o.rights.Failing())
					o.cfg.Control = o.c
					require.NoError(t, o.beat(t.Context()))
					require.False(t, o.rights.Failing())
				}
				require.NoError(t, poor.Close())
				require.NoError(t, o.c.Do(t.Context(), "ACL", "DELUSER", user).Err())
			}
		},
		"an owner that may not tell others writes all the same": func(t *testing.T, w redistest.World) {
			o, ctx := newOwner(t, w, "o"), t.Context()
			if o.c.Do(ctx, "ACL", "WHOAMI").Err() != nil {
				return // miniredis has no users
			}
			user := w.Prefix + "mute"
			require.NoError(t, o.c.Do(ctx, "ACL", "SETUSER", user, "on", ">p", "~*", "&*", "+@all", "-publish").Err())
			options := *w.Options
			options.Username, options.Password = user, "p"
			o.c = redis.NewClient(lease.Options(&options))
			defer o.c.Close()
			o.cfg.Client, o.cfg.Control = o.c, o.c
			require.NoError(t, w.Client.HSet(ctx, o.keys.Registry(), "a", "x", "b", "x").Err())
			require.Equal(t, 1, o.run(registerScript, "a").size)
			require.Equal(t, 1, o.run(healScript, "b", "new").count)
			require.Equal(t, map[string]string{"a": "o", "b": "x", "new": "o"}, o.entries())
			require.ElementsMatch(t, []string{"a", "new"}, o.indexed())
			_, err := o.message(ctx, "x", "x")
			require.ErrorContains(t, err, "NOPERM", "what was not asked must not count as unanswered")
			require.NoError(t, w.Client.Do(ctx, "ACL", "DELUSER", user).Err())
		},
		"register writes entries, index, roster and heartbeat, over whatever stands there": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			o.forgetHeartbeat()
			require.NoError(t, o.c.HSet(t.Context(), o.keys.Registry(), "b", "other").Err())
			require.Equal(t, reply{size: 2}, o.bare(registerScript, "a", "b"))
			require.Equal(t, map[string]string{"a": "o", "b": "o"}, o.entries())
			require.ElementsMatch(t, []string{"a", "b"}, o.indexed())
			o.lives()
		},
		"heal writes what is absent, never what is somebody else's": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			o.forgetHeartbeat()
			require.NoError(t, o.c.HSet(t.Context(), o.keys.Registry(), "own", "o", "moved", "y", "foreign", "z", "nobody", "").Err())
			got := o.bare(healScript, "absent", "own", "moved", "foreign", "nobody")
			require.Equal(t, reply{size: 3, count: 2, foreign: map[string]string{"moved": "y", "foreign": "z"}}, got)
			require.Equal(t, map[string]string{
				"absent": "o", "own": "o", "nobody": "o", "moved": "y", "foreign": "z",
			}, o.entries())
			require.ElementsMatch(t, []string{"absent", "own", "nobody"}, o.indexed())
			o.lives()
		},
		"register tells former owners what they lost": func(t *testing.T, w redistest.World) {
			o, ctx := newOwner(t, w, "o"), t.Context()
			told := w.Client.Subscribe(ctx, o.keys.Heartbeat("o"), o.keys.Heartbeat("x"), o.keys.Heartbeat("y"))
			defer told.Close()
			for range 3 {
				_, err := told.Receive(ctx)
				require.NoError(t, err)
			}
			require.NoError(t, o.c.Del(ctx, o.keys.Registry()).Err())
			require.NoError(t, o.c.HSet(ctx, o.keys.Registry(), "a", "x", "b", "y", "c", "x", "d", "o", "e", "").Err())
			o.run(registerScript, "a", "b", "c", "d", "e", "new")
			require.NoError(t, o.c.Publish(ctx, o.keys.Heartbeat("o"), "no more").Err())
			got := map[string]string{}
			for len(got) < 3 {
				m, err := told.ReceiveMessage(ctx)
				require.NoError(t, err)
				require.NotContains(t, got, m.Channel)
				got[m.Channel] = m.Payload
			}
			require.Equal(t, map[string]string{
				o.keys.Heartbeat("x"): "a c", o.keys.Heartbeat("y"): "b", o.keys.Heartbeat("o"): "no more",
			}, got)
		},
		"heal tells every owner of a registry that is gone": func(t *testing.T, w redistest.World) {
			for name, s := range map[string][]any{"register": {"a"}, "heal": {"a"}} {
				o := newOwner(t, w, name)
				require.NoError(t, o.c.Del(t.Context(), o.keys.Registry(), o.keys.Witness()).Err())
				require.NoError(t, o.c.HSet(t.Context(), o.keys.Witness(), "last", 1).Err())
				o.run(map[string]*redis.Script{"register": registerScript, "heal": healScript}[name], s...)
				require.NotEmpty(t, o.c.HGet(t.Context(), o.keys.Witness(), "lost").Val(), name)
			}
		},
		"a boot is above what the heartbeat remembers, if that is a token": func(t *testing.T, w redistest.World) {
			later := laterBoot()
			for held, above := range map[string]bool{
				"1/" + strings.Repeat("9", 30): false, "1/" + strings.Repeat("9", 25): false, "1795188960111": false, "": false,
				"1/8" + strings.Repeat("9", 25): false, "1/" + later: true,
			} {
				require.NoError(t, w.Client.Set(t.Context(), Layout{Prefix: w.Prefix}.Heartbeat("o"), held, time.Minute).Err())
				require.NoError(t, w.Client.HDel(t.Context(), Layout{Prefix: w.Prefix}.Witness(), "boot").Err()) // from the case before
				o := newOwner(t, w, "o")
				require.Len(t, o.boot, 26)
				require.Equal(t, above, o.boot > later, held)
				o.lives()
			}
		},
		"release takes out its own only": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			o.run(registerScript, "a", "b", "c", "0", "1")
			require.NoError(t, o.c.HSet(t.Context(), o.keys.Registry(), "b", "other").Err())
			require.Equal(t, reply{size: 3, count: 1}, o.bare(releaseScript, "a", "b", "never"))
			require.Equal(t, map[string]string{"b": "other", "c": "o", "0": "o", "1": "o"}, o.entries())
			require.ElementsMatch(t, []string{"c", "0", "1"}, o.indexed())
		},
		"goodbye leaves nothing but a record when nothing is left": func(t *testing.T, w redistest.World) {
			o, ctx := newOwner(t, w, "o"), t.Context()
			o.run(registerScript, "a")
			o.run(goodbyeScript, "1")
			require.Zero(t, o.c.Exists(ctx, o.keys.Heartbeat("o")).Val())
			require.True(t, o.c.SIsMember(ctx, o.keys.Roster(), "o").Val())
			require.Equal(t, doubt.Bye, o.record().State)

			o = newOwner(t, w, "o")
			require.Equal(t, doubt.Idle, o.record().State, "it is back")
			o.run(releaseScript, "a")
			require.NoError(t, o.c.Del(ctx, o.keys.Beats()).Err())
			o.run(goodbyeScript, "0")
			require.Equal(t, []string{o.keys.Beats()}, o.c.Keys(ctx, w.Prefix+"*").Val())
			require.Equal(t, doubt.Bye, o.record().State)
		},
		"each proof of life is recorded as package doubt has it": func(t *testing.T, w redistest.World) {
			o, own := newOwner(t, w, "o"), doubt.Own{Interval: 30_000, TTL: 90_000}
			boot := o.record()
			require.Equal(t, doubt.Record{}.Proves(o.newest, own, doubt.Idle), boot)
			due := own.Due()
			for name, was := range map[string]string{
				"none": "", "nonsense": "1/2/3", "too large": fmt.Sprintf("1/90000/38000/%d/0/h", int64(1e16)), "without TTL": "1/0/1/1/1/h",
				"idle": "5/90000/38000/4/3/i", "left": "5/90000/38000/4/3/b", "plain": "5/90000/38000/4/3/p",
				"found silent": fmt.Sprintf("%d/90000/0/4/3/p", o.newest),
				"in time":      fmt.Sprintf("%d/90000/%d/4/3/h", o.newest-due+20_000, due), "late": fmt.Sprintf("%d/90000/%d/4/3/h", o.newest-90_000+due-1, due), "nearly late": fmt.Sprintf("%d/90000/%d/4/3/h", o.newest-due-1, due),
			} {
				for script, state := range map[*redis.Script]doubt.State{beatScript: doubt.Idle, registerScript: doubt.Holds, goodbyeScript: doubt.Bye} {
					require.NoError(t, o.c.HSet(t.Context(), o.keys.Beats(), "o", was).Err())
					last := o.run(script, "92000").last
					want := doubt.Parse(was)
					if fresh := script == registerScript && name == "in time"; !fresh {
						want = want.Proves(last, own, state)
					}
					require.Equal(t, want.String(), o.c.HGet(t.Context(), o.keys.Beats(), "o").Val(), "%s, %c", name, state)
				}
			}
		},
		"a write through Client leaves a record that is not overdue to the beats, whose time it must not hide": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			now, due := o.newest, doubt.Own{Interval: 30_000, TTL: 90_000}.Due()
			for last, renewed := range map[int64]bool{now - due + 20_000: false, now - due - 1: true, now + 60_000: true} {
				for _, s := range []*redis.Script{registerScript, healScript} {
					record := fmt.Sprintf("%d/90000/%d/1/0/h", last, due)
					require.NoError(t, o.c.HSet(t.Context(), o.keys.Beats(), "o", record).Err())
					got := o.run(s, "a")
					require.Equal(t, renewed, got.last != last, last-now)
					require.Equal(t, o.record().Last, got.last)
				}
			}
		},
		"whatever an owner asks, a server that lacks its newest beat refuses, and does nothing": func(t *testing.T, w redistest.World) {
			o, ctx := newOwner(t, w, "o"), t.Context()
			o.run(registerScript, "a")
			before, record := o.entries(), o.record()
			o.newest = record.Last + 1
			for _, s := range []*redis.Script{registerScript, healScript, releaseScript} {
				keys, args := o.owning(o.Newest(), "a")
				_, err := o.owned(time.Now(), s.Run(ctx, o.c, keys, args...))
				require.True(t, isFormer(err), err)
				require.True(t, o.surprises.unheard, "the new primary may lack more")
				o.surprises.unheard = false
				require.True(t, redis.IsReadOnlyError(err), "so that the connection is dialed anew")
				require.False(t, refused(err), "nobody has to act on it")
			}
			_, err := o.Lookup(ctx, "a")
			require.ErrorContains(t, err, "READONLY former primary")
			_, err = o.LookupMany(ctx, []string{"a"})
			require.ErrorContains(t, err, "READONLY former primary")
			_, err = o.Registry.entries(ctx, []string{"a"})
			require.ErrorContains(t, err, "READONLY former primary")
			require.Equal(t, before, o.entries())
			require.Equal(t, record, o.record())
			o.newest = record.Last
			owner, err := o.Lookup(ctx, "a")
			require.NoError(t, err)
			require.Equal(t, Owner{"o", true}, owner)
			o.newest++
			require.NoError(t, o.c.Del(ctx, o.keys.Beats()).Err())
			_, err = o.Lookup(ctx, "a")
			require.NoError(t, err, "a missing record proves nothing")
		},
		"a replaced life writes nothing": func(t *testing.T, w redistest.World) {
			older := newOwner(t, w, "o")
			older.run(registerScript, "a")
			newer := newOwner(t, w, "o")
			newer.run(registerScript, "b")
			before, heartbeat := newer.entries(), newer.c.Get(t.Context(), newer.keys.Heartbeat("o")).Val()
			for _, s := range []*redis.Script{beatScript, hereScript, registerScript, healScript, releaseScript, goodbyeScript} {
				_, err := older.own(t.Context(), s, "b")
				require.ErrorIs(t, err, ErrReplaced)
			}
			require.Equal(t, before, newer.entries())
			require.Equal(t, heartbeat, newer.c.Get(t.Context(), newer.keys.Heartbeat("o")).Val())
			newer.lives()
		},
		"an index or a roster of another type keeps nobody from registering and releasing": func(t *testing.T, w redistest.World) {
			for _, key := range []string{Layout{Prefix: w.Prefix}.Roster(), Layout{Prefix: w.Prefix}.Devices("o")} {
				o := newOwner(t, w, "o")
				o.c.Del(t.Context(), key)
				require.NoError(t, o.c.Set(t.Context(), key, "x", 0).Err())
				o = newOwner(t, w, "o")
				size := o.run(registerScript, "a", "b").size
				require.Equal(t, key == o.keys.Devices("o"), size == -1, "it is told")
				o.run(healScript, "c")
				o.run(releaseScript, "a")
				require.Equal(t, map[string]string{"b": "o", "c": "o"}, o.entries())
				o.run(goodbyeScript, "2")
				require.NoError(t, o.c.Del(t.Context(), key).Err())
			}
		},
		"without the index none is written": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			o.cfg.NoReverseIndex = true
			require.Zero(t, o.run(registerScript, "a").size)
			require.Zero(t, o.run(healScript, "b").size)
			require.Len(t, o.entries(), 2)
		},
		"a heartbeat of another type or without a token is replaced": func(t *testing.T, w redistest.World) {
			o := newOwner(t, w, "o")
			key := o.keys.Heartbeat("o")
			o.c.Del(t.Context(), key)
			require.NoError(t, o.c.SAdd(t.Context(), key, "x").Err())
			o.run(beatScript, o.Timing().Grace().Milliseconds())
			o.lives()
			require.NoError(t, o.c.Set(t.Context(), key, "1795188960111", time.Minute).Err())
			o.run(beatScript, o.Timing().Grace().Milliseconds())
			o.lives()
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			redistest.Worlds(t, func(t *testing.T, w redistest.World) {
				t.Parallel()
				run(t, w)
			})
		})
	}
}

// laterBoot returns a boot token from half a year in the future.
func laterBoot() string {
	return fmt.Sprintf("%d%010d", time.Now().Add(180*24*time.Hour).UnixMicro(), 7)
}

//go:build owners

package owners

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

var keys registry.Layout

// A world is a Redis of its own, and owners of one language.
type world struct {
	t      *testing.T
	server *redistest.Server
	*redis.Client
	command func() *exec.Cmd
}

func (w *world) start(id string) *owner { return w.startAt(w.server.Addr(), id) }

// startAt starts an owner that reaches Redis at an address.
func (w *world) startAt(addr, id string) *owner {
	return start(w.t, w.command(), addr, w.Options().DB, id)
}

// apart is more than two owners' readings of the server's time differ: by half a round trip each.
const apart = 200 * time.Millisecond

// older has an owner register a key, so long ago that any handshake from now on is the newer one.
func (w *world) older(o *owner, key string) {
	w.t.Helper()
	o.registers(key)
	w.after(w.now().Add(apart))
}

func (w *world) now() time.Time { return w.Time(w.t.Context()).Val() }

func (w *world) after(at time.Time) {
	w.t.Helper()
	w.eventually("time passes", func() bool { return w.now().After(at) })
}

func (w *world) entry(key string) string { return w.HGet(w.t.Context(), keys.Registry(), key).Val() }

func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	eventually(w.t, what, cond)
}

func (w *world) is(key, owner string) {
	w.t.Helper()
	w.eventually(key+" is "+owner, func() bool { return w.entry(key) == owner })
}

func TestOwnersConform(t *testing.T) {
	t.Parallel()
	cases := map[string]func(w *world){
		"boot":                boots,
		"replaced":            isReplaced,
		"heals":               heals,
		"tells what is back":  tellsWhatIsBack,
		"late release":        releasesLate,
		"two owners":          ownersOfTwoSockets,
		"handshakes":          judgesByTheHandshake,
		"time of a handshake": stampsTheHandshake,
		"once a second":       answersOnceASecond,
		"asked and not held":  handsBackWhatItIsAsked,
		"pings":               pingsBeforeItAnswers,
		"database":            hearsItsOwnDatabase,
		"listens":             listensWhereOthersPublish,
		"late registration":   asksTheOlder,
		"entry of nobody":     handsBackWhatItDoesNotHold,
		"plain writer":        yieldsToAPlainWriter,
		"newer socket":        hasANewerSocket,
		"goodbye":             saysGoodbye,
		"paused and swept":    isPausedAndSwept,
		"over the dead":       overwritesTheDead,
		"Redis comes back":    outlastsRedis,
		"words":               takesWordsLiterally,
		"former primary":      leavesAFormerPrimary,
		"record missing":      noticesItsRecordMissing,
		"record older":        noticesItsRecordOlder,
		"own silence":         noticesItsOwnSilence,
		"loss recorded":       noticesALossThatOthersSaw,
		"registry missing":    noticesTheRegistryMissing,
		"lost answer":         noticesALostAnswer,
		"no writes taken":     noticesAServerThatTookNoWrites,
		"late write":          looksAgainForLateWrites,
		"full memory":         beatsWhileMemoryIsFull,
		"late and moved":      registersLateAndOverwritesNothing,
		"former life":         handsBackAFormerLife,
	}
	for language, command := range languages() {
		t.Run(language, func(t *testing.T) {
			for name, run := range cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					server := redistest.Start(t)
					run(&world{t, server, server.Client(), command})
				})
			}
		})
	}
}

func boots(w *world) {
	ctx := w.t.Context()
	w.start("a")
	require.Equal(w.t, []string{"a"}, w.SMembers(ctx, keys.Roster()).Val())
	require.Regexp(w.t, `^\d{13}/\d{26}$`, w.Get(ctx, keys.Heartbeat("a")).Val())
	left := w.PTTL(ctx, keys.Heartbeat("a")).Val()
	require.True(w.t, left > 0 && left <= ttl, left)
	first, record := w.Get(ctx, keys.Heartbeat("a")).Val(), w.record("a")
	require.Equal(w.t, doubt.Idle, record.State)
	require.Equal(w.t, ttl.Milliseconds(), record.TTL)
	require.Equal(w.t, doubt.Own{Interval: interval.Milliseconds(), TTL: ttl.Milliseconds()}.Due(), record.Due)
	w.eventually("it beats", func() bool { return w.Get(ctx, keys.Heartbeat("a")).Val() != first })
	w.eventually("and records it", func() bool { return w.record("a").Last > record.Last })
}

func (w *world) record(id string) doubt.Record {
	return doubt.Parse(w.HGet(w.t.Context(), keys.Beats(), id).Val())
}

// A server that lacks its newest beat is a former primary, which no other write may hide.
func leavesAFormerPrimary(w *world) {
	ctx, a := w.t.Context(), w.start("a")
	a.registers("phone")
	require.Equal(w.t, doubt.Holds, w.record("a").State)
	w.beats("a")
	older := w.record("a")
	older.Last-- // not overdue: the write of an entry would not renew it
	w.HSet(ctx, keys.Registry(), "tablet", "b")
	w.HSet(ctx, keys.Beats(), "a", older.String())
	a.do("register", "tablet")
	w.eventually("the next beat repairs it", func() bool {
		pipe := w.TxPipeline()
		entry, record := pipe.HGet(ctx, keys.Registry(), "tablet"), pipe.HGet(ctx, keys.Beats(), "a")
		_, err := pipe.Exec(ctx)
		require.NoError(w.t, err)
		behind := record.Val() == older.String()
		require.False(w.t, behind && entry.Val() == "a", "until then it writes nothing")
		return !behind
	})
	a.registers("after")
	require.Equal(w.t, "a", w.entry("after"))
}

func isReplaced(w *world) {
	older := w.start("a")
	older.registers("one")
	older.registers("two")
	newer := w.start("a")
	older.exits(exitReplaced)
	w.is("one", "")
	w.is("two", "")
	newer.registers("one")
	require.Equal(w.t, "a", w.entry("one"))
}

func heals(w *world) {
	ctx, o := w.t.Context(), w.start("a")
	for i := range 20 {
		o.registers(fmt.Sprint("key-", i))
	}
	w.FlushAll(ctx)
	w.eventually("all are back", func() bool { return w.HLen(ctx, keys.Registry()).Val() == 20 })
	w.HDel(ctx, keys.Registry(), "key-7") // within eleven intervals
	w.is("key-7", "a")
	w.SRem(ctx, keys.Devices("a"), "key-8")
	w.eventually("the index has all", func() bool { return w.SCard(ctx, keys.Devices("a")).Val() == 20 })
	w.SAdd(ctx, keys.Devices("a"), "nobody")
	w.eventually("the index has no more", func() bool { return w.SCard(ctx, keys.Devices("a")).Val() == 20 })
	for i := range 4 { // in use: at once, and not when its turn comes
		w.beats("a")
		key := fmt.Sprint("key-", 10+i)
		w.HDel(ctx, keys.Registry(), key)
		o.do("touch", key)
		w.within(o, 2, key, func() bool { return w.entry(key) == "a" })
	}
}

// Everything is in Redis when it says so, and it says nothing while nothing was lost.
func tellsWhatIsBack(w *world) {
	const n = 1200
	ctx, told := w.t.Context(), event{Event: "reconciled"}
	w.HSet(ctx, keys.Witness(), "since", "1", "lost", "1", "reason", "gap")
	o := w.start("a")
	for i := range n {
		o.do("register", fmt.Sprint("key-", i))
	}
	w.eventually("all are there", func() bool { return w.HLen(ctx, keys.Registry()).Val() == n })
	first := w.Get(ctx, keys.Heartbeat("a")).Val()
	w.eventually("it beats", func() bool { return w.Get(ctx, keys.Heartbeat("a")).Val() != first })
	require.False(w.t, o.has(told), "nothing was lost")
	w.FlushAll(ctx)
	o.awaits(told)
	require.EqualValues(w.t, n, w.HLen(ctx, keys.Registry()).Val())
	w.HDel(ctx, keys.Registry(), "key-7")
	o.do("touch", "key-7")
	w.eventually("it says so again", func() bool { return o.count(told) == 2 })
	require.Equal(w.t, "a", w.entry("key-7"))
}

func releasesLate(w *world) {
	a, b := w.start("a"), w.start("b")
	w.older(a, "phone")
	b.registers("phone")
	require.Equal(w.t, "b", w.entry("phone"))
	a.do("release", "phone")
	a.do("stop", "")
	a.exits(0)
	require.Equal(w.t, "b", w.entry("phone"))
	b.do("release", "phone")
	w.is("phone", "")
}

// moved is what an owner says whose socket was closed for a newer one at another.
func moved(key, to string) event { return event{"closed", key, to} }

func ownersOfTwoSockets(w *world) {
	a, b := w.start("a"), w.start("b")
	w.older(a, "phone")
	b.registers("phone")
	a.awaits(moved("phone", "b"))
	for range 12 { // whatever the older one says
		a.do("touch", "phone")
		w.beats("a")
		require.Equal(w.t, "b", w.entry("phone"))
	}
	require.False(w.t, b.closed("phone"))
	require.Equal(w.t, 1, a.count(moved("phone", "b")))
	b.do("release", "phone")
	w.is("phone", "")
	w.beats("a")
	w.beats("a")
	require.Empty(w.t, w.entry("phone"), "the older one does not take it back")
}

// beats waits for the next beat of an owner.
func (w *world) beats(id string) {
	was := w.Get(w.t.Context(), keys.Heartbeat(id)).Val()
	w.eventually("it beats", func() bool { return w.Get(w.t.Context(), keys.Heartbeat(id)).Val() != was })
}

// The newer owner's registration fails for longer than it may overwrite.
func asksTheOlder(w *world) {
	ctx, a, b := w.t.Context(), w.start("a"), w.start("b")
	w.older(a, "phone")
	require.NoError(w.t, w.ConfigSet(ctx, "maxmemory", "1").Err())
	b.do("register", "phone")
	late := time.NewTimer(1500 * time.Millisecond)
	<-late.C
	require.NoError(w.t, w.ConfigSet(ctx, "maxmemory", "0").Err())
	w.is("phone", "b")
	a.awaits(moved("phone", "b"))
	require.False(w.t, b.closed("phone"))
}

func handsBackWhatItDoesNotHold(w *world) {
	a := w.start("a")
	w.start("b")
	a.registers("phone")
	w.HSet(w.t.Context(), keys.Registry(), "phone", "b")
	a.do("touch", "phone")
	w.is("phone", "a")
	require.False(w.t, a.closed("phone"))
}

func yieldsToAPlainWriter(w *world) {
	ctx, a := w.t.Context(), w.start("a")
	a.registers("phone")
	w.Set(ctx, keys.Heartbeat("plain"), "1", 0)
	w.HSet(ctx, keys.Registry(), "phone", "plain")
	w.eventually("the socket is closed", func() bool {
		closed := a.closed("phone")
		require.Equal(w.t, "plain", w.entry("phone"))
		return closed
	})
	a.do("register", "phone")
	w.is("phone", "a")
}

func hasANewerSocket(w *world) {
	a := w.start("a")
	a.registers("phone")
	a.do("register", "phone")
	a.awaits(moved("phone", "a"))
	require.Equal(w.t, "a", w.entry("phone"))
}

func saysGoodbye(w *world) {
	a := w.start("a")
	a.registers("phone")
	a.do("stop", "")
	a.exits(0)
	for _, key := range []string{keys.Registry(), keys.Heartbeat("a"), keys.Roster(), keys.Devices("a")} {
		require.Zero(w.t, w.Exists(w.t.Context(), key).Val(), key)
	}
	require.Equal(w.t, doubt.Bye, w.record("a").State)
}

func overwritesTheDead(w *world) {
	ctx, a := w.t.Context(), w.start("a")
	a.registers("phone")
	dead := doubt.Record{Last: 1, TTL: 1, Due: 1, State: doubt.Holds}
	w.HSet(ctx, keys.Beats(), "dead", dead.String())
	w.HSet(ctx, keys.Registry(), "phone", "dead")
	w.is("phone", "a")
}

// sweeps runs a janitor beside the owners.
func (w *world) sweeps() {
	opt := w.server.Options()
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	log := slog.New(slog.DiscardHandler)
	reg, err := registry.New(registry.Config{
		Client: rdb, Control: ctl, Instance: "janitor", HeartbeatInterval: interval, HeartbeatTTL: ttl, Logger: log,
	})
	require.NoError(w.t, err)
	jan, err := janitor.New(janitor.Config{
		Client: rdb, Control: ctl, Registry: reg, Logger: log, Interval: time.Second, LeaseTTL: 3 * time.Second,
	})
	require.NoError(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	p := pool.New().WithContext(ctx)
	p.Go(reg.Run)
	p.Go(jan.Run)
	w.t.Cleanup(func() {
		stop()
		require.NoError(w.t, p.Wait())
		require.NoError(w.t, rdb.Close())
		require.NoError(w.t, ctl.Close())
	})
}

func isPausedAndSwept(w *world) {
	ctx := w.t.Context()
	w.sweeps()
	a, b := w.start("a"), w.start("b")
	a.registers("phone")
	b.registers("tablet")
	require.NoError(w.t, a.Signal(syscall.SIGSTOP))
	w.is("phone", "")
	require.Equal(w.t, "b", w.entry("tablet"))
	require.NoError(w.t, a.Signal(syscall.SIGCONT))
	w.is("phone", "a")
	a.Kill()
	w.is("phone", "")
	w.eventually("nothing is left of it", func() bool { return !w.SIsMember(ctx, keys.Roster(), "a").Val() })
	require.Equal(w.t, "b", w.entry("tablet"))
}

func outlastsRedis(w *world) {
	a := w.start("a")
	a.registers("before")
	w.server.Kill()
	a.do("register", "while away")
	a.do("release", "before")
	w.server.Restart()
	w.is("while away", "a")
	a.registers("after")
	w.is("before", "")
}

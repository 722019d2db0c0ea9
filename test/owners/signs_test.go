//go:build owners

package owners

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// Each case here shows an owner one sign alone that Redis lost something, or that it may write
// something wrong.

const (
	// many are more ids than an owner checks, a tenth after each beat, in soon beats.
	many = 5000
	soon = 5
)

// holdsMany has an owner register ids, wait until they are there, and beat, so that all is calm.
func (w *world) holdsMany(o *owner) {
	w.t.Helper()
	for i := range many {
		o.do("register", fmt.Sprint("key-", i))
	}
	w.eventually("all are there", func() bool { return w.HLen(w.t.Context(), keys.Registry()).Val() == many })
	w.calm(o)
}

// calm waits for beats after which an owner may reconcile again.
func (w *world) calm(o *owner) {
	w.t.Helper()
	for range 3 {
		w.beats(o.id)
	}
	w.after(time.UnixMilli(w.record(o.id).Last).Add(interval / 2)) // and what follows a beat is done
}

// writes returns the next writes to these hashes, each with its key.
func (w *world) writes(hashes ...string) (next func() (hash string)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	require.NoError(w.t, w.ConfigSet(ctx, "notify-keyspace-events", "Kh").Err())
	sub := w.Subscribe(ctx)
	w.t.Cleanup(func() { _ = sub.Close() })
	for _, hash := range hashes {
		require.NoError(w.t, sub.Subscribe(ctx, "__keyspace@0__:"+hash))
		_, err := sub.Receive(ctx)
		require.NoError(w.t, err)
	}
	return func() string {
		for {
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(w.t, err)
			if m.Payload == "hset" {
				return strings.TrimPrefix(m.Channel, "__keyspace@0__:")
			}
		}
	}
}

// loseMost removes entries, but for one: a missing registry is a sign of its own.
func (w *world) loseMost() {
	w.t.Helper()
	ids := make([]string, 0, many)
	for i := 1; i < many; i++ {
		ids = append(ids, fmt.Sprint("key-", i))
	}
	require.NoError(w.t, w.HDel(w.t.Context(), keys.Registry(), ids...).Err())
}

// backSoon waits until all is back, before the owner has checked a tenth of it often enough.
func (w *world) backSoon(o *owner) {
	w.t.Helper()
	w.within(o, soon, "all are back", func() bool { return w.HLen(w.t.Context(), keys.Registry()).Val() == many })
	w.calm(o)
}

// within waits for something that must come about before the owner has beaten more often.
func (w *world) within(o *owner, beats int, what string, cond func() bool) {
	w.t.Helper()
	at := func() (ms int64) {
		_, _ = fmt.Sscan(strings.SplitN(w.Get(w.t.Context(), keys.Heartbeat(o.id)).Val(), "/", 2)[0], &ms)
		return ms
	}
	n, was := 0, at()
	w.eventually(what, func() bool {
		if cond() {
			return true
		}
		if is := at(); is-was > interval.Milliseconds()/2 { // writes of entries renew the heartbeat as well
			n, was = n+1, is
		}
		require.LessOrEqual(w.t, n, beats, "beats, and not yet: %s", what)
		return false
	})
}

func noticesItsRecordMissing(w *world) {
	a := w.start("a")
	w.holdsMany(a)
	w.loseMost()
	w.HDel(w.t.Context(), keys.Beats(), "a")
	w.backSoon(a)
}

func noticesItsRecordOlder(w *world) {
	a := w.start("a")
	w.holdsMany(a)
	w.loseMost()
	r := w.record("a")
	r.Last -= 2 * interval.Milliseconds() // less than a TTL
	w.HSet(w.t.Context(), keys.Beats(), "a", r.String())
	w.backSoon(a)
}

// An owner that was silent for a TTL may have lost what it held, although nothing else says so.
func noticesItsOwnSilence(w *world) {
	a := w.start("a")
	w.holdsMany(a)
	require.NoError(w.t, a.Signal(syscall.SIGSTOP))
	w.eventually("it is silent for long", func() bool { return w.now().UnixMilli()-w.record("a").Last > ttl.Milliseconds() })
	w.loseMost()
	require.NoError(w.t, a.Signal(syscall.SIGCONT))
	w.backSoon(a)
}

func noticesALossThatOthersSaw(w *world) {
	a := w.start("a")
	w.HSet(w.t.Context(), keys.Witness(), "since", "1", "lost", "1", "reason", "gap")
	w.holdsMany(a)
	w.loseMost()
	w.HSet(w.t.Context(), keys.Witness(), "lost", "2")
	w.backSoon(a)
}

func noticesTheRegistryMissing(w *world) {
	a := w.start("a")
	w.holdsMany(a)
	next := w.writes(keys.Registry(), keys.Beats())
	for w.Del(w.t.Context(), keys.Registry()); next() != keys.Beats(); { // what it put back would hide that
		w.eventually("all are back", func() bool { return w.HLen(w.t.Context(), keys.Registry()).Val() == many })
		w.calm(a)
		next = w.writes(keys.Registry(), keys.Beats())
		w.Del(w.t.Context(), keys.Registry())
	}
	w.backSoon(a)
}

// The answer to the beat that wrote its record anew is lost, and later ones show nothing.
func noticesALostAnswer(w *world) {
	p := proxy.New(w.t, w.server.Addr())
	a := w.startAt(p.Addr(), "a")
	w.holdsMany(a)
	lost := p.LoseReplies()
	w.loseMost()
	w.HDel(w.t.Context(), keys.Beats(), "a")
	w.eventually("the answer is lost", func() bool { return w.HExists(w.t.Context(), keys.Beats(), "a").Val() })
	lost.End()
	p.Reset()
	w.backSoon(a)
}

// A server that took no writes for a while may lack some of them afterwards.
func noticesAServerThatTookNoWrites(w *world) {
	ctx, a := w.t.Context(), w.start("a")
	w.holdsMany(a)
	refused := func() string { return w.Info(ctx, "errorstats").Val() }
	require.NoError(w.t, w.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	w.eventually("a beat is refused", func() bool { return strings.Contains(refused(), "READONLY") })
	require.NoError(w.t, w.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	w.loseMost()
	w.backSoon(a)
}

// A registration without an answer lands after the release, and the index does not show it.
func looksAgainForLateWrites(w *world) {
	ctx := w.t.Context()
	p := proxy.New(w.t, w.server.Addr())
	a := w.startAt(p.Addr(), "a")
	a.registers("other")
	const id = "phone"
	caught, release := p.HoldNext(func(r proxy.Request) bool { return r.Has(id) })
	a.do("register", id)
	<-caught
	w.is(id, "a") // by another connection
	a.do("release", id)
	w.is(id, "")
	w.beats("a") // it looks at its index no more
	next := w.writes(keys.Registry())
	release()
	next() // it may be taken out a moment later
	w.SRem(ctx, keys.Devices("a"), id)
	w.is(id, "")
	require.Equal(w.t, "a", w.entry("other"))
}

func beatsWhileMemoryIsFull(w *world) {
	ctx, a := w.t.Context(), w.start("a")
	require.NoError(w.t, w.ConfigSet(ctx, "maxmemory", "1").Err())
	w.calm(a)
	require.NoError(w.t, w.ConfigSet(ctx, "maxmemory", "0").Err())
	a.registers("phone")
}

// An owner that registers too late must not take the entry of a socket that is newer by now.
func registersLateAndOverwritesNothing(w *world) {
	ctx := w.t.Context()
	p := proxy.New(w.t, w.server.Addr())
	a, b := w.start("a"), w.startAt(p.Addr(), "b")
	b.registers("other")
	mend := cut(p)
	b.do("register", "phone")
	late := time.NewTimer(1500 * time.Millisecond)
	<-late.C
	a.registers("phone")
	heard := w.Subscribe(ctx, keys.Heartbeat("a"))
	defer heard.Close()
	_, err := heard.Receive(ctx)
	require.NoError(w.t, err)
	mend()
	b.awaits(moved("phone", "a"))
	require.Equal(w.t, "a", w.entry("phone"))
	require.NoError(w.t, w.Publish(ctx, keys.Heartbeat("a"), "/all").Err())
	for said := ""; said != "/all"; {
		m, err := heard.ReceiveMessage(ctx)
		require.NoError(w.t, err)
		said = m.Payload
		require.True(w.t, strings.HasPrefix(said, "/"), "%q: the entry was taken", said)
	}
}

// A former life's entries are handed back, those that no index names as well.
func handsBackAFormerLife(w *world) {
	ctx := w.t.Context()
	w.HSet(ctx, keys.Registry(), "indexed", "a", "alone", "a", "other", "b")
	w.SAdd(ctx, keys.Devices("a"), "indexed")
	w.SAdd(ctx, keys.Contenders(), "a", "b")
	w.start("a")
	w.is("indexed", "")
	w.is("alone", "")
	require.Equal(w.t, "b", w.entry("other"))
	w.eventually("it contends no more", func() bool { return !w.SIsMember(ctx, keys.Contenders(), "a").Val() })
	require.True(w.t, w.SIsMember(ctx, keys.Contenders(), "b").Val())
}

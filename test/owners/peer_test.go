//go:build owners

package owners

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A peer is another owner, which the test plays message by message. It has neither heartbeat nor
// record: it is asked for ever, and nothing is decided because it is slow.
type peer struct {
	*world
	to   *owner
	said <-chan *redis.Message
	all  []said
}

// said is what the owner said about an id: its handshake, negative if the socket was to be pinged
// first, at its reading of the server's time; or that it heard.
type said struct {
	heard         bool
	at, handshake int64
	word          string
}

func (w *world) peerOf(o *owner) *peer {
	w.t.Helper()
	sub := w.Subscribe(w.t.Context(), w.channel("peer"))
	_, err := sub.Receive(w.t.Context())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = sub.Close() })
	return &peer{world: w, to: o, said: sub.Channel(redis.WithChannelSize(10_000))}
}

func (w *world) channel(id string) string { return keyless.Channel(w.Client, keys.Heartbeat(id)) }

// asks sends a question of a peer whose clock is wrong by some time.
func (p *peer) asks(wrong time.Duration, handshake int64, word string) {
	p.t.Helper()
	question := fmt.Sprintf("/peer %d %d %s", p.now().Add(wrong).UnixMilli(), handshake, word)
	require.NoError(p.t, p.Publish(p.t.Context(), p.channel(p.to.id), question).Err())
}

func (p *peer) read(m *redis.Message) {
	words := strings.Split(m.Payload, " ")
	if len(words) < 2 || words[0] != "/"+p.to.id {
		return
	}
	if words[1] == "heard" {
		for _, word := range words[2:] {
			p.all = append(p.all, said{heard: true, word: word})
		}
		return
	}
	at, err := strconv.ParseInt(words[1], 10, 64)
	require.NoError(p.t, err, m.Payload)
	for pair := range slices.Chunk(words[2:], 2) {
		require.Len(p.t, pair, 2, m.Payload)
		handshake, err := strconv.ParseInt(pair[0], 10, 64)
		require.NoError(p.t, err, m.Payload)
		p.all = append(p.all, said{at: at, handshake: handshake, word: pair[1]})
	}
}

// hears waits for something that the owner says from now on. Messages may be lost or slow, so do
// repeats what makes it say so.
func (p *peer) hears(what string, do func(), is func(said) bool) said {
	p.t.Helper()
	again := time.NewTicker(1100 * time.Millisecond) // it answers once a second
	defer again.Stop()
	for late := time.After(patience); ; {
		do()
		for waits := true; waits; {
			select {
			case m := <-p.said:
				n := len(p.all)
				p.read(m)
				if i := slices.IndexFunc(p.all[n:], is); i >= 0 {
					return p.all[n+i]
				}
			case <-again.C:
				waits = false
			case <-late:
				require.Fail(p.t, "it does not say so", "%s; it said %+v", what, p.all)
			}
		}
	}
}

func answers(word string) func(said) bool {
	return func(s said) bool { return s.word == word && !s.heard }
}

func heard(word string) func(said) bool {
	return func(s said) bool { return s.word == word && s.heard }
}

// handshake asks about an older socket of an id, and returns the handshake that the owner answers.
func (p *peer) handshake(word string) int64 {
	p.t.Helper()
	return p.hears("it answers about "+word, func() { p.asks(0, 1, word) }, answers(word)).handshake
}

// dealt waits until the owner has dealt with all that it was asked: it confirms that it does not
// hold an id.
func (p *peer) dealt() {
	p.t.Helper()
	nobody := fmt.Sprint("nobody-", len(p.all))
	p.hears("it confirms", func() { p.asks(0, 1, nobody) }, heard(nobody))
}

// loses has a newer socket win, and sees that the owner neither keeps nor takes back its claim.
func (p *peer) loses(id, word string, handshake int64) {
	p.t.Helper()
	p.all = nil
	asked := 0
	p.hears("it confirms", func() { asked++; p.asks(0, handshake, word) }, heard(word))
	p.to.awaits(moved(id, "peer"))
	p.is(id, "")
	confirmed := func(said) bool {
		n := 0
		for _, s := range p.all {
			if heard(word)(s) {
				n++
			}
		}
		return n > asked
	}
	if !confirmed(said{}) {
		p.hears("it confirms that the entry is out", func() {}, confirmed)
	}
	for range 2 {
		p.beats(p.to.id)
		require.Empty(p.t, p.entry(id))
	}
	require.Equal(p.t, 1, p.to.count(moved(id, "peer")))
}

// A handshake is when the socket was registered, whenever that lands, by the server's clock.
func stampsTheHandshake(w *world) {
	p := proxy.New(w.t, w.server.Addr())
	n := newName(w.t, p.Addr())
	n.ahead.Store(time.Hour.Milliseconds())
	a := w.startAt(n.Addr().String(), "a")
	a.registers("first")
	mend := cut(p)
	a.do("register", "phone")
	a.do("register", "phone")
	a.awaits(moved("phone", "a")) // it has dealt with both
	w.after(w.now().Add(apart))
	back := w.now().Add(time.Hour).UnixMilli()
	mend()
	a.awaits(event{Event: "landed", Key: "phone"})
	w.HSet(w.t.Context(), keys.Registry(), "phone", "peer")
	asked := w.peerOf(a).hears("it asks", func() { a.do("touch", "phone") }, answers("phone"))
	require.Less(w.t, asked.handshake, back, "it is not when the registration landed")
	ahead := asked.at - w.now().UnixMilli()
	require.InDelta(w.t, time.Hour.Milliseconds(), ahead, float64(patience.Milliseconds()),
		"it is the server's time")
	require.Greater(w.t, asked.handshake, back-patience.Milliseconds())
}

func judgesByTheHandshake(w *world) {
	a := w.start("a")
	p := w.peerOf(a)
	ids := []string{"older", "newer", "equal", "slow", "fast", "to ping"}
	for _, id := range ids {
		a.registers(id)
	}
	for range 2 {
		require.Positive(w.t, p.handshake("newer"), "it answers again and again")
	}
	p.loses("older", "older", p.handshake("older")+1)
	// Equal handshakes: the one that the entry names stays.
	equal := p.handshake("equal")
	p.hears("it answers", func() { p.asks(0, equal, "equal") }, answers("equal"))
	w.HSet(w.t.Context(), keys.Registry(), "equal", "peer")
	p.hears("it asks", func() { a.do("touch", "equal") }, answers("equal"))
	p.hears("it confirms", func() { p.asks(0, equal, "equal") }, heard("equal"))
	a.awaits(moved("equal", "peer"))
	p.dealt()
	require.Equal(w.t, "peer", w.entry("equal"), "it takes out its own entries alone")
	// Messages that were slow, or of another clock.
	now := w.now().Add(time.Hour).UnixMilli()
	p.asks(-5*time.Second, now, "slow")
	p.asks(5*time.Second, now, "fast")
	// A newer socket that is to be pinged first.
	p.hears("it answers", func() { p.asks(0, -now, "to%20ping") }, answers("to%20ping"))
	p.dealt()
	for _, id := range []string{"newer", "slow", "fast", "to ping"} {
		require.False(w.t, a.closed(id), id)
		require.Equal(w.t, "a", w.entry(id))
	}
}

// Owners whose clocks differ would talk for ever.
func answersOnceASecond(w *world) {
	a := w.start("a")
	p := w.peerOf(a)
	a.registers("phone")
	for range 30 {
		p.asks(0, 1, "phone")
	}
	p.dealt()
	p.handshake("phone")
	require.True(w.t, slices.ContainsFunc(p.all, heard("phone")), "it confirms the others")
	last := int64(0)
	for _, s := range p.all {
		if answers("phone")(s) {
			require.GreaterOrEqual(w.t, s.at-last, int64(900))
			last = s.at
		}
	}
}

// Of ids that it does not hold it gives back its own entries, and no others.
func handsBackWhatItIsAsked(w *world) {
	ctx, a := w.t.Context(), w.start("a")
	p := w.peerOf(a)
	w.HSet(ctx, keys.Registry(), "ghost", "a", "other", "b", "mine", "b")
	for _, id := range []string{"ghost", "other"} {
		p.hears("it confirms", func() { p.asks(0, 1, id) }, heard(id))
	}
	w.is("ghost", "")
	a.do("register", "mine")
	a.awaits(event{Event: "landed", Key: "mine"})
	w.HSet(ctx, keys.Registry(), "mine", "b")
	a.do("release", "mine")
	a.registers("barrier")
	p.dealt()
	w.beats("a")
	require.Equal(w.t, "b", w.entry("other"))
	require.Equal(w.t, "b", w.entry("mine"))
}

// The words of these ids have to be written and read as they are on the page.
func takesWordsLiterally(w *world) {
	a := w.start("a")
	p := w.peerOf(a)
	for _, id := range []string{"A", "a", "%41", "/x y", "x y", "100%", "ü|1", "a/b", "a\tb"} {
		a.registers(id)
	}
	now := w.now().Add(apart).UnixMilli()
	for _, c := range [][2]string{{"%41", "%2541"}, {"/x y", "%2Fx%20y"}, {"100%", "100%25"},
		{"a\tb", "a%09b"}, {"A", "A"}} {
		p.loses(c[0], c[1], now)
	}
	for _, id := range []string{"a", "x y", "ü|1", "a/b"} {
		require.False(w.t, a.closed(id), id)
	}
}

func pingsBeforeItAnswers(w *world) {
	a := w.start("a")
	p := w.peerOf(a)
	for id, ping := range map[string]string{"lives": "answers", "half-open": "fails", "asks": "answers"} {
		a.does(command{"register", id, ping})
		a.awaits(event{Event: "landed", Key: id})
	}
	require.Positive(w.t, p.handshake("lives"))
	w.HSet(w.t.Context(), keys.Registry(), "asks", "peer")
	asked := p.hears("it asks", func() { a.do("touch", "asks") }, answers("asks"))
	require.Negative(w.t, asked.handshake, "its socket can be pinged, and was not")
	p.hears("it confirms", func() { p.asks(0, 1, "half-open") }, heard("half-open"))
	a.awaits(event{Event: "closed", Key: "half-open"})
	w.is("half-open", "")
	require.False(w.t, a.closed("lives") || a.closed("asks"))
}

// Channels have no database.
func hearsItsOwnDatabase(w *world) {
	opt := w.server.Options()
	opt.DB = 2
	client := redis.NewClient(opt)
	w.t.Cleanup(func() { _ = client.Close() })
	second := &world{w.t, w.server, client, w.command}
	a := second.start("a")
	a.registers("phone")
	p := second.peerOf(a)
	wrong := fmt.Sprintf("/peer %d %d phone", w.now().UnixMilli(), w.now().Add(time.Hour).UnixMilli())
	require.NoError(w.t, w.Publish(w.t.Context(), keys.Heartbeat("a"), wrong).Err())
	p.handshake("phone")
	p.dealt()
	require.False(w.t, a.closed("phone"))
}

// The name of the primary leads to another server, and to a third one. The connection that listens
// stayed at the former one, which answers pings: a replica, then one that still takes writes.
func listensWhereOthersPublish(w *world) {
	ctx, next, third := w.t.Context(), redistest.Start(w.t), redistest.Start(w.t)
	n := newName(w.t, w.server.Addr())
	a := w.startAt(n.Addr().String(), "a")
	a.registers("phone")
	hears := func(server *redistest.Server) {
		at := &world{w.t, server, server.Client(), w.command}
		at.is("phone", "a")
		at.peerOf(a).handshake("phone")
	}
	n.lead(next.Addr())
	require.NoError(w.t, w.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	hears(next)
	n.lead(third.Addr())
	// All but those that listen.
	require.NoError(w.t, next.Client().ClientKillByFilter(ctx, "TYPE", "normal").Err())
	hears(third)
	require.NoError(w.t, third.Client().ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	hears(third)
}

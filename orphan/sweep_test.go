package orphan

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// The rules of a Colyseus backend, and a rule about keys of any type, without a value that is read.
const (
	reservations = `
- name: reservations
  keys: "P:queue:reservation:{user}"
  read: json
  bind: {room: .roomId}
  keep_if: [{field: {hash: "P:roomcaches", field: "{room}"}}, {channel: "$P:{room}"}]
  unless_lost: [{exists: "P:roomcaches"}, {channels: {pattern: "$P:*", when: {hash_not_empty: "P:roomcaches"}}}]
  min_age: {from_ttl: 1h, over: 2m}
  grace: 1m
`
	queue = `
- name: queue
  members: {zset: "P:queue:elo", as: user}
  min_age: {key: "P:queue:joinedAt:{user}", unit: ms, over: 10m, if_missing: first_seen}
  keep_if: [{exists: "P:queue:reservation:{user}"}]
  related: ["P:queue:joinedAt:{user}"]
`
	matches = `
- name: matches
  keys: "P:match:{match}"
  only: {match: objectid}
  gone_if: {mongo: {collection: matches, id: "{match}", all: [{field: status, in: [finished, abandoned]}, {field: endedAt, before: 1h}]}}
  related: ["P:match:{match}:ratings", "P:match:{match}:submissions", "P:match:{match}:user:*"]
`
	bots = `
- name: bots
  keys: "P:bots:state:{bot}"
  keep_if: [{member: {set: "P:bots:deployed", of: "{bot}"}}, {member: {set: "P:bots:active", of: "{bot}"}}]
  unless_lost: [{exists_any: ["P:bots:deployed", "P:bots:active"], or_for: 30m}]
  grace: 1m
  bin: 24h
`
	session = `
- name: sessions
  keys: "P:session:{user}"
  keep_if: [{exists: "P:user:{user}"}]
  grace: 1m
`
	// one that is held while its set is missing
	states = `
- name: states
  keys: "P:state:{bot}"
  keep_if: [{member: {set: "P:bots", of: "{bot}"}}]
  unless_lost: [{exists: "P:bots"}]
  grace: 1m
`
)

func TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays(t *testing.T) {
	onReal(t, reservations, func(r *rig) {
		// The channel of a room that is alive, though not listed.
		sub := r.rdb.Subscribe(r.Context(), "$"+r.p+"delisted")
		defer sub.Close()
		_, err := sub.Receive(r.Context())
		require.NoError(r, err)
		r.run(`HSET P:roomcaches listed {}
			SET P:queue:reservation:listed {"roomId":"listed","roomName":"duel"} EX 3000
			SET P:queue:reservation:delisted {"roomId":"delisted"} EX 3000
			SET P:queue:reservation:gone {"roomId":"gone"} EX 3000
			SET P:queue:reservation:young {"roomId":"gone"} EX 3540
			SET P:queue:reservation:creating {"status":"creating"} EX 60
			SET P:queue:reservation:eternal {"roomId":"gone"}
			SET P:queue:reservation:broken {"roomId":`)
		first := r.sweep("reservations")
		require.Equal(r, []int{7, 1}, []int{first.Scanned, first.Condemned})
		require.Equal(r, "2 alive, 3 unreadable, 2 young", told(first))
		r.pass("reservations", 2*time.Minute)
		r.swept("reservations", "2 alive, 1 removed, 3 unreadable, 1 young")
		r.gone("P:queue:reservation:gone")
		require.Equal(r, map[string]uint64{"reservations": 1}, r.set.Stats().Rules)
		require.Len(r, r.rdb.Keys(r.Context(), r.p+"queue:reservation:*").Val(), 6)
		require.Zero(r, r.rdb.HLen(r.Context(), marksKey(r.layout, "reservations")).Val())
	})
}

func TestAUserWhoWaitsForLongWithoutAReservationGoesWhateverTheRating(t *testing.T) {
	both(t, queue, func(r *rig) {
		// high has a rating that looks like now; seconds has its time in another unit; left and leaving
		// are related keys without their member.
		r.run(`ZADD P:queue:elo 1 low @ms-0s high 1500 new 1500 matched 1500 undated 1500 seconds
			SET P:queue:joinedAt:low @ms-11m
			SET P:queue:joinedAt:high @ms-11m
			SET P:queue:joinedAt:new @ms-9m
			SET P:queue:joinedAt:matched @ms-1h
			SET P:queue:reservation:matched {}
			SET P:queue:joinedAt:seconds @s-0s
			SET P:queue:joinedAt:left @ms-1h
			SET P:queue:joinedAt:leaving @ms-1m`)
		r.swept("queue", "1 alive, 1 unreadable, 3 waiting, 1 young")
		r.pass("queue", time.Minute)
		require.Equal(r, 2, r.sweep("queue").Removed)
		r.pass("queue-joinedat", time.Minute)
		r.sweep("")
		r.ripen("queue-joinedat", time.Minute)
		r.sweep("")
		r.there(`P:queue:elo/new P:queue:elo/matched P:queue:elo/undated P:queue:elo/seconds
			P:queue:joinedAt:new P:queue:joinedAt:leaving P:queue:joinedAt:seconds`)
		r.gone("P:queue:elo/low P:queue:elo/high P:queue:joinedAt:low P:queue:joinedAt:left")

		// Its age counts from the first look.
		r.pass("queue", 8*time.Minute)
		require.Zero(r, r.sweep("queue").Removed)
		r.pass("queue", time.Minute)
		require.Equal(r, 1, r.sweep("queue").Removed)
		require.Equal(r, uint64(6), r.set.Stats().Keys)
	})
}

// An empty sorted set is none: nobody can say whether the queue was lost.
func TestARelatedKeyStaysWhileThePlaceThatItIsMissingFromIsMissingToo(t *testing.T) {
	both(t, queue, func(r *rig) {
		r.run("SET P:queue:joinedAt:left @ms-1h")
		r.swept("queue-joinedat", "1 unknown")
		r.run(`ZADD P:queue:elo 1 other
			SET P:queue:joinedAt:other @ms-0s`)
		r.swept("queue-joinedat", "1 alive, 1 waiting")
		r.pass("queue-joinedat", time.Minute)
		r.run("DEL P:queue:elo")
		require.Zero(r, r.sweep("queue-joinedat").Removed)
		r.there("P:queue:joinedAt:left")
	})
}

func matchID(n int) string { return fmt.Sprintf("%024x", n) }

func TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished(t *testing.T) {
	onReal(t, matches, func(r *rig) {
		ended := func(status string, ago time.Duration) Document {
			return Document{"status": status, "endedAt": time.Now().Add(-ago)}
		}
		source := r.source
		source.all = map[string]Document{
			matchID(1): ended("finished", 2*time.Hour),
			matchID(2): ended("finished", 59*time.Minute),
			matchID(3): ended("ongoing", 2*time.Hour),
			matchID(5): {"status": "finished"},
			matchID(6): {"status": int64(7), "endedAt": "yesterday"},
			matchID(7): ended("abandoned", 61*time.Minute),
		}
		for i := range 8 {
			r.run(strings.ReplaceAll(`SET P:match:ID {} EX 3600
				SET P:match:ID:ratings {}
				SET P:match:ID:user:a 1
				SET P:match:ID:user:b 1`, "ID", matchID(i)))
		}
		r.run("DEL P:match:" + matchID(7)) // only what belongs to it is left
		r.run("SET P:match:somebody else's")
		r.swept("matches", "3 alive, 1 foreign, 1 removed, 3 unknown")
		r.sweep("matches") // what belongs to it goes without it
		for i := range 8 {
			r.are(i != 1 && i != 7, strings.ReplaceAll("P:match:ID:ratings P:match:ID:user:a P:match:ID:user:b", "ID", matchID(i)))
		}
		r.there("P:match:somebody")

		source.err = errTest
		source.all[matchID(2)] = ended("finished", 2*time.Hour)
		r.swept("matches", "held source:")
		source.err = nil
		kept := source.all
		source.all = nil
		r.swept("matches", "held reference_lost:")
		source.all = kept
		require.Equal(r, 1, r.sweep("matches").Removed)
		require.Equal(r, uint64(2), r.set.Stats().Categories["matches"])
	})
}

func TestWhatIsInABinCanBePutBack(t *testing.T) {
	onReal(t, bots+queue+"  bin: 1h\n", func(r *rig) {
		ctx := r.Context()
		r.run(`SADD P:bots:deployed living
			SET P:bots:state:living idle
			SET P:bots:state:crashed playing PX 3600000
			SET P:bots:state:lasting playing
			ZADD P:queue:elo 1234.5 user
			SET P:queue:joinedAt:user @ms-1h`)
		r.ripen("", time.Minute)
		require.Equal(r, 2, r.sweep("bots").Removed)
		r.run("ZADD P:queue:elo 1 another") // the queue lives
		r.pass("queue-joinedat", time.Minute)
		r.rounds(2, time.Minute)
		r.run("ZREM P:queue:elo another")
		r.gone("P:bots:state:crashed P:queue:elo")

		bins := Bins{Client: r.rdb, Layout: r.layout}
		binned, err := bins.List(ctx, "")
		require.NoError(r, err)
		require.Len(r, binned, 4)
		var ids []string
		for _, b := range binned {
			ids = append(ids, b.ID)
		}
		r.run("SET P:bots:state:lasting anew")
		// Where it is lost which rules there are, an id is enough all the same.
		r.do("RENAME", passesKey(r.layout), r.p+"lost")
		back, err := bins.Restore(ctx, append(ids, ids[0], "bots/nothing")...)
		require.NoError(r, err)
		r.do("RENAME", r.p+"lost", passesKey(r.layout))
		fates := map[string]Fate{}
		for i, b := range back[:4] {
			require.Equal(r, ids[i], b.ID)
			require.WithinDuration(r, time.Now(), b.Pass, time.Minute)
			fates[strings.TrimPrefix(b.Key, r.p)] = b.Fate
		}
		require.Equal(r, map[string]Fate{
			"bots:state:crashed": Back, "bots:state:lasting": InUse, "queue:elo": Back, "queue:joinedAt:user": Back,
		}, fates)
		require.NotEqual(r, Back, back[4].Fate, "asked for twice")
		require.Equal(r, NotThere, back[5].Fate)
		require.Equal(r, "anew", r.rdb.Get(ctx, r.p+"bots:state:lasting").Val())
		require.Equal(r, "playing", r.rdb.Get(ctx, r.p+"bots:state:crashed").Val())
		require.Greater(r, time.Hour, r.rdb.PTTL(ctx, r.p+"bots:state:crashed").Val())
		require.Equal(r, time.Duration(-1), r.rdb.TTL(ctx, r.p+"queue:joinedAt:user").Val())
		require.Equal(r, 1234.5, r.rdb.ZScore(ctx, r.p+"queue:elo", "user").Val())
		binned, err = bins.List(ctx, "bots")
		require.NoError(r, err)
		require.Len(r, binned, 1)

		// The bin's time is over; then it has lost something.
		left, entry := strings.TrimPrefix(binned[0].ID, "bots/"), ""
		entry = r.rdb.HGet(ctx, binnedKey(r.layout, "bots"), left).Val()
		r.run("DEL P:bots:state:lasting")
		e := struct{ Aside string }{}
		require.NoError(r, json.Unmarshal([]byte(entry), &e))
		over := regexp.MustCompile(`"until":[0-9]+`).ReplaceAllString(entry, `"until":1`)
		r.do("HSET", binnedKey(r.layout, "bots"), left, over)
		r.do("DEL", e.Aside)
		listed, err := bins.List(ctx, "bots")
		require.NoError(r, err)
		require.Empty(r, listed)
		back, err = bins.Restore(ctx, binned[0].ID)
		require.NoError(r, err)
		require.Equal(r, Dropped, back[0].Fate)
		require.Contains(r, back[0].Sentence, "its time was over at 1970-01-01")

		passes, err := ReadPasses(ctx, r.rdb, r.layout)
		require.NoError(r, err)
		require.Equal(r, janitor.Done, passes["bots"].Outcome)
	})
}

func TestWhatWasRestoredIsToldAlsoIfItsEntryStaysInTheBin(t *testing.T) {
	onReal(t, bots, func(r *rig) {
		ctx := r.Context()
		r.run(`SADD P:bots:deployed living
			SET P:bots:state:a idle
			SET P:bots:state:b idle
			SET P:bots:state:c idle`)
		r.ripen("bots", time.Minute)
		require.Equal(r, 3, r.sweep("bots").Removed)

		bins := Bins{Client: r.data, Layout: r.layout}
		binned, err := bins.List(ctx, "")
		require.NoError(r, err)
		require.Len(r, binned, 3)
		r.on("evalsha orphan:drops:", &hook{refuse: true})
		back, err := bins.Restore(ctx, binned[0].ID, binned[1].ID)
		require.ErrorContains(r, err, "the entry of "+binned[0].ID+" stays in its bin: refused by a test")
		require.Equal(r, []Fate{Back, Back}, []Fate{back[0].Fate, back[1].Fate})
		r.on("evalsha orphan:bin:", &hook{lose: true})
		_, err = bins.Restore(ctx, binned[2].ID)
		require.ErrorIs(r, err, io.ErrUnexpectedEOF)
		r.there("P:bots:state:a P:bots:state:b P:bots:state:c")

		// Asked for again they are not there any more, which is no loss, and the entries go.
		back, err = bins.Restore(ctx, binned[0].ID, binned[2].ID)
		require.NoError(r, err)
		require.Equal(r, []Fate{NotThere, NotThere}, []Fate{back[0].Fate, back[1].Fate})
		require.Contains(r, back[1].Sentence, "an earlier restore")
		binned, err = bins.List(ctx, "")
		require.NoError(r, err)
		require.Empty(r, binned)
	})
}

func TestALostReferenceHoldsTheRule(t *testing.T) {
	onReal(t, bots+reservations, func(r *rig) {
		held := func(rule, detail string) {
			r.Helper()
			r.swept(rule, "held reference_lost:")
			require.Contains(r, r.result(rule).Detail, detail)
		}
		r.run(`SET P:bots:state:a idle
			SET P:queue:reservation:a {"roomId":"gone"} EX 1800`)
		held("bots", "none of")
		held("reservations", "does not exist")

		// The hash names rooms, and no process holds a channel.
		r.run("HSET P:roomcaches room {}")
		held("reservations", "no channel")
		// Both sets are gone for longer than the rule wants: then there are no bots.
		state, gone := stateKey(r.layout, "bots"), goneSince(r.set.rules[0].UnlessLost[0].ExistsAny)
		r.do("HINCRBY", state, gone, -(30 * time.Minute).Milliseconds())
		require.Equal(r, 1, r.sweep("bots").Condemned)
		was := r.set.rules[0].Rule
		other := was
		other.UnlessLost = []rules.Reference{{ExistsAny: []string{r.p + "other"}, OrFor: 30 * time.Minute}}
		r.become(other)
		held("bots", "none of")
		r.become(was)
		// A hold of the witness in between: nobody has seen that they were gone all the time.
		r.listened(time.Minute)
		held("bots", "none of")
		r.run("SADD P:bots:active b")
		require.Equal(r, 1, r.sweep("bots").Condemned)
		require.False(r, r.rdb.HExists(r.Context(), state, gone).Val())
		r.there("P:bots:state:a")
	})
}

// It is unlinked, and expires only long after that: Redis would free it on its main thread.
func TestWhatIsInABinIsDroppedWhenItsTimeIsOver(t *testing.T) {
	onReal(t, session+"  bin: 1h\n", func(r *rig) {
		ctx := r.Context()
		const n = 130 // more than one step drops
		for i := range n {
			r.do("SET", fmt.Sprint(r.p, "session:", i), "old", "PX", 3600_000)
		}
		r.sweep("sessions")
		r.do("HDEL", stateKey(r.layout, "sessions"), "held_until")
		r.pass("sessions", time.Minute)
		r.swept("sessions", "130 removed")
		var aside []string
		for _, text := range r.rdb.HGetAll(ctx, binnedKey(r.layout, "sessions")).Val() {
			e := binned{}
			require.NoError(r, json.Unmarshal([]byte(text), &e))
			require.Greater(r, r.rdb.PTTL(ctx, e.Aside).Val(), awayFor)
			aside = append(aside, e.Aside)
		}
		require.Len(r, aside, n)

		bins := Bins{Client: r.data, Layout: r.layout}
		listed, err := bins.List(ctx, "sessions")
		require.NoError(r, err)
		back, err := bins.Restore(ctx, listed[0].ID)
		require.NoError(r, err)
		require.Equal(r, Back, back[0].Fate)
		left := r.rdb.PTTL(ctx, listed[0].Key).Val()
		require.True(r, left > 0 && left <= time.Hour, "with its expiry")

		for _, id := range r.rdb.HKeys(ctx, binnedKey(r.layout, "sessions")).Val() {
			r.do("ZADD", dropsKey(r.layout, "sessions"), 1, id)
		}
		r.sweep("sessions")
		require.Zero(r, r.rdb.Exists(ctx, aside...).Val())
		require.False(r, r.exists(binnedKey(r.layout, "sessions")) || r.exists(dropsKey(r.layout, "sessions")))
	})
}

// An entry that cannot be read stops neither the rule nor what the bin has besides.
func TestABinIsDroppedAroundAnEntryThatCannotBeRead(t *testing.T) {
	onReal(t, session+"  bin: 1h\n", func(r *rig) {
		ctx, bin, drops := r.Context(), binnedKey(r.layout, "sessions"), dropsKey(r.layout, "sessions")
		for i := range dropOf + 20 { // more than one step reads
			id := fmt.Sprintf("a%03d", i)
			r.do("HSET", bin, id, "{")
			r.do("ZADD", drops, 1, id)
		}
		aside := "orphan:bin:" + r.p
		for _, id := range []string{"z1", "later"} {
			r.do("SET", aside+id, "1")
			r.do("HSET", bin, id, fmt.Sprintf(`{"id":%q,"key":%q,"aside":%q,"expires":-1,"until":%s}`,
				id, r.p+id, aside+id, ms(time.Now().Add(time.Hour))))
		}
		r.do("ZADD", drops, 2, "z1", ms(time.Now().Add(time.Hour)), "later")
		require.Equal(r, janitor.Done, r.sweep("sessions").Outcome)
		require.False(r, r.exists(aside+"z1"))
		require.Equal(r, int64(dropOf+20+1), r.rdb.HLen(ctx, bin).Val(), "and nothing is lost silently")

		bins := Bins{Client: r.data, Layout: r.layout}
		listed, err := bins.List(ctx, "sessions")
		require.ErrorContains(r, err, bin)
		require.Len(r, listed, 1)
		back, err := bins.Restore(ctx, listed[0].ID, "sessions/not-there")
		require.NoError(r, err)
		require.Equal(r, Back, back[0].Fate)
		r.there("P:later")
	})
}

// A user may not do all that a delete takes: nothing is done by half.
func TestWhatMayNotBeDoneIsNotDoneByHalf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rule, state, without, left string }{
		"a key":    {session, "SET session:a 1", "-rename", "session:a"},
		"a member": {`- {name: sessions, members: {set: all, as: user}, keep_if: [{exists: "user:{user}"}]}`, "SADD all a", "-srem", "all/a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := redistest.World{Prefix: "{cleanup}:", Options: redistest.Start(t).Options()}
			r := newRig(t, w, c.rule, config{plain: true})
			r.run(c.state)
			r.ripen("sessions", time.Minute)
			r.do("ACL", "SETUSER", "default", c.without)
			result := r.sweep("sessions")
			require.Equal(t, janitor.Failed, result.Outcome, result)
			require.Contains(t, result.Detail, "nothing deleted")
			r.there(c.left)
			require.Empty(t, r.rdb.Keys(t.Context(), "orphan:bin:*").Val())
		})
	}
}

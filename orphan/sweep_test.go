package orphan

import (
	"encoding/json"
	"errors"
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

// The rules of a Colyseus backend, with a prefix for the test.
func reservations(p string) rules.Rule {
	return rules.Rule{
		Name: "reservations", Delete: true,
		Keys: p + "queue:reservation:{user}", Read: "json", Bind: map[string]string{"room": ".roomId"},
		KeepIf: []rules.Sign{
			{Field: &rules.Field{Hash: p + "roomcaches", Field: "{room}"}},
			{Channel: "$" + p + "{room}"},
		},
		UnlessLost: []rules.Reference{
			{Exists: p + "roomcaches"},
			{Channels: &rules.Channels{Pattern: "$" + p + "*", When: rules.When{HashNotEmpty: p + "roomcaches"}}},
		},
		MinAge: &rules.Age{FromTTL: time.Hour, Over: 2 * time.Minute},
		Grace:  time.Minute,
	}
}

func TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, reservations(p))
		ctx := t.Context()
		// The channel of a room that is alive, though not listed.
		sub := r.rdb.Subscribe(ctx, "$"+p+"delisted")
		defer sub.Close()
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		reserve := func(user, room string, left time.Duration) {
			r.do("SET", p+"queue:reservation:"+user, `{"roomId":"`+room+`","roomName":"duel"}`, "PX", left.Milliseconds())
		}
		r.do("HSET", p+"roomcaches", "listed", "{}")
		reserve("listed", "listed", 50*time.Minute)
		reserve("delisted", "delisted", 50*time.Minute)
		reserve("gone", "gone", 50*time.Minute)
		reserve("young", "gone", 59*time.Minute)
		r.do("SET", p+"queue:reservation:creating", `{"status":"creating"}`, "EX", 60)
		r.do("SET", p+"queue:reservation:eternal", `{"roomId":"gone"}`)
		r.do("SET", p+"queue:reservation:broken", `{"roomId":`)

		first := r.sweep("reservations")
		require.Equal(t, janitor.Done, first.Outcome, first.Detail)
		require.Equal(t, 7, first.Scanned)
		require.Equal(t, 1, first.Condemned)
		require.Zero(t, first.Removed)
		require.Equal(t, map[string]int{alive: 2, young: 2, unreadable: 3}, first.Kept)

		r.pass("reservations", 2*time.Minute)
		second := r.sweep("reservations")
		require.Equal(t, janitor.Done, second.Outcome, second.Detail)
		require.Equal(t, 1, second.Removed)
		require.False(t, r.exists(p+"queue:reservation:gone"))
		require.Equal(t, map[string]uint64{"reservations": 1}, r.set.Stats().Rules)
		keys, err := r.rdb.Keys(ctx, p+"queue:reservation:*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 6)
		require.Zero(t, r.rdb.HLen(ctx, marksKey(r.layout, "reservations")).Val())
	})
}

func queue(p string) rules.Rule {
	return rules.Rule{
		Name: "queue", Delete: true,
		Members: &rules.Members{ZSet: p + "queue:elo", As: "user"},
		MinAge:  &rules.Age{Key: p + "queue:joinedAt:{user}", Unit: "ms", Over: 10 * time.Minute, IfMissing: "first_seen"},
		KeepIf:  []rules.Sign{{Exists: p + "queue:reservation:{user}"}},
		Related: []string{p + "queue:joinedAt:{user}"},
	}
}

func TestAUserWhoWaitsForLongWithoutAReservationGoesWhateverTheRating(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, queue(p))
		join := func(user string, rating any, ago time.Duration) {
			r.do("ZADD", p+"queue:elo", rating, user)
			if ago > 0 {
				r.do("SET", p+"queue:joinedAt:"+user, ms(time.Now().Add(-ago)))
			}
		}
		join("low", 1, 11*time.Minute)
		join("high", time.Now().UnixMilli(), 11*time.Minute) // a rating that looks like now
		join("new", 1500, 9*time.Minute)
		join("matched", 1500, time.Hour)
		r.do("SET", p+"queue:reservation:matched", "{}")
		join("undated", 1500, 0)
		join("seconds", 1500, 0)
		r.do("SET", p+"queue:joinedAt:seconds", time.Now().Unix()) // in another unit: no time
		// A related key without its member.
		r.do("SET", p+"queue:joinedAt:left", ms(time.Now().Add(-time.Hour)))
		r.do("SET", p+"queue:joinedAt:leaving", ms(time.Now().Add(-time.Minute)))

		first := r.sweep("queue")
		require.Equal(t, 3, first.Condemned, first)
		require.Equal(t, map[string]int{alive: 1, young: 1, unreadable: 1, waiting: 3}, first.Kept)
		r.pass("queue", time.Minute)
		second := r.sweep("queue")
		require.Equal(t, 2, second.Removed, second)
		r.pass("queue-joinedat", time.Minute)
		r.sweep("")
		r.pass("queue-joinedat", time.Minute)
		r.sweep("")
		members, err := r.rdb.ZRange(t.Context(), p+"queue:elo", 0, -1).Result()
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"new", "matched", "undated", "seconds"}, members)
		require.False(t, r.exists(p+"queue:joinedAt:low") || r.exists(p+"queue:joinedAt:left"))
		require.True(t, r.exists(p+"queue:joinedAt:new", p+"queue:joinedAt:leaving", p+"queue:joinedAt:seconds"))

		// Its age counts from the first look.
		r.pass("queue", 8*time.Minute)
		require.Zero(t, r.sweep("queue").Removed)
		r.pass("queue", time.Minute)
		require.Equal(t, 1, r.sweep("queue").Removed)
		require.Equal(t, uint64(6), r.set.Stats().Keys)
	})
}

// An empty sorted set is none: nobody can say whether the queue was lost.
func TestARelatedKeyStaysWhileThePlaceThatItIsMissingFromIsMissingToo(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, queue(p))
		r.do("SET", p+"queue:joinedAt:left", ms(time.Now().Add(-time.Hour)))
		require.Equal(t, map[string]int{unknown: 1}, r.sweep("queue-joinedat").Kept)
		r.do("ZADD", p+"queue:elo", "1", "other")
		r.do("SET", p+"queue:joinedAt:other", ms(time.Now()))
		require.Equal(t, map[string]int{waiting: 1, alive: 1}, r.sweep("queue-joinedat").Kept)
		r.pass("queue-joinedat", time.Minute)
		r.do("DEL", p+"queue:elo")
		require.Zero(t, r.sweep("queue-joinedat").Removed)
		require.True(t, r.exists(p+"queue:joinedAt:left"))
	})
}

func matches(p string) rules.Rule {
	return rules.Rule{
		Name: "matches", Delete: true,
		Keys: p + "match:{match}", Only: map[string]string{"match": "objectid"},
		GoneIf: &rules.Evidence{Mongo: &rules.Mongo{Collection: "matches", ID: "{match}", All: []rules.Condition{
			{Field: "status", In: []string{"finished", "abandoned"}}, {Field: "endedAt", Before: time.Hour},
		}}},
		Related: []string{p + "match:{match}:ratings", p + "match:{match}:submissions", p + "match:{match}:user:*"},
	}
}

func matchID(n int) string { return fmt.Sprintf("%024x", n) }

func TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		ended := func(status string, ago time.Duration) Document {
			return Document{"status": status, "endedAt": time.Now().Add(-ago)}
		}
		source := &documents{all: map[string]Document{
			matchID(1): ended("finished", 2*time.Hour),
			matchID(2): ended("finished", 59*time.Minute),
			matchID(3): ended("ongoing", 2*time.Hour),
			matchID(5): {"status": "finished"},
			matchID(6): {"status": int64(7), "endedAt": "yesterday"},
			matchID(7): ended("abandoned", 61*time.Minute),
		}}
		r := newRig(t, w.Options, p, source, matches(p))
		for i := range 8 {
			r.do("SET", p+"match:"+matchID(i), "{}", "EX", 3600)
			r.do("SET", p+"match:"+matchID(i)+":ratings", "{}")
			r.do("SET", p+"match:"+matchID(i)+":user:a", "1")
			r.do("SET", p+"match:"+matchID(i)+":user:b", "1")
		}
		r.do("DEL", p+"match:"+matchID(7)) // only what belongs to it is left
		r.do("SET", p+"match:somebody", "else's")

		result := r.sweep("matches")
		require.Equal(t, janitor.Done, result.Outcome, result.Detail)
		require.Equal(t, 1, result.Removed, result)
		r.sweep("matches") // what belongs to it goes without it
		for i := range 8 {
			gone := i == 1 || i == 7
			require.Equal(t, !gone, r.exists(p+"match:"+matchID(i)+":ratings"), i)
			require.Equal(t, !gone, r.exists(p+"match:"+matchID(i)+":user:a", p+"match:"+matchID(i)+":user:b"), i)
		}
		require.True(t, r.exists(p+"match:somebody"))
		require.Equal(t, 1, result.Kept[foreign])

		source.err = errors.New("no primary")
		source.all[matchID(2)] = ended("finished", 2*time.Hour)
		result = r.sweep("matches")
		require.Equal(t, []any{janitor.Held, "source"}, []any{result.Outcome, result.Reason})
		source.err = nil
		kept := source.all
		source.all = nil
		result = r.sweep("matches")
		require.Equal(t, []any{janitor.Held, "reference_lost"}, []any{result.Outcome, result.Reason})
		source.all = kept
		require.Equal(t, 1, r.sweep("matches").Removed)
		require.Equal(t, uint64(3), r.set.Stats().Categories["matches"]+1)
	})
}

func bots(p string) rules.Rule {
	return rules.Rule{
		Name: "bots", Delete: true, Keys: p + "bots:state:{bot}",
		KeepIf: []rules.Sign{
			{Member: &rules.Member{Set: p + "bots:deployed", Of: "{bot}"}}, {Member: &rules.Member{Set: p + "bots:active", Of: "{bot}"}},
		},
		UnlessLost: []rules.Reference{{ExistsAny: []string{p + "bots:deployed", p + "bots:active"}, OrFor: 30 * time.Minute}},
		Grace:      time.Minute, Bin: 24 * time.Hour,
	}
}

func TestWhatIsInABinCanBePutBack(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p, ctx := w.Prefix, t.Context()
		rule := queue(p)
		rule.Bin = time.Hour
		r := newRig(t, w.Options, p, nil, bots(p), rule)
		r.do("SADD", p+"bots:deployed", "living")
		r.do("SET", p+"bots:state:living", "idle")
		r.do("SET", p+"bots:state:crashed", "playing", "PX", 3600_000)
		r.do("SET", p+"bots:state:lasting", "playing")
		r.do("ZADD", p+"queue:elo", 1234.5, "user")
		r.do("SET", p+"queue:joinedAt:user", ms(time.Now().Add(-time.Hour)))
		r.sweep("bots")
		r.pass("bots", time.Minute)
		r.pass("queue", time.Minute)
		require.Equal(t, 2, r.sweep("bots").Removed)
		r.do("ZADD", p+"queue:elo", 1, "another") // the queue lives
		r.pass("queue-joinedat", time.Minute)
		r.rounds(1, time.Minute)
		r.do("ZREM", p+"queue:elo", "another")
		require.False(t, r.exists(p+"bots:state:crashed") || r.exists(p+"queue:elo"))

		bins := Bins{Client: r.rdb, Layout: r.layout}
		binned, err := bins.List(ctx, "")
		require.NoError(t, err)
		require.Len(t, binned, 4)
		var ids []string
		for _, b := range binned {
			ids = append(ids, b.ID)
		}
		r.do("SET", p+"bots:state:lasting", "anew")
		// Where it is lost which rules there are, an id is enough all the same.
		r.do("RENAME", passesKey(r.layout), p+"lost")
		back, err := bins.Restore(ctx, append(ids, ids[0], "bots/nothing")...)
		require.NoError(t, err)
		r.do("RENAME", p+"lost", passesKey(r.layout))
		fates := map[string]Fate{}
		for i, b := range back[:4] {
			require.Equal(t, ids[i], b.ID)
			require.WithinDuration(t, time.Now(), b.Pass, time.Minute)
			fates[strings.TrimPrefix(b.Key, p)] = b.Fate
		}
		require.Equal(t, map[string]Fate{
			"bots:state:crashed": Back, "bots:state:lasting": InUse, "queue:elo": Back,
			"queue:joinedAt:user": Back,
		}, fates)
		require.Equal(t, []Fate{NotThere, NotThere}, []Fate{back[4].Fate, back[5].Fate},
			"asked for twice, and never there")
		require.Equal(t, "anew", r.rdb.Get(ctx, p+"bots:state:lasting").Val())
		require.Equal(t, "playing", r.rdb.Get(ctx, p+"bots:state:crashed").Val())
		require.Greater(t, time.Hour, r.rdb.PTTL(ctx, p+"bots:state:crashed").Val())
		require.Equal(t, time.Duration(-1), r.rdb.TTL(ctx, p+"queue:joinedAt:user").Val())
		require.Equal(t, 1234.5, r.rdb.ZScore(ctx, p+"queue:elo", "user").Val())
		binned, err = bins.List(ctx, "bots")
		require.NoError(t, err)
		require.Len(t, binned, 1)

		// The bin's time is over; then it has lost something.
		left, entry := strings.TrimPrefix(binned[0].ID, "bots/"), ""
		entry = r.rdb.HGet(ctx, binnedKey(r.layout, "bots"), left).Val()
		r.do("DEL", p+"bots:state:lasting")
		e := struct{ Aside string }{}
		require.NoError(t, json.Unmarshal([]byte(entry), &e))
		over := regexp.MustCompile(`"until":[0-9]+`).ReplaceAllString(entry, `"until":1`)
		r.do("HSET", binnedKey(r.layout, "bots"), left, over)
		r.do("DEL", e.Aside)
		listed, err := bins.List(ctx, "bots")
		require.NoError(t, err)
		require.Empty(t, listed)
		back, err = bins.Restore(ctx, binned[0].ID)
		require.NoError(t, err)
		require.Equal(t, Dropped, back[0].Fate)
		require.Contains(t, back[0].Sentence, "its time was over at 1970-01-01")

		passes, err := ReadPasses(ctx, r.rdb, r.layout)
		require.NoError(t, err)
		require.Equal(t, janitor.Done, passes["bots"].Outcome)
	})
}

func TestWhatWasRestoredIsToldAlsoIfItsEntryStaysInTheBin(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p, ctx := w.Prefix, t.Context()
		rule := bots(p)
		rule.Bin = time.Hour
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SADD", p+"bots:deployed", "living")
		r.do("SET", p+"bots:state:a", "idle")
		r.do("SET", p+"bots:state:b", "idle")
		r.do("SET", p+"bots:state:c", "idle")
		r.sweep("bots")
		r.pass("bots", time.Minute)
		require.Equal(t, 3, r.sweep("bots").Removed)

		bins := Bins{Client: r.set.c.Client, Layout: r.layout}
		binned, err := bins.List(ctx, "")
		require.NoError(t, err)
		require.Len(t, binned, 3)
		r.set.c.Client.AddHook(&refusing{command: "evalsha", with: "orphan:drops:", times: 1})
		back, err := bins.Restore(ctx, binned[0].ID, binned[1].ID)
		require.ErrorContains(t, err, "the entry of "+binned[0].ID+" stays in its bin: refused by a test")
		require.Len(t, back, 2)
		require.Equal(t, []Fate{Back, Back}, []Fate{back[0].Fate, back[1].Fate})
		r.set.c.Client.AddHook(&deaf{before{command: "evalsha", with: "orphan:bin:", f: func() {}}, func() {}})
		_, err = bins.Restore(ctx, binned[2].ID)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.True(t, r.exists(p+"bots:state:a", p+"bots:state:b", p+"bots:state:c"))

		// Asked for again they are not there any more, which is no loss, and the entries go.
		back, err = bins.Restore(ctx, binned[0].ID, binned[2].ID)
		require.NoError(t, err)
		require.Equal(t, []Fate{NotThere, NotThere}, []Fate{back[0].Fate, back[1].Fate})
		require.Contains(t, back[1].Sentence, "an earlier restore")
		binned, err = bins.List(ctx, "")
		require.NoError(t, err)
		require.Empty(t, binned)
	})
}

func TestALostReferenceHoldsTheRule(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p, ctx := w.Prefix, t.Context()
		r := newRig(t, w.Options, p, nil, bots(p), reservations(p))
		held := func(rule, detail string) {
			t.Helper()
			result := r.sweep(rule)
			require.Equal(t, []any{janitor.Held, "reference_lost"}, []any{result.Outcome, result.Reason}, result)
			require.Contains(t, result.Detail, detail)
		}
		r.do("SET", p+"bots:state:a", "idle")
		r.do("SET", p+"queue:reservation:a", `{"roomId":"gone"}`, "EX", 1800)
		held("bots", "none of")
		held("reservations", "does not exist")

		// The hash names rooms, and no process holds a channel.
		r.do("HSET", p+"roomcaches", "room", "{}")
		held("reservations", "no channel")
		// Both sets are gone for longer than the rule wants: then there are no bots.
		state, gone := stateKey(r.layout, "bots"), goneSince(bots(p).UnlessLost[0].ExistsAny)
		since, err := r.rdb.HGet(ctx, state, gone).Int64()
		require.NoError(t, err)
		r.do("HSET", state, gone, since-(30*time.Minute).Milliseconds())
		require.Equal(t, 1, r.sweep("bots").Condemned)
		// A hold of the witness in between: nobody has seen that they were gone all the time.
		r.listened(time.Minute)
		held("bots", "none of")
		r.do("SADD", p+"bots:active", "b")
		require.Equal(t, 1, r.sweep("bots").Condemned)
		require.False(t, r.rdb.HExists(ctx, state, gone).Val())
		require.True(t, r.exists(p+"bots:state:a"))
	})
}

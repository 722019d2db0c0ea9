package orphans

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// events are written one a line: commands of one event are separated by ";", their words by spaces.
func events(lines ...string) (h history.History) {
	for _, line := range lines {
		var e history.Event
		for command := range strings.SplitSeq(line, ";") {
			e.Commands = append(e.Commands, strings.Fields(command))
		}
		h = append(h, e)
	}
	return h
}

const (
	room  = `SET backend:step +room:r1 ; SET queue:reservation:ann {"roomId":"r1"}`
	ended = `SET backend:step -room:r1`
)

// goes are the three steps in which a thing goes: noted, moved away, and counted.
func goes(name, moved string) []string {
	return []string{
		`HSET {cleanup}:orphan:intents:x 1 {}`, moved,
		`XADD {cleanup}:janitor:log 7-1 at 1 leader one sweep x count 1 reowned 0 keys ["` + name + `"] ; HDEL {cleanup}:orphan:intents:x 1`,
	}
}

// seat is how ann's seat goes.
var seat = goes("queue:reservation:ann", "RENAME queue:reservation:ann orphan:bin:1:{queue:reservation:ann}")

func TestTheOracleAcceptsWhatIsRight(t *testing.T) {
	t.Parallel()
	lines := slices.Concat([]string{`XADD {cleanup}:janitor:log 7-0 leader one term x`, room, ended}, seat, []string{
		`SET backend:step +user:bob ; ZADD queue:elo 1 bob ; SET queue:joinedAt:bob 1`, `SET backend:step -user:bob`,
	}, goes(`queue:elo\u0020bob`, `SET orphan:bin:1:{queue:elo} 1 ; ZREM queue:elo bob`), []string{
		`HSET {cleanup}:orphan:intents:x 2 {}`,
		`XADD {cleanup}:janitor:log 7-3 leader two sweep bots count 0 keys [] ; HDEL {cleanup}:orphan:intents:x 2`,
	})
	v := judge(events(lines...), tolerated{})
	require.Empty(t, v.Wrong)
	require.Equal(t, map[string]uint64{"one": 2, "two": 0}, v.Records)
	require.Equal(t, 1, v.Terms)
}

func TestTheOracleRejectsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		lines      []string
		then       []string
	}{
		{"a seat in a room that lives", "room r1 of ann lives", []string{room}, seat},
		{"a seat in a room that lives, after a FLUSHALL", "room r1 of ann lives", []string{room, `SET chaos:fault x ; FLUSHALL`, room}, seat},
		{"a seat that was taken anew", "room r2 of ann lives", []string{
			room, ended, `SET backend:step +room:r2 ; SET queue:reservation:ann {"roomId":"r2"}`,
		}, seat},
		{"a seat in the making", "is in the making", []string{`SET queue:reservation:ann {"status":"creating"}`}, seat},
		{"a user who waits", "user bob waits", []string{`SET backend:step +user:bob ; ZADD queue:elo 1 bob`},
			goes(`queue:elo\u0020bob`, `SET orphan:bin:1:{queue:elo} 1 ; ZREM queue:elo bob`)},
		{"a user who has a seat", "user ann has a seat", []string{room, ended, `ZADD queue:elo 1 ann`},
			goes(`queue:elo\u0020ann`, `SET orphan:bin:1:{queue:elo} 1 ; ZREM queue:elo ann`)},
		{"what belongs to a match that runs", "match m is not over", []string{`SET backend:step +match:m ; SET match:m:ratings x`},
			goes("match:m:ratings", "RENAME match:m:ratings orphan:bin:1:{match:m:ratings}")},
		{"a bot that runs", "bot b runs", []string{`SET backend:step +bot:b ; SET bots:state:b idle`},
			goes("bots:state:b", "RENAME bots:state:b orphan:bin:1:{bots:state:b}")},
		{"a key of somebody else", "no rule is about it", []string{`SET session:x 1`},
			goes("session:x", "RENAME session:x orphan:bin:1:{session:x}")},
		{"a delete", "without an intent", []string{room, ended, `UNLINK queue:reservation:ann`}, nil},
		{"a move without an intent", "without an intent", []string{room, ended}, seat[1:2]},
		{"a move after its intent was settled", "without an intent", []string{room, ended, seat[0],
			`XADD {cleanup}:janitor:log 7-1 leader one sweep x count 0 keys [] ; HDEL {cleanup}:orphan:intents:x 1`}, seat[1:2]},
		{"a record of something that stays", `and [] went`, []string{room, ended, seat[0]}, seat[2:]},
		{"a record that counts too much", "counts 2, and names 1", append([]string{room, ended}, seat[:2]...),
			[]string{strings.Replace(seat[2], "count 1", "count 2", 1)}},
		{"a record that says too little", `names [], and ["queue:reservation:ann"] went`, append([]string{room, ended}, seat[:2]...),
			[]string{`XADD {cleanup}:janitor:log 7-1 leader one sweep x count 0 keys [] ; HDEL {cleanup}:orphan:intents:x 1`}},
		{"a command that is not known", "is not known", []string{`LPUSH bots:state:b 1`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := judge(events(append(c.lines, c.then...)...), tolerated{})
			require.Len(t, v.Wrong, 1, v.Wrong)
			require.Contains(t, v.Wrong[0], c.says)
		})
	}
}

func TestTheOracleTakesAsGivenOnlyWhatARowSays(t *testing.T) {
	t.Parallel()
	evicted := events(room, `DEL queue:reservation:ann`)
	require.Len(t, judge(evicted, tolerated{}).Wrong, 1)
	require.Empty(t, judge(evicted, tolerated{evictions: true}).Wrong)
}

package orphans

import (
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
	// A batch of one, and what the oracle is to say of it.
	batch = `XADD {cleanup}:janitor:log 7-1 at 1 leader one sweep x count 1 reowned 0 keys `
)

func TestTheOracleAcceptsWhatIsRight(t *testing.T) {
	t.Parallel()
	v := judge(events(
		`XADD {cleanup}:janitor:log 7-0 leader one term x`,
		room, ended,
		batch+`["queue:reservation:ann"] ; UNLINK queue:reservation:ann`,
		`SET backend:step +user:bob ; ZADD queue:elo 1 bob ; SET queue:joinedAt:bob 1`,
		`SET backend:step -user:bob`,
		`XADD {cleanup}:janitor:log 7-2 leader one sweep queue count 1 keys ["queue:elo\u0020bob"] ; `+
			`ZREM queue:elo bob`,
		`SET bots:state:b idle`,
		`XADD {cleanup}:janitor:log 7-3 leader two sweep bots count 1 keys ["bots:state:b"] ; `+
			`RENAME bots:state:b orphan:bin:1:bots:state:b`,
	), tolerated{})
	require.Empty(t, v.Wrong)
	require.Equal(t, map[string]uint64{"one": 2, "two": 1}, v.Records)
	require.Equal(t, 1, v.Terms)
}

func TestTheOracleRejectsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		lines      []string
	}{
		{"a seat in a room that lives", "room r1 of ann lives",
			[]string{room, batch + `["queue:reservation:ann"] ; UNLINK queue:reservation:ann`}},
		{"a seat in a room that lives, after a FLUSHALL", "room r1 of ann lives", []string{
			room, `SET chaos:fault x ; FLUSHALL`, room,
			batch + `["queue:reservation:ann"] ; UNLINK queue:reservation:ann`,
		}},
		{"a seat that was taken anew", "room r2 of ann lives", []string{
			room, ended, `SET backend:step +room:r2 ; SET queue:reservation:ann {"roomId":"r2"}`,
			batch + `["queue:reservation:ann"] ; UNLINK queue:reservation:ann`,
		}},
		{"a seat in the making", "is in the making", []string{
			`SET queue:reservation:ann {"status":"creating"}`,
			batch + `["queue:reservation:ann"] ; UNLINK queue:reservation:ann`,
		}},
		{"a user who waits", "user bob waits", []string{
			`SET backend:step +user:bob ; ZADD queue:elo 1 bob`, batch + `["queue:elo\u0020bob"] ; ZREM queue:elo bob`,
		}},
		{"a user who has a seat", "user ann has a seat", []string{
			room, ended, `ZADD queue:elo 1 ann`, batch + `["queue:elo\u0020ann"] ; ZREM queue:elo ann`,
		}},
		{"what belongs to a match that runs", "match m is not over", []string{
			`SET backend:step +match:m ; SET match:m:ratings x`, batch + `["match:m:ratings"] ; UNLINK match:m:ratings`,
		}},
		{"a bot that runs, into the bin", "bot b runs", []string{
			`SET backend:step +bot:b ; SET bots:state:b idle`,
			batch + `["bots:state:b"] ; RENAME bots:state:b orphan:bin:1:bots:state:b`,
		}},
		{"a key of somebody else", "no rule is about it", []string{
			`SET session:x 1`, batch + `["session:x"] ; UNLINK session:x`,
		}},
		{"a delete without a record", "without a record", []string{room, ended, `UNLINK queue:reservation:ann`}},
		{"a record of something that stays", `and [] went`, []string{
			room, ended, batch + `["queue:reservation:ann"] ; SET {cleanup}:x 1`,
		}},
		{"a record that counts too much", "counts 2, and names 1", []string{
			room, ended, strings.Replace(batch, "count 1", "count 2", 1) +
				`["queue:reservation:ann"] ; UNLINK queue:reservation:ann`,
		}},
		{"a record that says too little", `and ["match:m" "match:m:ratings"] went`, []string{
			`SET match:m 1`, `SET match:m:ratings 1`, batch + `["match:m"] ; UNLINK match:m match:m:ratings`,
		}},
		{"a command that is not known", "is not known", []string{`LPUSH bots:state:b 1`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := judge(events(c.lines...), tolerated{})
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

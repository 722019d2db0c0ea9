package availability

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// shown is what apply.lua writes of a mitra that is online and active.
func shown(id, version, sessions string) string {
	return "SADD mitras:online " + id + " ; SET mitra:capacity:" + id + " " + sessions +
		" ; HSET mitras:version " + id + " " + version
}

// two mitras, of whom a is given a session, which goes to b then: each version a line, in the order
// in which they were taken. A line has the mitra, the version, the second of the change and of its
// commit, the writer, whether it is online then, and its sessions.
const two = `
a 1 1    1    raw        online 0
b 1 1    1    set_online online 0
a 2 2    2    session    online 1
a 3 3    3    session    online 0
b 2 3    3    session    online 1
`

func second(text string) time.Time {
	n, _ := strconv.ParseFloat(text, 64)
	return noon.Add(time.Duration(n * float64(time.Second)))
}

// committed are the versions of a text. What is committed at one moment is of one transaction.
func committed(text string) (t truth) {
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		version, _ := strconv.ParseInt(words[1], 10, 64)
		sessions, _ := strconv.Atoi(words[6])
		c := change{
			seq: int64(len(t.changes)), mitra: words[0], version: version, at: second(words[2]), committed: second(words[3]),
			by: words[4], state: state{online: words[5] == "online", active: true, sessions: sessions},
		}
		c.xid = uint64(c.committed.UnixMilli())
		t.changes = append(t.changes, c)
		if c.by == "auto_offline" || c.by == "revive" {
			t.flips = append(t.flips, flip{c.mitra, words[5]})
		}
	}
	return t
}

const whole = "SET mitras:seeded 2026-11-22T12:00:01.000Z"

func TestTheOracleAcceptsWhatIsRight(t *testing.T) {
	t.Parallel()
	v := judgeMirror(events(
		shown("a", "1", "0"), shown("b", "1", "0"), whole,
		"SET mitra:heartbeat:a 2026-11-22T12:00:01.500Z",
		shown("a", "2", "1"),
		"SET mitra:heartbeat:a 2026-11-22T12:00:02.500Z",
		shown("a", "3", "0")+" ; "+shown("b", "2", "1"),
		"SET chaos:fault FLUSHALL ; FLUSHALL",
		shown("a", "1", "0"), shown("b", "2", "1"), // old ones, of an emptied server
		"SET chaos:fault corruption ; SADD mitras:deactivated a ; SET mitra:capacity:b -1",
		"SREM mitras:deactivated a ; "+shown("a", "3", "0"), "SET mitra:capacity:b 1",
		"SET chaos:fault corruption ; SADD mitras:online nobody", "SREM mitras:online nobody",
		"SET janitor:leader one/x",
	), committed(two))
	require.Empty(t, v.Wrong)
	require.Equal(t, 1, v.seeds)
	require.Zero(t, v.halves)
}

func TestTheOracleRejectsWhatIsWrong(t *testing.T) {
	t.Parallel()
	begin := []string{shown("a", "1", "0"), shown("b", "1", "0"), whole}
	for _, c := range []struct {
		name, says string
		lines      []string
	}{
		{"a state that nobody committed", "which was committed as []", []string{shown("a", "9", "0")}},
		{"another state than was committed", "which was committed as", []string{shown("a", "2", "0")}},
		{"half of a state", "which was committed as", []string{"SREM mitras:online a"}},
		{"a state without a version", "torn", []string{"SET mitra:capacity:c 1 ; SADD mitras:online c"}},
		{"a version behind a newer one", "version 1 behind 2", []string{shown("a", "2", "1"), shown("a", "1", "0")}},
		{"a state that was not committed yet", "was shown before", []string{
			shown("a", "2", "1"), "SET mitra:heartbeat:b 2026-11-22T12:00:01.500Z",
		}},
		{"a negative counter", "its counter is -1", []string{"SET mitra:capacity:a -1"}},
		{"half a mirror that is certified", "without b", []string{
			"SET chaos:fault FLUSHALL ; FLUSHALL", shown("a", "1", "0"), "SET mitras:seeded 2026-11-22T12:00:02.000Z",
		}},
		{"a command that is not known", "is not known", []string{"LPUSH mitras:online a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			of := committed(two + "c 1 99 99 raw online 0")
			v := judgeMirror(events(append(begin, c.lines...)...), of)
			require.NotEmpty(t, v.Wrong)
			require.Contains(t, v.Wrong[0], c.says)
		})
	}
}

func TestReroutesInHalvesAreCountedAndFewAreTaken(t *testing.T) {
	t.Parallel()
	lines := []string{shown("a", "2", "1"), shown("b", "1", "0"), whole}
	halves := []string{shown("a", "3", "0"), shown("b", "2", "1"), "SET chaos:fault x ; DEL mitra:capacity:a",
		shown("a", "2", "1"), "SET chaos:fault x ; DEL mitra:capacity:b", shown("b", "1", "0")}
	for n, wrong := range map[int]int{1: 0, 12: 1} {
		history := slices.Clone(lines)
		for range n {
			history = append(history, halves...)
		}
		v := judgeMirror(events(history...), committed(two))
		require.Len(t, v.Wrong, wrong)
		require.Equal(t, n, v.halves)
		require.Equal(t, 2*n, v.moves)
	}
}

func TestTheJudgeOfPostgresRejectsWhatIsWrong(t *testing.T) {
	t.Parallel()
	const offline = "a 4 10 10.1 auto_offline offline 0\n"
	for _, c := range []struct {
		name, says  string // "": it is right
		instead, of string // what it has in place of a part of the text; "": behind it
		signs       string // from, to
		logs        int    // rows a flip
	}{
		{"as it is", "", "", "", "", 1},
		{"silence", "", offline, "", "6 7", 1},
		{"a sign of life", "gave a sign of life", offline, "", "8 9", 1},
		{"a sign answered behind the flip", "gave a sign of life", offline, "", "9 11", 1},
		{"a sign before the commit", "gave a sign of life", offline, "", "10.05 11", 1},
		{"a sign behind the commit", "", offline, "", "10.2 11", 1},
		{"a sign of one that is online again", "", offline + "a 5 10.5 10.5 set_online online 0", "", "9 11", 1},
		{"a sign that takes the flip back", "", offline + "a 5 12 12 revive online 0", "", "10.05 10.08", 1},
		{"a version taken twice", "was taken twice", "a 2 3", "a 3 3", "", 1},
		{"versions in another order", "was taken before", "a 0 2    2    session    online 0", "a 3 3    3    session    online 0", "", 1},
		{"a place too much", "session 4 of 3", "a 2 2    2    session    online 4", "a 2 2    2    session    online 1", "", 1},
		{"fewer sessions than none", "has -1 sessions", "online -1", "online 1", "", 1},
		{"a flip without a log row", "log rows", offline, "", "", 0},
		{"a flip with two log rows", "log rows", offline, "", "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := two + c.instead
			if c.of != "" {
				text = strings.Replace(two, c.of, c.instead, 1)
			}
			of, signs := committed(text), map[string][]sign{}
			for range c.logs {
				of.logs = append(of.logs, of.flips...)
			}
			if from, to, signed := strings.Cut(c.signs, " "); signed {
				signs["a"] = []sign{{second(from), second(to)}}
			}
			v := judgeTruth(of, rules{stale: 3 * time.Second, places: 3, signs: signs})
			if c.says == "" {
				require.Empty(t, v.Wrong)
				return
			}
			require.NotEmpty(t, v.Wrong)
			require.Contains(t, v.Wrong[0], c.says)
		})
	}
}

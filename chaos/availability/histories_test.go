package availability

import (
	"slices"
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

// known are two mitras, of whom a is given a session, which goes to b then.
func known() (t truth) {
	add := func(mitra string, version int64, sessions int, xid uint64, by string) {
		at := noon.Add(time.Duration(xid) * time.Second)
		t.changes = append(t.changes, change{
			seq: int64(len(t.changes)), mitra: mitra, version: version, xid: xid, at: at, committed: at, by: by,
			state: state{online: true, active: true, sessions: sessions},
		})
	}
	add("a", 1, 0, 1, raw)
	add("b", 1, 0, 1, "set_online")
	add("a", 2, 1, 2, "session")
	add("a", 3, 0, 3, "session")
	add("b", 2, 1, 3, "session")
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
	), known(), false)
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
			of := known()
			of.changes = append(of.changes, change{mitra: "c", version: 1, state: state{online: true, active: true}})
			v := judgeMirror(events(append(begin, c.lines...)...), of, false)
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
		v := judgeMirror(events(history...), known(), false)
		require.Len(t, v.Wrong, wrong)
		require.Equal(t, n, v.halves)
		require.Equal(t, 2*n, v.moves)
	}
}

func TestTheJudgeOfPostgresRejectsWhatIsWrong(t *testing.T) {
	t.Parallel()
	flipped := func(t *truth) {
		t.changes = append(t.changes, change{
			seq: 9, mitra: "a", version: 4, at: noon.Add(10 * time.Second), committed: noon.Add(10100 * time.Millisecond),
			by: "auto_offline", state: state{active: true},
		})
		t.flips, t.logs = []flip{{"a", "offline"}}, []flip{{"a", "offline"}}
	}
	signed := func(from, to time.Duration) map[string][]sign {
		return map[string][]sign{"a": {{noon.Add(from), noon.Add(to)}}}
	}
	for _, c := range []struct {
		name, says string // "": it is right
		change     func(t *truth)
		signs      map[string][]sign
	}{
		{"as it is", "", func(*truth) {}, nil},
		{"silence", "", flipped, signed(6*time.Second, 7*time.Second)},
		{"a sign of life", "gave a sign of life", flipped, signed(8*time.Second, 9*time.Second)},
		{"a sign answered behind the flip", "gave a sign of life", flipped, signed(9*time.Second, 11*time.Second)},
		{"a sign before the commit", "gave a sign of life", flipped, signed(10050*time.Millisecond, 11*time.Second)},
		{"a sign behind the commit", "", flipped, signed(10200*time.Millisecond, 11*time.Second)},
		{"a sign of one that is online again", "", func(t *truth) {
			flipped(t)
			t.changes = append(t.changes, change{seq: 10, mitra: "a", version: 5, at: noon.Add(10500 * time.Millisecond),
				by: "set_online", state: state{online: true, active: true}})
		}, signed(9*time.Second, 11*time.Second)},
		{"a sign that takes the flip back", "", func(t *truth) {
			flipped(t)
			t.changes = append(t.changes, change{seq: 10, mitra: "a", version: 5, at: noon.Add(12 * time.Second),
				by: "revive", state: state{online: true, active: true}})
			t.flips, t.logs = append(t.flips, flip{"a", "online"}), append(t.logs, flip{"a", "online"})
		}, signed(10050*time.Millisecond, 10080*time.Millisecond)},
		{"a version taken twice", "was taken twice", func(t *truth) { t.changes[3].version = 2 }, nil},
		{"versions in another order", "was taken before", func(t *truth) { t.changes[3].seq = -1 }, nil},
		{"a place too much", "session 4 of 3", func(t *truth) { t.changes[2].state.sessions = 4 }, nil},
		{"fewer sessions than none", "has -1 sessions", func(t *truth) { t.changes[2].state.sessions = -1 }, nil},
		{"a flip without a log row", "log rows", func(t *truth) { flipped(t); t.logs = nil }, nil},
		{"a flip with two log rows", "log rows", func(t *truth) { flipped(t); t.logs = append(t.logs, t.logs...) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			of := known()
			c.change(&of)
			v := judgeTruth(of, rules{stale: 3 * time.Second, places: 3, signs: c.signs})
			if c.says == "" {
				require.Empty(t, v.Wrong)
				return
			}
			require.NotEmpty(t, v.Wrong)
			require.Contains(t, v.Wrong[0], c.says)
		})
	}
}

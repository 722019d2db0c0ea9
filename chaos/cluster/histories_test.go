package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// events are written one a line: commands of one event are separated by ";", their words by spaces.
func events(second int64, lines ...string) (h history.History) {
	for _, line := range lines {
		e := history.Event{Second: second}
		for command := range strings.SplitSeq(line, ";") {
			e.Commands = append(e.Commands, strings.Fields(command))
		}
		h = append(h, e)
	}
	return h
}

// evicts is an eviction of one entry.
func evicts(id, owner string, at time.Time, imeis string) string {
	return fmt.Sprintf(`XADD {rollcall}:janitor:log %s at %d leader l owner %s sweep owners count 1 reowned 0 imeis ["%s"]`,
		id, at.UnixMilli(), owner, imeis)
}

const (
	takes   = ` ; HDEL {rollcall}:connections:registry `
	indexed = ` ; SREM {rollcall}:instance:devices:`
)

func TestTheOracle(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1_800_000_000, 0)
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	f := facts{
		layouts:  layouts(1),
		interval: time.Second, ttl: 6 * time.Second,
		killed: map[string]time.Time{"dead": at(10)},
		outages: []outage{
			{"briefly", at(10), at(13)}, {"long", at(10), at(15)}, {"stopped", at(10), time.Time{}},
		},
		sockets: map[string][]*socket{"open": {{"one", at(0), time.Time{}}}, "closed": {{"one", at(0), at(10)}}},
		lost:    map[string]time.Time{"old": at(10)},
	}
	for name, c := range map[string]struct {
		node, event, says string
	}{
		"of the dead":              {"n", evicts("7-1", "dead", at(17), "a") + takes + "a", ""},
		"before its death":         {"n", evicts("7-1", "dead", at(9), "a") + takes + "a", "1 entries of dead, which lives"},
		"of the living":            {"n", evicts("7-1", "one", at(17), "a") + takes + "a", "1 entries of one, which lives"},
		"of the living, long ago":  {"n", evicts("7-1", "one", at(17), "a"), "1 entries of one, which lives"},
		"by who was replaced":      {"old", evicts("7-1", "one", at(17), "a") + takes + "a", ""},
		"by who will be replaced":  {"old", evicts("7-1", "one", at(9), "a") + takes + "a", "which lives"},
		"who was stopped briefly":  {"n", evicts("7-1", "briefly", at(14), "a") + takes + "a", "which lives"},
		"who was stopped for long": {"n", evicts("7-1", "long", at(16), "a") + takes + "a", ""},
		"who was stopped long ago": {"n", evicts("7-1", "long", at(30), "a") + takes + "a", "which lives"},
		"who is stopped":           {"n", evicts("7-1", "stopped", at(16), "a") + takes + "a", ""},
		"not what is recorded":     {"n", evicts("7-1", "dead", at(17), "a") + takes + "a b", "1 are recorded, 2 went"},
		"without a record":         {"n", "HDEL {rollcall}:connections:registry a", "went without a record"},
		"released":                 {"n", "HDEL {rollcall}:connections:registry closed" + indexed + "one closed", ""},
		"taken out": {"n", "HDEL {rollcall}:connections:registry open" + indexed + "one open",
			"one took out open, whose socket is open"},
		"all at once": {"n", "DEL {rollcall}:connections:registry ; SET x y", "was deleted by a script"},
	} {
		v := newVerdict(f)
		v.judge(recorded{c.node, events(at(20).Unix(), c.event)})
		if c.says == "" {
			require.Empty(t, v.wrong, name)
			continue
		}
		require.Len(t, v.wrong, 1, name)
		require.Contains(t, v.wrong[0], c.says, name)
	}
}

func TestTheOracleCountsABatchOnceHoweverManyNodesHaveIt(t *testing.T) {
	t.Parallel()
	h := events(0, evicts("7-1", "dead", time.Unix(9, 0), "a")+takes+"a")
	v := newVerdict(facts{layouts: layouts(1), killed: map[string]time.Time{"dead": time.Unix(8, 0)}})
	v.judge(recorded{"a", h})
	v.judge(recorded{"b", h})
	require.Empty(t, v.wrong)
	require.Equal(t, map[string]int{"dead": 1}, v.evicted)
	require.Equal(t, 1, v.entries())
}

package orphan

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func TestJSONThatIsNoneIsUnreadable(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"id":"a"}}`, `{"id":"a"}]`, `{"id":"a"} x`, `{"id":"a"}{}`, "{\"id\":\"\xff\"}", `{"id":"\ud800"}`,
		`{"id":1e3}`, `{"id":1.0}`, `{"id":-0}`,
	} {
		read, _ := textOf(fieldsOf(readJSON(text), "id")["id"])
		require.Empty(t, read, text)
	}
	read, _ := textOf(fieldsOf(readJSON(`{"id":9007199254740993} `), "id")["id"])
	require.Equal(t, "9007199254740993", read)
}

func TestATimeMayBeWrittenInAnyWay(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		rule := session(w.Prefix)
		rule.Read, rule.MinAge = "json", &rules.Age{Field: ".at", Unit: "ms", Over: time.Hour}
		r := newRig(t, w.Options, w.Prefix, nil, rule)
		for i, at := range []string{`1.6e12`, `1600000000000.5`, `"1600000000000"`, `1600000000000`} {
			r.do("SET", w.Prefix+"session:"+string(rune('a'+i)), `{"at":`+at+`}`)
		}
		r.do("SET", w.Prefix+"session:none", `{"at":true}`)
		require.Equal(t, map[string]int{waiting: 4, unreadable: 1}, r.sweep("sessions").Kept)
	})
}

// A value may be of 4 MiB: what is remembered of 500 of them is not.
func TestOnlyWhatTheRuleReadsOfAValueIsRemembered(t *testing.T) {
	t.Parallel()
	object := readJSON(`{"id":"a","much":{"more":[1,2]},"player":{"id":7,"ok":true,"name":"` + strings.Repeat("x", longText+1) +
		`","deep":{"er":1}},"n":null}`)
	require.Equal(t, map[fieldPath]any{
		"id": "a", "much": nil, "player.id": json.Number("7"), "player.ok": true, "player.name": nil, "player.deep.er": json.Number("1"),
		"n": nil, "id.of": nil,
	}, fieldsOf(object, "id", "much", "player.id", "player.ok", "player.name", "player.deep.er", "n", "none.at.all", "id.of"))
}

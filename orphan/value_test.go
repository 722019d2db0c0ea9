package orphan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
)

func TestJSONThatIsNoneIsUnreadable(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"id":"a"}}`, `{"id":"a"}]`, `{"id":"a"} x`, `{"id":"a"}{}`, "{\"id\":\"\xff\"}", `{"id":"\ud800"}`,
		`{"id":1e3}`, `{"id":1.0}`, `{"id":-0}`,
	} {
		require.Empty(t, fieldOf(readJSON(text), "id"), text)
	}
	require.Equal(t, "9007199254740993", fieldOf(readJSON(`{"id":9007199254740993} `), "id"))
}

func TestATimeMayBeWrittenInAnyWay(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		rule := session(w.Prefix)
		rule.Read, rule.MinAge = "json", &Age{Field: ".at", Unit: "ms", Over: time.Hour}
		r := newRig(t, w.Options, w.Prefix, nil, rule)
		for i, at := range []string{`1.6e12`, `1600000000000.5`, `"1600000000000"`, `1600000000000`} {
			r.do("SET", w.Prefix+"session:"+string(rune('a'+i)), `{"at":`+at+`}`)
		}
		r.do("SET", w.Prefix+"session:none", `{"at":true}`)
		require.Equal(t, map[string]int{waiting: 4, unreadable: 1}, r.sweep("sessions").Kept)
	})
}

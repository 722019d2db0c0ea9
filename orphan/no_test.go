package orphan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A document that states that it is not over has no other field that could say more.
func TestADefiniteNoIsALifeWhateverOtherFieldsAreMissing(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		source := &documents{all: map[string]Document{
			matchID(1): {"status": "ongoing"},
			matchID(2): {"status": "ongoing", "endedAt": time.Time{}},
			matchID(3): {"endedAt": time.Now()}, // its status is missing, and it has just ended
			matchID(4): {"status": "finished"},  // when is not known
			matchID(5): {},
		}}
		r := newRig(t, w.Options, p, source, matches(p))
		for i := range 5 {
			r.do("SET", p+"match:"+matchID(i+1), "{}")
		}
		require.Equal(t, map[string]int{alive: 3, unknown: 2}, r.sweep("matches").Kept)
	})
}

// Absence is no evidence: a sign of life that misses a field is not refuted by another one.
func TestASignOfLifeThatMissesAFieldKeepsWhateverTheOthersSay(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		source := &documents{all: map[string]Document{
			"ann": {"state": "away"},
			"bob": {"state": "away", "plan": "free"},
			"eve": {"state": "active", "plan": "paid"},
		}}
		r := newRig(t, w.Options, p, source, rules.Rule{
			Name: "carts", Delete: true, Keys: p + "cart:{user}", Grace: time.Minute,
			KeepIf: []rules.Sign{{Mongo: &rules.Mongo{Collection: "users", ID: "{user}", All: []rules.Condition{
				{Field: "state", In: []string{"active"}}, {Field: "plan", In: []string{"paid"}},
			}}}},
		})
		for _, user := range []string{"ann", "bob", "eve"} {
			r.do("SET", p+"cart:"+user, "1")
		}
		require.Equal(t, map[string]int{unknown: 1, waiting: 1, alive: 1}, r.sweep("carts").Kept)
	})
}

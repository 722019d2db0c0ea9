package chaos

import (
	"fmt"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// A spell is how long an entry named one owner, as written once.
type spell struct {
	imei, owner string
	from, until time.Time // zero until: to the history's end
	taken       bool      // it ended because the entry was taken out, not written anew
}

// spells are all there were, in the order in which they began.
type spells []spell

// spells reads them from the history as it is.
func (w *environment) spells() (all spells) {
	w.Helper()
	h := w.History()
	f := w.Facts(w.Alive(nil))
	stood := make(map[string]int) // by IMEI: its present one
	ends := func(imei string, at time.Time, taken bool) {
		if n, ok := stood[imei]; ok {
			all[n].until, all[n].taken = at, taken
			delete(stood, imei)
		}
	}
	for i, span := range judge.Spans(h, &f) {
		for _, c := range h[i].Commands {
			switch {
			case c[1] != w.Registry():
			case c[0] == "HDEL":
				for _, imei := range c[2:] {
					ends(imei, span.From, true)
				}
			case c[0] == "HSET":
				for n := 2; n+1 < len(c); n += 2 {
					ends(c[n], span.From, false)
					stood[c[n]] = len(all)
					all = append(all, spell{imei: c[n], owner: c[n+1], from: span.From})
				}
			}
		}
	}
	return all
}

// since is when an entry last came to name an owner that it had not named just before; zero if it
// never did.
func (all spells) since(imei, owner string) (at time.Time) {
	var before spell
	for _, s := range all {
		if s.imei != imei {
			continue
		}
		if s.owner == owner && (before.owner != owner || before.taken) {
			at = s.from
		}
		before = s
	}
	return at
}

func number(t require.TestingT, v any) int {
	n, err := strconv.Atoi(fmt.Sprint(v))
	require.NoError(t, err)
	return n
}

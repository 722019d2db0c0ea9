package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/timeline"
)

// Lately is how long an event remains a problem.
const Lately = 10 * time.Minute

// Loss is an instance that lately fell silent without a goodbye, or lost entries to an eviction.
type Loss struct {
	Instance string `json:"instance"`
	// At is when it fell silent, or its first entry was evicted.
	At time.Time `json:"at"`
	// Silent is false if nobody knows since when it is silent.
	Silent  bool `json:"silent"`
	Evicted int  `json:"evicted"`
	Back    bool `json:"back,omitempty"`

	dead bool // its death was seen
	left bool // in good order, after all
}

// losses belong to a life: a death, not a name, has evictions, and only a goodbye without a return
// before it takes one back.
func (w *Watch) losses(now time.Time, instances []Instance) (found []Loss) {
	open := map[string]*Loss{} // the last of each instance
	var all []*Loss
	begin := func(e timeline.Event) *Loss {
		l := &Loss{Instance: e.Instance, At: e.At}
		open[e.Instance], all = l, append(all, l)
		return l
	}
	left := map[string]bool{}
	for _, e := range w.events {
		if now.Sub(e.At) > Lately || e.Instance == "" {
			continue
		}
		l := open[e.Instance]
		switch e.Kind {
		case timeline.Death:
			if l == nil || l.Back || !l.dead { // what was evicted before is of another life
				l = begin(e)
			}
			l.dead, l.Silent, left[e.Instance] = true, !e.Found, false
			if !e.Found {
				l.At = e.At
			}
		case timeline.Eviction:
			if e.Sweep != "owners" && e.Sweep != "registry" || left[e.Instance] { // others delete no entries
				continue
			}
			if l == nil {
				l = begin(e)
			}
			l.Evicted += e.Count
		case timeline.Left:
			if left[e.Instance] = true; l != nil && !l.Back {
				l.Back, l.left = true, true
			}
		case timeline.Alive:
			if left[e.Instance] = false; l != nil {
				l.Back = true
			}
		}
	}
	for _, l := range all {
		never := slices.ContainsFunc(instances, func(in Instance) bool { // of a backup that was restored
			return in.ID == l.Instance && in.Alive && !l.Silent && !in.Started.IsZero() && in.Started.Before(l.At)
		})
		if !l.left && !never {
			found = append(found, *l)
		}
	}
	slices.SortFunc(found, func(a, b Loss) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Instance, b.Instance))
	})
	return found
}

func (l Loss) sentence(now time.Time) string {
	ago := Ago(now.Sub(l.At))
	text := ""
	switch {
	case l.Silent:
		text = fmt.Sprintf("%s fell silent %s, without a goodbye", l.Instance, ago)
	default:
		text = fmt.Sprintf("%s was found silent %s, without a goodbye", l.Instance, ago)
	}
	if l.Back {
		text += ", and lives again"
	}
	return text
}

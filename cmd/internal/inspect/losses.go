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
}

func (w *Watch) losses(now time.Time) (found []Loss) {
	by := map[string]*Loss{}
	of := func(e timeline.Event) *Loss {
		if by[e.Instance] == nil {
			by[e.Instance] = &Loss{Instance: e.Instance, At: e.At}
		}
		return by[e.Instance]
	}
	left := map[string]bool{}
	for _, e := range w.events {
		if now.Sub(e.At) > Lately || e.Instance == "" {
			continue
		}
		switch e.Kind {
		case timeline.Death:
			l := of(e.Event)
			l.Back, left[e.Instance] = false, false
			if !e.Found {
				l.Silent, l.At = true, e.At
			}
		case timeline.Eviction:
			if e.Sweep == "owners" || e.Sweep == "registry" { // others delete no entries
				of(e.Event).Evicted += e.Count
			}
		case timeline.Left:
			left[e.Instance] = true
		case timeline.Alive:
			if l := by[e.Instance]; l != nil {
				l.Back = true
			}
		}
	}
	for id, l := range by {
		if !left[id] {
			found = append(found, *l)
		}
	}
	slices.SortFunc(found, func(a, b Loss) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Instance, b.Instance))
	})
	return found
}

func (s Status) lost() []Problem {
	if len(s.Losses) == 0 {
		return nil
	}
	evicted := 0
	var ids []string
	for _, l := range s.Losses {
		evicted += l.Evicted
		ids = append(ids, l.Instance)
	}
	text, whose := "", "its"
	if l := s.Losses[0]; len(ids) == 1 {
		text = l.sentence(s.Now)
	} else {
		text = list(ids, "", "were lost within the last "+Short(Lately)+", without a goodbye")
		whose = "their"
	}
	switch evicted {
	case 0:
		text += "; no entries were evicted"
	case 1:
		text += "; 1 of " + whose + " entries was evicted"
	default:
		text += fmt.Sprintf("; %d of %s entries were evicted", evicted, whose)
	}
	return []Problem{{"lost_lately", Warning, text + ".",
		"Look at the log and the machine. Devices that connect again are registered elsewhere.",
		"rollcallownerdied"}}
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

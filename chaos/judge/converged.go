package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Settled checks C7, if the facts have the truth.
func (v *Verdict) Settled() (found []Violation) {
	l, live, alive := v.facts.Layout, v.facts.Truth, v.facts.Alive
	if live == nil {
		return nil
	}
	wrong := func(format string, args ...any) {
		found = append(found, Violation{Check: "C7", At: v.at, What: fmt.Sprintf(format, args...)})
	}
	// A living older writer has neither an index nor a place on the roster.
	elder := func(id string) bool { return v.facts.Planted[id] && !slices.Contains(alive, id) }
	entries := v.Final.Hashes[l.Registry()]
	for _, imei := range slices.Sorted(maps.Keys(live)) {
		if got := entries[imei]; got != live[imei] {
			wrong("device %s is at %s, its entry names %q", imei, live[imei], got)
		}
		if _, ok := v.Final.Sets[l.Devices(live[imei])][imei]; !ok && !v.facts.Unindexed && !elder(live[imei]) {
			wrong("device %s is at %s and not in its index", imei, live[imei])
		}
	}
	for _, imei := range slices.Sorted(maps.Keys(entries)) {
		if _, ok := live[imei]; !ok {
			wrong("entry %s names %s, but there is no socket", imei, entries[imei])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.Final.Sets)) {
		id, index := strings.CutPrefix(key, l.Devices(""))
		if !index {
			continue
		}
		for imei := range v.Final.Sets[key] {
			if live[imei] != id {
				wrong("the index of %s has %s, which is at %q", id, imei, live[imei])
			}
		}
	}
	roster := v.Final.Sets[l.Roster()]
	for _, id := range alive {
		if _, ok := roster[id]; !ok {
			wrong("%s lives and is not on the roster", id)
		}
		if _, ok := v.Final.Strings[l.Heartbeat(id)]; !ok {
			wrong("%s lives and has no heartbeat", id)
		}
	}
	for id := range roster {
		if !slices.Contains(alive, id) {
			wrong("%s is on the roster and does not live", id)
		}
	}
	for key := range v.Final.Strings {
		if id, beat := strings.CutPrefix(key, l.Heartbeat("")); beat && !slices.Contains(alive, id) && !elder(id) {
			wrong("%s has a heartbeat and does not live", id)
		}
	}
	return found
}

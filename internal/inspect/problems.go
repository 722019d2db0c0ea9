package inspect

import (
	"fmt"
	"strings"

	"github.com/rollcall-redis/rollcall/janitor"
)

// A Problem is what is wrong with a fleet, or what somebody should know, with what to do.
type Problem struct {
	// Name is short and stays the same while the problem lasts; the sentence may count down.
	Name     string `json:"name"`
	Level    Level  `json:"level"` // warning or wrong
	Sentence string `json:"sentence"`
	Do       string `json:"do,omitempty"`
	// Runbook is the heading of docs/runbook.md; "": there is none.
	Runbook string `json:"runbook,omitempty"`
}

// Problems are what a status shows to be wrong, the worst first. Empty: nothing.
func (s Status) Problems() []Problem {
	wrong, warnings := []Problem{}, []Problem{}
	switch l := s.Leader; {
	case l == nil:
		wrong = append(wrong, Problem{"nobody_leads", Wrong, "Nobody leads, so nothing dead is swept.",
			"Start a replica, or look why none takes the lease.", "rollcallnobodyleads"})
	case l.ExpiresIn == "":
		warnings = append(warnings, Problem{"lease_without_ttl", Warning,
			"The lease of " + l.Instance + " never expires: somebody wrote the key by hand.",
			"Wait: contenders cap it after one lease TTL.", "rollcallnobodyleads"})
	case s.LeaderSilent() != "":
		warnings = append(warnings, Problem{"leader_silent", Warning,
			l.Instance + " leads, and " + s.LeaderSilent() + ".",
			"Wait. Look whether it lives, if it should.",
			"rollcallnobodyleads"})
	}
	switch h := s.Hold; {
	case h != nil && h.Reason == "paused":
		warnings = append(warnings,
			Problem{"hold:paused", Warning, "Sweeping is " + h.Sentence + ".", "", h.Runbook})
	case h != nil:
		warnings = append(warnings, Problem{"hold:" + h.Reason, Warning,
			"Sweeping is held (" + h.Reason + "): " + h.Sentence + ".", "", h.Runbook})
	case s.Witness.LastTick.IsZero():
		warnings = append(warnings,
			Problem{"unheard", Warning, "Nobody has listened to this Redis yet.", "", "gap"})
	case !s.Heard:
		wrong = append(wrong, Problem{"unheard", Wrong,
			"Nobody listens to Redis: the last tick was " + Ago(s.Now.Sub(s.Witness.LastTick)) + ".",
			"Look whether replicas run, and reach Redis.", "rollcallnotsweeping"})
	}
	warnings = append(warnings, s.silent()...)
	warnings = append(warnings, s.differing()...)
	for _, p := range s.Passes {
		if p.Outcome == janitor.Failed {
			wrong = append(wrong, Problem{"pass_failed:" + p.Sweep, Wrong,
				"The last pass of " + p.Sweep + " failed: " + p.Error + ".", "", "rollcallpassesfail"})
		}
	}
	return append(wrong, warnings...)
}

// silent is about instances without a heartbeat of which something is left.
func (s Status) silent() []Problem {
	var ids []string
	devices := int64(0)
	for _, in := range s.Instances {
		if !in.Alive && in.Devices != 0 {
			ids, devices = append(ids, in.ID), devices+max(0, in.Devices)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	do := "The leader sweeps them within seconds."
	if s.Hold != nil || s.Leader == nil || !s.Heard {
		do = "They are swept when sweeping goes on, unless the instance beats before."
	}
	return []Problem{{"silent", Warning,
		fmt.Sprintf("%s; devices still in %s: %d.", list(ids, "is silent", "are silent"),
			map[bool]string{true: "its name", false: "their names"}[len(ids) == 1], devices), do, ""}}
}

// differing is about instances that differ from the fleet.
func (s Status) differing() []Problem {
	var ids []string
	differs := ""
	for _, in := range s.Instances {
		if in.Differs != "" {
			ids = append(ids, in.ID)
			differs = in.Differs
		}
	}
	if len(ids) == 0 {
		return nil
	}
	text := list(ids, "differs", "differ") + " from the fleet"
	if len(ids) == 1 {
		text += ": " + differs
	}
	return []Problem{{"differs", Warning, text + ".", "Set the same on all replicas.", "settings"}}
}

// list names some and counts the rest.
func list(ids []string, one, more string) string {
	const named = 3
	switch {
	case len(ids) == 1:
		return ids[0] + " " + one
	case len(ids) <= named:
		return strings.Join(ids[:len(ids)-1], ", ") + " and " + ids[len(ids)-1] + " " + more
	}
	return fmt.Sprintf("%d instances %s (%s, …)", len(ids), more, strings.Join(ids[:named], ", "))
}

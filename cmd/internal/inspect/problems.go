package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/janitor"
)

// Problem is something wrong, or worth knowing, with its remedy.
type Problem struct {
	// Name is fixed while the problem lasts; the sentence may count down.
	Name     string `json:"name"`
	Level    Level  `json:"level"`
	Sentence string `json:"sentence"`
	Do       string `json:"do,omitempty"`
	Runbook  string `json:"runbook,omitempty"`
}

// Problems has the worst first, and is never nil.
func (s Status) Problems() []Problem {
	wrong, warnings := []Problem{}, []Problem{}
	if s.Partitions != nil {
		wrong, warnings = s.ofPartitions()
	}
	for _, u := range s.Unread {
		wrong = append([]Problem{{"unread:" + u.Server, Wrong, upper(u.Sentence()) +
			". Its devices can be neither registered nor found, and nothing of theirs is swept.",
			"Start that server, or promote a replica of it.", "a-part-of-redis-does-not-answer"}}, wrong...)
	}
	if s.Overwritten != nil {
		wrong = append(wrong, *s.Overwritten)
	}
	wrong = append(wrong, s.unfit()...)
	damaged, doubtful := s.damage()
	wrong, warnings = append(wrong, damaged...), append(warnings, doubtful...)
	switch l := s.Leader; {
	case s.Partitions != nil:
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
			"Wait. Check that it is alive, if it should be. If the lease outlasts its TTL, delete it.",
			"rollcallnobodyleads"})
	case !l.begun():
		warnings = append(warnings, Problem{"term_not_begun", Warning,
			l.Instance + " has the lease but has not begun its term; nothing is swept until then.",
			"Wait. If that lasts, check its log.", "rollcallnobodyleads"})
	}
	if s.LogLost() {
		warnings = append(warnings,
			Problem{"log_lost", Warning, logLost + ".", logLostDo, "the-eviction-log-is-lost"})
	}
	switch h := s.Hold; {
	case h != nil && h.Reason == "paused":
		warnings = append(warnings,
			Problem{"hold:paused", Warning, "Sweeping is " + h.Sentence + ".", "", h.Runbook})
	case s.Partitions != nil, h != nil && h.Young:
	case h != nil:
		warnings = append(warnings, Problem{"hold:" + h.Reason, Warning,
			"Sweeping is held (" + h.Reason + "): " + h.Sentence + ".", "", h.Runbook})
	case s.Witness.LastTick.IsZero():
		warnings = append(warnings,
			Problem{"unheard", Warning, "Nobody has listened to this Redis yet.", "", "gap"})
	case s.full(): // that is why
	case !s.Heard:
		wrong = append(wrong, Problem{"unheard", Wrong,
			"Nobody listens to Redis: the last tick was " + Ago(s.Now.Sub(s.Witness.LastTick)) + ".",
			"Look whether replicas run, and reach Redis.", "rollcallnotsweeping"})
	}
	if s.Cut > 0 {
		warnings = append(warnings, Problem{"cut", Warning,
			fmt.Sprintf("The roster lists %d further instances, which are not shown here.", s.Cut),
			"Find what writes them. Those without a heartbeat are swept.", "a-key-that-somebody-overwrote"})
	}
	warnings = append(warnings, s.lost()...)
	warnings = append(warnings, s.doubted()...)
	warnings = append(warnings, s.silent()...)
	warnings = append(warnings, s.silentIn()...)
	warnings = append(warnings, s.differing()...)
	if n := len(s.Unreadable); n > 0 {
		text := "The entry of " + s.Unreadable[0] + " names"
		if n > 1 {
			text = fmt.Sprintf("%d entries (%s) name", n, few(s.Unreadable))
		}
		warnings = append(warnings, Problem{"unreadable", Warning, text + " what can be no instance: nobody " +
			"can judge that, so it stays.", "Find what writes it, then delete it: rollcall why IMEI says how.",
			"unreadable"})
	}
	for _, p := range s.Passes {
		switch {
		case p.Outcome == janitor.Failed:
			wrong = append(wrong, Problem{"pass_failed:" + p.Sweep, Wrong,
				"The last pass of " + p.Sweep + " failed: " + p.Error + ".", "", "rollcallpassesfail"})
		case p.Outcome == janitor.Held && s.heldAlone(p):
			wrong = append(wrong, Problem{"pass_held:" + p.Sweep, Wrong,
				"The rule " + p.Sweep + " is held: " + join(p.Reason, p.Error) + ".",
				"Read docs/cleanup-runbook.md#why-a-rule-is-held.", ""})
		}
	}
	return append(wrong, warnings...)
}

// heldAlone distinguishes a rule's own hold from one of the whole fleet.
func (s Status) heldAlone(p janitor.Report) bool {
	_, ofFleet := holdMeaning[p.Reason]
	return !ofFleet && p.Reason != "paused" && p.Reason != "pause_unknown"
}

func (s Status) unfit() (wrong []Problem) {
	if full := s.Full(); full != "" {
		wrong = append(wrong, Problem{"memory", Wrong, full + ".", "Give it memory, or trim telemetry.",
			"rollcallredisfull"})
	}
	p := &patient{server: s.Redis, status: s}
	for _, c := range ofServer {
		if !slices.Contains(inStatus, c.name) || c.name == "memory" && s.full() {
			continue
		}
		if f, err := c.ask(context.Background(), p); err == nil && f.level == Wrong {
			wrong = append(wrong, Problem{c.name, Wrong, "Redis: " + f.sentence + ".", "", ""})
		}
	}
	return wrong
}

// inStatus checks need nothing but INFO.
var inStatus = []string{"version", "role", "policy", "memory"}

const logLost = "The eviction log is lost: nobody can tell what was evicted before"

const logLostDo = "Find what deleted it: DEL, or a maxmemory-policy that evicts keys. " +
	"Sweeping goes on, and the next eviction or term begins a new log."

// LogLost reports whether the eviction log, which had the present term, is gone.
func (s Status) LogLost() bool {
	return s.Leader != nil && s.Leader.LogLost || s.Partitions != nil && len(s.Partitions.logLost) > 0
}

func (s Status) ofPartitions() (wrong, warnings []Problem) {
	p := s.Partitions
	wrong, warnings = []Problem{}, []Problem{}
	if len(p.Unled) > 0 {
		wrong = append(wrong, Problem{"nobody_leads", Wrong,
			"Nobody leads " + named(p.Unled) + ", so nothing dead is swept there.",
			"Start a replica, or look why none takes the lease.", "rollcallnobodyleads"})
	}
	if len(p.forever) > 0 {
		warnings = append(warnings, Problem{"lease_without_ttl", Warning,
			"A lease never expires: somebody wrote the key by hand (" + named(p.forever) + ").",
			"Wait: contenders cap it after one lease TTL.", "rollcallnobodyleads"})
	}
	for _, l := range p.Leaders {
		if slices.ContainsFunc(s.Instances, func(in Instance) bool {
			return in.ID == l.Instance && !in.Alive && len(in.SilentIn) == 0
		}) {
			warnings = append(warnings, Problem{"leader_silent:" + l.Instance, Warning,
				l.Instance + " leads " + named(l.Partitions) + " but sends no heartbeat: unless it renews its leases, " +
					"others take over soon.", "Wait. Check that it is alive, if it should be.", "rollcallnobodyleads"})
		}
	}
	for _, h := range p.Holds {
		if s.Hold != nil && s.Hold.Reason == "paused" {
			break
		}
		heading, meaning := h.Reason, holdMeaning[h.Reason]
		if meaning == "" {
			heading, meaning = "unknown", "a newer version, or somebody, gave a reason that this version does not know"
		}
		warnings = append(warnings, Problem{"hold:" + h.Reason, Warning, fmt.Sprintf(
			"Sweeping is held (%s) in %s: %s.", h.Reason, named(h.Partitions), meaning), "", heading})
	}
	if len(p.Unheard) > 0 && !s.full() {
		wrong = append(wrong, Problem{"unheard", Wrong,
			"Nobody listens to Redis in " + named(p.Unheard) + ".",
			"Look whether replicas run, and reach Redis.", "rollcallnotsweeping"})
	}
	return wrong, warnings
}

func (s Status) silent() []Problem {
	var ids []string
	devices := int64(0)
	for _, in := range s.Instances {
		if !in.Alive && len(in.SilentIn) == 0 && in.Devices != 0 && in.Differs != elsewhere && in.Doubt == nil {
			ids, devices = append(ids, in.ID), devices+max(0, in.Devices)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	do := "The leader sweeps what is left within seconds, or by the next full scan."
	unled := s.Leader == nil
	if s.Partitions != nil {
		unled = len(s.Partitions.Unled) > 0
	}
	if s.Hold != nil || unled || !s.Heard {
		do = "What is left is swept when sweeping resumes, unless its owner comes back first."
	}
	text := list(ids, "is silent", "are silent")
	if devices > 0 { // else the registry is too large to count
		text += fmt.Sprintf("; devices still in %s: %d",
			map[bool]string{true: "its name", false: "their names"}[len(ids) == 1], devices)
	}
	return []Problem{{"silent", Warning, text + ".", do, ""}}
}

func (s Status) silentIn() []Problem {
	var ids []string
	where := ""
	for _, in := range s.Instances {
		if len(in.SilentIn) > 0 {
			ids, where = append(ids, in.ID), in.Differs
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return []Problem{{"silent_in", Warning, list(ids, "has", "have") + " " + where + ", and beats in others.",
		"Its entries there are swept unless it beats: check its log.", ""}}
}

func (s Status) differing() []Problem {
	var ids, away []string
	differs := ""
	for _, in := range s.Instances {
		switch {
		case in.Differs == elsewhere:
			away = append(away, in.ID)
		case in.Differs != "" && len(in.SilentIn) == 0:
			ids = append(ids, in.ID)
			differs = in.Differs
		}
	}
	var found []Problem
	if len(away) > 0 {
		found = append(found, Problem{"elsewhere", Warning,
			list(away, "answers", "answer") + " by HTTP: " + elsewhere + ".",
			"Look at its way to Redis, and at its REDIS_URL.", "rollcallheartbeatsfail"})
	}
	if len(ids) == 0 {
		return found
	}
	text := list(ids, "differs", "differ") + " from the fleet"
	if len(ids) == 1 {
		text += ": " + differs
	}
	return append(found, Problem{"differs", Warning, text + ".", "Set the same on all replicas.", "settings"})
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

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

package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/lease"
)

func unreadServers(p *patient) (all []Finding) {
	for _, u := range p.s.Unread {
		all = append(all, found(Wrong, u.Server, "Start that server, or promote a replica of it.",
			"%s. Its devices can be neither registered nor found, and nothing of theirs is swept", upper(u.Sentence())))
	}
	return all
}

func refusedWrites(p *patient) []Finding {
	if p.g.refused == nil || p.s.full() { // the finding memory
		return nil
	}
	text, do := explained(p.g.refused)
	return stopping(wrong(do, "%s. No device can be registered, no heartbeat lands, and nothing is swept",
		upper(text)))
}

func damage(p *patient) (all []Finding) {
	for _, d := range p.g.damaged {
		all = append(all, found(d.level, d.Key,
			"Find what wrote it, or use a prefix. If it stays: redis-cli DEL '"+d.Key+"'.",
			"%s is a %s but must be a %s: %s", d.Key, d.Is, d.Must, d.follows))
	}
	if len(all) == 0 {
		return fine("every key has the right type")
	}
	return all
}

func overwritten(p *patient) []Finding {
	o := p.s.overwritten
	if o == nil {
		return nil
	}
	return wrong(fmt.Sprintf("redis-cli SET '%s' %d.", o.key, o.parts), "%s is %s, but the fleet has %d: "+
		"somebody overwrote it, and no replica can join", o.key, o.is, o.parts)
}

func leads(p *patient) []Finding {
	l := p.g.leader
	switch {
	case (l == nil || !l.begun()) && (p.g.refused != nil || p.s.full()): // that is why
		return nil
	case l == nil && p.s.Instances != nil && len(p.s.living()) == 0:
		return stopping(wrong("Start one. If some run, look into their logs, and "+
			"ask rollcall doctor with their user of Redis.",
			"No replica has a heartbeat, so nobody leads, and nothing dead is swept"))
	case l == nil:
		return stopping(wrong("Look into the replicas' logs why none takes the lease.",
			"Nobody leads, so nothing dead is swept"))
	case !l.begun() && l.silent:
		return stopping(wrong("If no other takes over when that ends, look into the replicas' logs; "+
			"if it never ends, delete it.",
			"Nobody leads: %s holds the lease%s but is no living instance", l.Instance, l.left()))
	case !l.begun():
		return stopping(warning("If that lasts, look into its log.",
			"%s has the lease but has not begun its term; nothing is swept until then", l.Instance))
	case l.silent && l.ExpiresIn != "":
		return warning("Check that it is alive, if it should be. If the lease outlasts its TTL, delete it.",
			"%s holds the lease%s but sends no heartbeat", l.Instance, l.left())
	case l.Since.IsZero():
		return fine("%s leads", l.Instance)
	}
	return fine("%s has led for %s", l.Instance, Short(p.g.now.Sub(l.Since)))
}

func leaseEnds(p *patient) []Finding {
	switch l := p.g.leader; {
	case l == nil:
		return fine("free")
	case l.ExpiresIn == "":
		return warning("Contenders cap it after one lease TTL.",
			"The lease of %s never expires: somebody wrote the key by hand", l.Instance)
	default:
		return fine("expires in %s unless renewed", l.ExpiresIn)
	}
}

// epochAhead detects a clock that was once ahead: epochs are drawn from it, and never fall.
func epochAhead(p *patient) []Finding {
	h, _, err := lease.ReadHolder(p.ctx, p.client, p.keys.Lease())
	if err != nil {
		return failed(err)
	}
	if h.Epoch == 0 && p.g.leader != nil {
		return warning("Nothing: the next term draws a new number.",
			"The term's number is not there, although %s leads: somebody deleted it", p.g.leader.Instance)
	}
	at := time.UnixMicro(int64(min(h.Epoch, 1<<53)))
	if ahead := at.Sub(p.g.now); ahead > clockWarn {
		return warning("Nothing: it is harmless. A number more than a year ahead is ignored.",
			"The newest term's number is %s ahead of the server's clock, which was ahead once", Short(ahead))
	}
	return fine("%d", h.Epoch)
}

func paused(p *patient) []Finding {
	h := p.s.Hold
	if h == nil || h.Reason != "paused" {
		return nil
	}
	return stopping(warning("rollcall resume ends it.", "Sweeping is %s", h.Sentence))
}

func held(p *patient) []Finding {
	h := p.g.hold
	switch {
	case h == nil:
		return fine("nothing holds deletes")
	case h.Reason == "paused":
		return nil
	case h.Young:
		return stopping(fine("%s", h.Sentence))
	}
	all := stopping(warning("", "Sweeping is held (%s): %s", h.Reason, h.Sentence))
	all[0].Name, all[0].Runbook = h.Reason, "runbook.md#"+h.Runbook
	return all
}

func listens(p *patient) []Finding {
	w, ago := p.g.witness, p.g.now.Sub(p.g.witness.LastTick)
	const do = "Look whether replicas with a janitor run, and what they log."
	switch {
	case p.g.heard && p.g.hold != nil && p.g.hold.Reason != "paused":
		return fine("Redis is listened to; what holds was last seen %s", Ago(p.g.now.Sub(w.Since)))
	case p.g.heard:
		return fine("Redis is listened to, without a hold for %s", Short(w.free(p.g.now)))
	case p.g.refused != nil, p.s.full(), w.LastTick.IsZero() && p.s.noFleet(): // that is why
		return nil
	case ago < -clockWarn:
		return stopping(wrong("Set the clock of Redis' machine by NTP.",
			"The last tick is %s in the future: the clock of Redis went back", Short(-ago)))
	case w.LastTick.IsZero():
		return stopping(wrong(do, "Nobody has listened to this Redis yet, so nothing is swept"))
	}
	return stopping(wrong(do, "Nobody listens to Redis: the last tick was %s, so nothing is swept", Ago(ago)))
}

// forgotten is how old a dry run is when it becomes a finding.
const forgotten = time.Hour

func dryRun(p *patient) []Finding {
	for _, in := range p.s.Instances {
		if p.s.Leads(in.ID) == "" || !in.Knows.DryRun {
			continue
		}
		const text = "%s leads and only reports (a dry run): nothing is deleted"
		if p.g.now.Sub(in.Started) < forgotten {
			return stopping(fine(text, in.ID))
		}
		return stopping(warning("Unset JANITOR_DRY_RUN (of cleanup: CLEANUP_DRY_RUN) on all replicas.", text, in.ID))
	}
	return nil
}

// programs: each of ingest, cleanup and availability sweeps by its own rules.
func programs(p *patient) []Finding {
	by := map[string][]string{}
	for _, in := range p.s.Instances {
		if in.Alive && in.Program != "" && in.Program != "janitor" {
			by[in.Program] = append(by[in.Program], in.ID)
		}
	}
	if len(by) < 2 {
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%s (%s)", name, few(by[name])))
	}
	return wrong("Give each program a prefix, or a Redis, of its own.",
		"Two programs are in one fleet: %s; whichever leads, the sweeps of the other do not run", strings.Join(all, " and "))
}

func settings(p *patient) []Finding {
	var differ []string
	for _, in := range p.s.Instances {
		if in.Differs != "" && len(in.SilentIn) == 0 {
			differ = append(differ, in.ID+" ("+in.Differs+")")
		}
	}
	const do = "Set the same HEARTBEAT_INTERVAL and HEARTBEAT_TTL on all."
	w := p.g.witness
	switch ago := p.g.now.Sub(w.LastHold); {
	case len(differ) > 0:
		return wrong(do, "Replicas disagree, so nothing is swept: %s", few(differ))
	case w.Reason != "settings" || ago > w.need:
	case ago <= 2*w.gap: // each replica ticks once per GAP
		return wrong(do, "Replicas disagreed %s about HEARTBEAT_INTERVAL or HEARTBEAT_TTL", Ago(ago))
	default:
		return warning("The hold ends by itself.", "Replicas disagreed %s but have agreed since", Ago(ago))
	}
	if w.TTL == 0 {
		return fine("none are known yet")
	}
	return fine("TTL %s, interval %s", Short(w.TTL), Short(w.Interval))
}

func replicas(p *patient) []Finding {
	n, most, lately := len(p.s.living()), 0, 0
	for _, m := range p.s.hour {
		most = max(most, m.Living)
		lately = m.Living // a restart is over by the next minute
	}
	switch {
	case n < p.expect:
		return wrong("Start the rest.", "%d live, %d are expected", n, p.expect)
	case p.expect > 0 && n > p.expect:
		return warning("", "%d live, %d are expected", n, p.expect)
	case p.expect == 0 && max(n, lately) < most && p.g.refused == nil && !p.s.full():
		return warning("Start the rest, if they are meant to run.",
			"%d of the %d replicas of the last hour live", n, most)
	case p.expect > 0:
		return fine("%d live, as expected", n)
	}
	return fine("%d live", n)
}

func heartbeats(p *patient) []Finding {
	var forever, partly, silent, late, where []string
	left := int64(0)
	for _, in := range p.s.Instances {
		switch {
		case in.Alive && in.ExpiresIn == "0s":
			forever = append(forever, in.ID)
		case len(in.SilentIn) > 0:
			partly, where = append(partly, in.ID), append(where, in.ID+" ("+in.Differs+")")
		case p.s.Late(in):
			late = append(late, in.ID)
		case !in.Alive && in.Devices != 0 && in.Doubt == nil:
			silent = append(silent, in.ID)
			if left += in.left; in.left < 0 {
				left = -1 << 40
			}
		}
	}
	var all []Finding
	add := func(name string, level Level, do, format string, args ...any) {
		all = append(all, found(level, name, do, format, args...))
	}
	if p.g.refused != nil || p.s.full() { // no heartbeat lands, by another finding
		return nil
	}
	if len(forever) > 0 {
		add("forever", Wrong, "Delete the keys instance:heartbeat:ID of those that are gone.",
			"Heartbeats that never expire: %s; these would never count as dead", few(forever))
	}
	if len(silent) > 0 {
		text := list(silent, "is silent", "are silent")
		if left > 0 {
			text += "; " + one(left, "entry is", "entries are") + " still in " + its(silent, "its name", "their names")
		}
		do := "The leader sweeps what is left within seconds, or by the next full scan."
		if p.s.Stopped() != nil {
			do = "What is left stays until sweeping goes on, unless its owner comes back first."
		}
		add("silent", Warning, do, "%s", text)
	}
	if len(late) > 0 {
		add("late", Warning, "Look whether it lives, and reaches Redis.",
			"%s: no heartbeat for more than one and a half intervals", list(late, "is late", "are late"))
	}
	if len(partly) > 0 {
		add("partly", Warning, "Its entries there are swept unless it beats: look into its log.",
			"Silent in some partitions: %s", few(where))
	}
	if len(all) == 0 {
		return fine("%d live", len(p.s.living()))
	}
	return all
}

func its(ids []string, its, their string) string {
	if len(ids) == 1 {
		return its
	}
	return their
}

// failing is what replicas have written of themselves, of many the same once.
func failing(p *patient) (all []Finding) {
	of := map[string][]string{}
	by := map[string]Finding{}
	told, _ := Cause(p.g.refused)
	for _, in := range append(slices.Clone(p.s.Instances), p.s.own) {
		if !in.Alive && len(in.Knows.Failing)+len(in.Knows.Lacks) == 0 {
			continue
		}
		for _, f := range in.Knows.findings(p.g.now) {
			switch { // what has a finding of its own
			case f.cause != "" && f.cause == told,
				f.cause == fullRedis && p.s.full(),
				f.cause == noAnswer && len(p.s.Unread) > 0:
				continue
			}
			key := f.Name + f.Sentence
			of[key], by[key] = append(of[key], in.ID), f
		}
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		f := by[key]
		f.Sentence = few(of[key]) + ": " + f.Sentence
		all = append(all, f)
	}
	return all
}

func lost(p *patient) []Finding {
	s := p.s
	if len(s.Losses) == 0 {
		return fine("none within the last %s", Short(lately))
	}
	evicted := int64(0)
	var ids []string
	for _, l := range s.Losses {
		evicted += int64(l.Evicted)
		ids = append(ids, l.Instance)
	}
	text := few(ids) + " were lost within the last " + Short(lately) + ", without a goodbye"
	if len(ids) == 1 {
		text = s.Losses[0].sentence(s.Now)
	}
	if evicted > 0 {
		of := "of " + its(ids, "its", "their") + " entries "
		text += fmt.Sprintf("; %s evicted", one(evicted, of+"was", of+"were"))
	} else {
		text += "; no entries were evicted"
	}
	return warning("Look at the log and the machine. Devices that connect again are registered elsewhere.", "%s", text)
}

var doubtMeaning = map[string]string{
	string(doubt.Most):    "together with most others that hold devices",
	string(doubt.Refused): "while Redis turns clients away",
}

// doubted is one finding for each kind of doubt.
func doubted(p *patient) (all []Finding) {
	if p.g.refused != nil { // no heartbeat lands, by another finding
		return nil
	}
	for _, reason := range []string{string(doubt.Most), string(doubt.Refused)} {
		var ids []string
		var until time.Time
		for _, in := range p.s.Instances {
			if in.Doubt != nil && in.Doubt.Reason == reason {
				ids = append(ids, in.ID)
				if in.Doubt.Until.After(until) {
					until = in.Doubt.Until
				}
			}
		}
		if len(ids) > 0 {
			f := found(Warning, reason,
				"Check whether they are alive. If so, they heal once Redis takes their heartbeats.",
				"%s silent %s; entries are kept for %s more at most", list(ids, "is", "are"), doubtMeaning[reason],
				Short(until.Sub(p.s.Now)))
			f.Runbook = "runbook.md#" + reason
			all = append(all, f)
		}
	}
	return all
}

func oldWriters(p *patient) []Finding {
	var old []string
	for _, in := range p.s.Instances {
		switch {
		case in.Old && in.Devices < 0:
			old = append(old, in.ID)
		case in.Old:
			old = append(old, fmt.Sprintf("%s (%s)", in.ID, one(in.Devices, "entry", "entries")))
		}
	}
	if len(old) == 0 {
		return fine("none")
	}
	return quietly(warning("Use an owner of docs/protocol.md.", "Plain writers, which live but have no boot token, or "+
		"are not on the roster: %s; they do not restore entries that Redis loses, and only the full scan sweeps them",
		few(old)))
}

package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

func rosterCut(p *patient) []Finding {
	if p.s.Cut == 0 {
		return nil
	}
	return warning("Find what writes them. Those without a heartbeat are swept.",
		"The roster lists %d further instances, which are not shown here", p.s.Cut)
}

// least entries of a registry, or candidates of a rule, whose half is remarkable.
const least = 20

func entries(p *patient) (all []Finding) {
	s := p.s
	if n := len(s.Unreadable); n > 0 {
		text := "The entry of " + s.Unreadable[0] + " names"
		if n > 1 {
			text = fmt.Sprintf("%d entries (%s) name", n, few(s.Unreadable))
		}
		all = append(all, found(Warning, "unreadable", "Find what writes it, then delete it: rollcall why IMEI says how.",
			"%s what can be no instance: nobody can judge that, so it stays", text))
	}
	most := int64(0)
	for _, m := range s.hour {
		if s.Now.Sub(m.At) <= lately {
			most = max(most, m.Entries)
		}
	}
	if gone := most - s.Entries; most >= least && 2*s.Entries < most && int64(2*s.evicted) < gone {
		f := found(Warning, "fell",
			"Look whether devices reach the replicas, whether the device authority knows them, and who deletes keys.",
			"The registry fell from %d to %s within the last %s, and only %d of these were evicted",
			most, one(s.Entries, "entry", "entries"), Short(lately), s.evicted)
		f.Runbook = "runbook.md#rollcallshrank"
		all = append(all, f)
	}
	if len(all) == 0 {
		return fine("%d; those that were looked at name instances", s.Entries)
	}
	return all
}

func indexes(p *patient) []Finding {
	for _, in := range p.s.Instances {
		if in.BadIndex {
			return wrong("Find its writer, then delete it.", "%s is not a set, so it is left alone and %s stays on the roster",
				p.keys.Devices(in.ID), in.ID)
		}
	}
	page, err := guard.HScan(p.ctx, p.client, p.keys.Registry(), 0, pageSize)
	if err != nil {
		return failed(err)
	}
	v := &verification{owners: map[string]*OwnerCount{}}
	if err := p.compare(p.ctx, page.Items, v); err != nil {
		return failed(err)
	}
	missing, looked := 0, 0
	for _, in := range p.s.Instances {
		o := v.owners[in.ID]
		if o == nil || !in.Alive || in.Old {
			continue
		}
		missing, looked = missing+o.NotIndexed, looked+o.Entries
	}
	if missing > 0 {
		return warning("Nothing: owners restore it within ten intervals, and the full scan works without it.",
			"Of %d entries checked, the indexes of their live owners lack %d: the index was lost, or "+
				"REGISTRY_REVERSE_INDEX is off", looked, missing)
	}
	return fine("of %d entries checked, none is missing", looked)
}

func logLost(p *patient) []Finding {
	if p.g.leader == nil || !p.g.leader.LogLost {
		return nil
	}
	return warning("Find what deleted it: DEL, or a maxmemory-policy that evicts keys. "+
		"Sweeping goes on, and the next eviction or term begins a new log.",
		"The eviction log is lost: nobody can tell what was evicted before")
}

// logLimit is twice the size to which the leader trims the log by default.
const logLimit = 20_000_000

func logSize(p *patient) []Finding {
	n, err := p.client.XLen(p.ctx, p.keys.Log()).Result()
	if err != nil {
		return failed(err)
	}
	if n == 0 {
		return fine("empty")
	}
	bytes, err := p.client.MemoryUsage(p.ctx, p.keys.Log()).Result()
	if err != nil {
		return warning("", "%d records; its size could not be read (%v)", n, err)
	}
	text := fmt.Sprintf("%d records, %.1f MB", n, float64(bytes)/1e6)
	if bytes > logLimit {
		return warning("Allow the leader xtrim and memory|usage, and check whether passes fail.",
			"The eviction log has %s: more than the leader should leave", text)
	}
	return fine("%s", text)
}

func tookMost(p *patient) (all []Finding) {
	for _, sweep := range slices.Sorted(maps.Keys(p.s.taken)) {
		n := p.s.taken[sweep]
		i := slices.IndexFunc(p.s.Passes, func(r janitor.Report) bool { return r.Sweep == sweep })
		if n < least || i >= 0 && n <= p.s.Passes[i].Scanned {
			continue
		}
		all = append(all, found(Warning, sweep, "If that is wrong: rollcall pause, mend the rule, then rollcall restore "+
			"--last --sweep "+sweep+". Without a bin nothing brings it back: give the rule one.",
			"The rule %s took %d within the last %s, most of what it looks at", sweep, n, Short(lately)))
	}
	return all
}

// unswept is how many entries a pass tried in vain to delete.
func unswept(r janitor.Report) int64 {
	if r.Outcome != janitor.Done || r.DryRun || !isEntries(r.Sweep) {
		return 0
	}
	n := r.Condemned - r.Evicted
	for reason, spared := range r.Spared {
		if reason != janitor.SkipUnreadable { // what Redis refused, among others
			n -= spared
		}
	}
	return int64(n)
}

func passes(p *patient) (all []Finding) {
	say := func(r janitor.Report, runbook, do, format string, args ...any) *Finding {
		all = append(all, found(Wrong, r.Sweep, do, format, args...))
		f := &all[len(all)-1]
		f.Runbook = runbook
		return f
	}
	by := map[string][]string{} // sweeps by their error, which is one of a server that is away
	for _, r := range p.s.Passes {
		if r.Outcome == janitor.Failed {
			by[r.Error] = append(by[r.Error], r.Sweep)
		}
	}
	for _, r := range p.s.Passes {
		text := strings.TrimSuffix(r.Reason+": "+brief(r.Error), ": ")
		_, ofFleet := holdMeaning[r.Reason]
		switch {
		case r.Outcome == janitor.Failed:
			if same := by[r.Error]; same[0] == r.Sweep {
				say(r, "", "", "The last pass of %s failed: %s", strings.Join(same, ", "), brief(r.Error)).stops =
					slices.ContainsFunc(same, isEntries)
			}
		case unswept(r) > 0:
			say(r, refuses, "rollcall doctor, with the replicas' user, names a right that is missing; "+
				"the leader's log has the refusal.", "Redis refused to delete %s that the last pass of %s condemned",
				one(unswept(r), "entry", "entries"), r.Sweep).stops = true
		case r.Outcome != janitor.Held || ofFleet || r.Reason == "paused" || r.Reason == "pause_unknown":
		case r.Reason == "mass_failure":
			say(r, "runbook.md#cleanupabouttotakemost", "If that is wrong, now: rollcall pause 'the rule is wrong', "+
				"then mend it. Without a bin nothing brings back what it takes.",
				"The rule %s condemns more than half of its %d candidates: they go once its hold is over", r.Sweep,
				r.Scanned)
		case r.Reason == "listening":
			all = append(all, fine("The rule %s does not judge yet: %s.", r.Sweep, text)...)
			all[len(all)-1].Name = r.Sweep
		default:
			say(r, "runbook.md#why-a-rule-is-held", "", "The rule %s is held: %s", r.Sweep, text)
		}
	}
	switch {
	case len(all) > 0:
		return all
	case len(p.s.Passes) == 0:
		return fine("none is known")
	}
	return fine("the last of each sweep did not fail")
}

// isEntries is of the sweeps of the registry's entries.
func isEntries(sweep string) bool { return sweep == "owners" || sweep == "registry" }

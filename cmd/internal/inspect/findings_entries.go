package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

func rosterCut(_ context.Context, p *patient) ([]Finding, error) {
	if p.s.Cut == 0 {
		return nil, nil
	}
	return warning("Find what writes them. Those without a heartbeat are swept.",
		"The roster lists %d further instances, which are not shown here", p.s.Cut)
}

// least entries of a registry, or candidates of a rule, whose half is remarkable.
const least = 20

func entries(_ context.Context, p *patient) ([]Finding, error) {
	s := p.s
	var found []Finding
	if n := len(s.Unreadable); n > 0 {
		text := "The entry of " + s.Unreadable[0] + " names"
		if n > 1 {
			text = fmt.Sprintf("%d entries (%s) name", n, few(s.Unreadable))
		}
		found = append(found, Finding{Name: "unreadable", Level: Warning, Sentence: text + " what can be no instance: " +
			"nobody can judge that, so it stays.", Do: "Find what writes it, then delete it: rollcall why IMEI says how."})
	}
	most := int64(0)
	for _, m := range s.hour {
		if s.Now.Sub(m.At) <= Lately {
			most = max(most, m.Entries)
		}
	}
	if gone := most - s.Entries; most >= least && 2*s.Entries < most && int64(2*s.evicted) < gone {
		found = append(found, Finding{Name: "fell", Level: Warning, Runbook: "runbook.md#rollcallshrank",
			Sentence: fmt.Sprintf("The registry fell from %d to %s within the last %s, and only %d of these were evicted.",
				most, one(s.Entries, "entry", "entries"), Short(Lately), s.evicted),
			Do: "Look whether devices reach the replicas, whether the device authority knows them, and who deletes keys."})
	}
	if len(found) > 0 {
		return found, nil
	}
	return fine("%d; those that were looked at name instances", s.Entries)
}

func indexes(ctx context.Context, p *patient) ([]Finding, error) {
	for _, in := range p.s.Instances {
		if in.BadIndex {
			return wrong("Find its writer, then delete it.", "%s is not a set, so it is left alone and %s stays on the roster",
				p.keys.Devices(in.ID), in.ID)
		}
	}
	page, err := guard.HScan(ctx, p.client, p.keys.Registry(), 0, pageSize)
	if err != nil {
		return nil, err
	}
	v := newVerification()
	if err := p.compare(ctx, page.Items, v); err != nil {
		return nil, err
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

func logLost(_ context.Context, p *patient) ([]Finding, error) {
	if p.g.leader == nil || !p.g.leader.LogLost {
		return nil, nil
	}
	return warning("Find what deleted it: DEL, or a maxmemory-policy that evicts keys. "+
		"Sweeping goes on, and the next eviction or term begins a new log.",
		"The eviction log is lost: nobody can tell what was evicted before")
}

// logLimit is twice the size to which the leader trims the log by default.
const logLimit = 20_000_000

func logSize(ctx context.Context, p *patient) ([]Finding, error) {
	n, err := p.client.XLen(ctx, p.keys.Log()).Result()
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return fine("empty")
	}
	bytes, err := p.client.MemoryUsage(ctx, p.keys.Log()).Result()
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

func tookMost(_ context.Context, p *patient) (found []Finding, err error) {
	for _, sweep := range slices.Sorted(maps.Keys(p.s.taken)) {
		n := p.s.taken[sweep]
		i := slices.IndexFunc(p.s.Passes, func(r janitor.Report) bool { return r.Sweep == sweep })
		if n < least || i >= 0 && n <= p.s.Passes[i].Scanned {
			continue
		}
		found = append(found, Finding{Name: sweep, Level: Warning,
			Sentence: fmt.Sprintf("The rule %s took %d within the last %s, most of what it looks at.", sweep, n, Short(Lately)),
			Do: "If that is wrong: rollcall pause, mend the rule, then rollcall restore --last --sweep " + sweep +
				". Without a bin nothing brings it back: give the rule one."})
	}
	return found, nil
}

// unswept is how many entries a pass tried in vain to delete.
func unswept(r janitor.Report) int64 {
	if r.Outcome != janitor.Done || r.DryRun || r.Sweep != "owners" && r.Sweep != "registry" {
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

func passes(_ context.Context, p *patient) (found []Finding, err error) {
	for _, r := range p.s.Passes {
		text := strings.TrimSuffix(r.Reason+": "+brief(r.Error), ": ")
		_, ofFleet := holdMeaning[r.Reason]
		switch {
		case r.Outcome == janitor.Failed:
			f := Finding{Name: r.Sweep, Level: Wrong, stops: r.Sweep == "owners" || r.Sweep == "registry",
				Sentence: fmt.Sprintf("The last pass of %s failed: %s.", r.Sweep, brief(r.Error))}
			same := slices.IndexFunc(found, func(o Finding) bool { // one error of a server that is away
				return o.Level == Wrong && strings.HasSuffix(o.Sentence, " failed: "+brief(r.Error)+".")
			})
			if same < 0 || f.stops != found[same].stops {
				found = append(found, f)
			} else {
				found[same].Sentence = strings.Replace(found[same].Sentence, " failed: ", ", "+r.Sweep+" failed: ", 1)
			}
		case unswept(r) > 0:
			found = append(found, Finding{Name: r.Sweep, Level: Wrong, stops: true,
				Runbook: "redis.md#what-redis-may-refuse",
				Sentence: fmt.Sprintf("Redis refused to delete %s that the last pass of %s condemned.",
					one(unswept(r), "entry", "entries"), r.Sweep),
				Do: "rollcall doctor, with the replicas' user, names a right that is missing; " +
					"the leader's log has the refusal."})
		case r.Outcome != janitor.Held || ofFleet || r.Reason == "paused" || r.Reason == "pause_unknown":
		case r.Reason == "mass_failure":
			found = append(found, Finding{Name: r.Sweep, Level: Wrong, Runbook: "runbook.md#cleanupabouttotakemost",
				Sentence: fmt.Sprintf("The rule %s condemns more than half of its %d candidates: they go once its hold is over.",
					r.Sweep, r.Scanned),
				Do: "If that is wrong, now: rollcall pause 'the rule is wrong', then mend it. Without a bin nothing brings back " +
					"what it takes."})
		case r.Reason == "listening":
			found = append(found, Finding{Name: r.Sweep, Level: OK,
				Sentence: fmt.Sprintf("The rule %s does not judge yet: %s.", r.Sweep, text)})
		default:
			found = append(found, Finding{Name: r.Sweep, Level: Wrong, Runbook: "runbook.md#why-a-rule-is-held",
				Sentence: fmt.Sprintf("The rule %s is held: %s.", r.Sweep, text)})
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(p.s.Passes) == 0:
		return fine("none is known")
	}
	return fine("the last of each sweep did not fail")
}

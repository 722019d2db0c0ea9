package inspect

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

func checkLeader(_ context.Context, p *patient) (found, error) {
	switch l := p.status.Leader; {
	case l == nil && len(p.living()) == 0:
		return wrong("no replica is alive, so nobody leads; start one")
	case l == nil:
		return wrong("nobody leads, so nothing dead is swept; look at runbook.md#rollcallnobodyleads")
	case !l.begun():
		return warn("%s has the lease but has not begun its term; nothing is swept until then. "+
			"If that lasts, check its log", l.Instance)
	case l.Since.IsZero():
		return fine("%s leads", l.Instance)
	default:
		return fine("%s has led for %s", l.Instance, Short(p.status.Now.Sub(l.Since)))
	}
}

func checkLease(ctx context.Context, p *patient) (found, error) {
	h, held, err := lease.ReadHolder(ctx, p.client, p.keys.Lease())
	switch {
	case err != nil:
		return found{}, err
	case !held:
		return fine("free")
	case h.TTL < 0:
		return wrong("%s never expires: somebody wrote it by hand; contenders cap it after a lease TTL, "+
			"or delete it", p.keys.Lease())
	}
	return fine("expires in %s unless renewed", Short(h.TTL))
}

// checkEpoch detects a clock that was once ahead: epochs are drawn from it, and never fall.
func checkEpoch(ctx context.Context, p *patient) (found, error) {
	h, _, err := lease.ReadHolder(ctx, p.client, p.keys.Lease())
	if err != nil {
		return found{}, err
	}
	if h.Epoch == 0 && p.status.Leader != nil {
		return warn("not there, although %s leads: somebody deleted it; harmless, the next term draws a new number",
			p.status.Leader.Instance)
	}
	at := time.UnixMicro(int64(min(h.Epoch, 1<<53)))
	if ahead := at.Sub(p.status.Now); ahead > clockWarn {
		return warn("the newest term's number is %s ahead of the server's clock, which was ahead once; "+
			"harmless, but the number does not show when the term began. A number more than a year ahead "+
			"is ignored", Short(ahead))
	}
	return fine("%d", h.Epoch)
}

func checkWitness(_ context.Context, p *patient) (found, error) {
	w := p.status.Witness
	switch {
	case p.status.Heard && p.status.Hold != nil && p.status.Hold.Reason != "paused":
		return fine("Redis is listened to; what holds was last seen %s", Ago(p.status.Now.Sub(w.Since)))
	case p.status.Heard:
		return fine("Redis is listened to, without a hold for %s", Short(p.status.Now.Sub(w.Since)))
	case w.LastTick.After(p.status.Now):
		return wrong("the last tick is %s in the future: the server's clock went back",
			Short(w.LastTick.Sub(p.status.Now)))
	case len(p.living()) == 0:
		return wrong("no replica is alive, so nobody listens to Redis")
	case p.status.full():
		return wrong("Redis is full: nobody has been able to tick for %s, so nothing is swept; give it memory",
			Short(p.status.Now.Sub(w.LastTick)))
	case w.LastTick.IsZero():
		return wrong("nobody has listened to Redis yet, so nothing is swept: a janitor has to run")
	}
	return wrong("nobody has listened to Redis for %s, so nothing is swept: a janitor has to run",
		Short(p.status.Now.Sub(w.LastTick)))
}

func checkHold(_ context.Context, p *patient) (found, error) {
	if h := p.status.Hold; h != nil {
		return warn("%s: %s", h.Reason, h.Sentence)
	}
	return fine("nothing holds deletes")
}

func checkSettings(_ context.Context, p *patient) (found, error) {
	var differ []string
	for _, in := range p.status.Instances {
		if in.Differs != "" && len(in.SilentIn) == 0 {
			differ = append(differ, in.ID+" ("+in.Differs+")")
		}
	}
	if len(differ) > 0 {
		return wrong("replicas disagree, so nothing is swept: %s; set the same HEARTBEAT_INTERVAL and "+
			"HEARTBEAT_TTL on all", few(differ))
	}
	w := p.status.Witness
	switch ago := p.status.Now.Sub(w.LastHold); {
	case w.Reason != "settings" || ago > w.need:
	case ago <= 2*w.gap: // each replica ticks once per GAP
		return wrong("replicas disagreed %s about HEARTBEAT_INTERVAL or HEARTBEAT_TTL; set the same on all",
			Ago(ago))
	default:
		return warn("replicas disagreed %s but have agreed since; the hold ends by itself", Ago(ago))
	}
	if w.TTL == 0 {
		return fine("none are known yet")
	}
	return fine("TTL %s, interval %s", Short(w.TTL), Short(w.Interval))
}

func checkReplicas(_ context.Context, p *patient) (found, error) {
	switch n := len(p.living()); {
	case p.expect == 0:
		return fine("%d live", n)
	case n < p.expect:
		return wrong("%d live, %d are expected; start the rest", n, p.expect)
	case n > p.expect:
		return warn("%d live, %d are expected", n, p.expect)
	default:
		return fine("%d live, as expected", n)
	}
}

func checkPasses(_ context.Context, p *patient) (found, error) {
	if len(p.status.Passes) == 0 {
		return fine("none is known")
	}
	return fine("the last of each sweep did not fail")
}

func checkEntries(_ context.Context, p *patient) (found, error) {
	return fine("%d; those that were looked at name instances", p.status.Entries)
}

func checkLosses(_ context.Context, p *patient) (found, error) {
	for _, lost := range p.status.lost() {
		return found{lost.Level, lost.Sentence + " " + lost.Do}, nil
	}
	return fine("none within the last %s", Short(Lately))
}

func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func checkHeartbeats(_ context.Context, p *patient) (found, error) {
	var forever, partly []string
	var silent []string
	for _, in := range p.status.Instances {
		if in.Alive && in.ExpiresIn == "0s" {
			forever = append(forever, in.ID)
		}
		switch {
		case len(in.SilentIn) > 0:
			partly = append(partly, in.ID+" ("+in.Differs+")")
		case !in.Alive:
			silent = append(silent, in.ID)
		}
	}
	if len(forever) > 0 {
		return wrong("heartbeats that never expire: %s: these instances would never count as dead; delete the keys %s",
			few(forever), p.keys.Heartbeat("ID"))
	}
	if len(partly) > 0 {
		return warn("%d live; silent in some partitions: %s: their entries there are swept unless they beat; "+
			"check their logs", len(p.living()), few(partly))
	}
	if len(silent) > 0 {
		return warn("%d live; silent: %s; what they left is swept unless they beat, and unless something "+
			"holds that", len(p.living()), few(silent))
	}
	return fine("%d live", len(p.living()))
}

func checkOldWriters(_ context.Context, p *patient) (found, error) {
	var old []string
	for _, in := range p.status.Instances {
		switch {
		case in.Old && in.Devices < 0:
			old = append(old, in.ID)
		case in.Old:
			old = append(old, fmt.Sprintf("%s (%d entries)", in.ID, in.Devices))
		}
	}
	if len(old) > 0 {
		return warn("plain writers, which live but have no boot token, or are not on the roster: %s: they do "+
			"not restore entries that Redis loses, and only the full scan sweeps them; use an owner of "+
			"docs/protocol.md", few(old))
	}
	return fine("none")
}

func checkIndex(ctx context.Context, p *patient) (found, error) {
	page, err := guard.HScan(ctx, p.client, p.keys.Registry(), 0, pageSize)
	if err != nil {
		return found{}, err
	}
	for _, in := range p.status.Instances {
		if in.BadIndex {
			return wrong("%s is not a set, so it is left alone and %s stays on the roster; find its writer, then delete it",
				p.keys.Devices(in.ID), in.ID)
		}
	}
	v := newVerification()
	if err := p.compare(ctx, page.Items, v); err != nil {
		return found{}, err
	}
	missing, looked := 0, 0
	for _, in := range p.status.Instances {
		o := v.owners[in.ID]
		if o == nil || !in.Alive || in.Old {
			continue
		}
		missing, looked = missing+o.NotIndexed, looked+o.Entries
	}
	if missing > 0 {
		return warn("of %d entries checked, the indexes of their live owners lack %d: the index was lost, or "+
			"REGISTRY_REVERSE_INDEX is off; owners restore it within ten intervals, and the full scan works without it",
			looked, missing)
	}
	return fine("of %d entries checked, none is missing", looked)
}

// logLimit is twice the size to which the leader trims the log by default.
const logLimit = 20_000_000

func checkLog(ctx context.Context, p *patient) (found, error) {
	n, err := p.client.XLen(ctx, p.keys.Log()).Result()
	if err != nil {
		return found{}, err
	}
	bytes, err := p.client.MemoryUsage(ctx, p.keys.Log()).Result()
	if n == 0 && p.status.Leader != nil && p.status.Leader.LogLost {
		return warn("lost: nobody can tell what was evicted before; find what deleted it (DEL, or a " +
			"maxmemory-policy that evicts keys). Sweeping goes on, and the next eviction or term begins a new one")
	}
	if n == 0 {
		return fine("empty")
	}
	if err != nil {
		return warn("%d records; its size could not be read (%v)", n, err)
	}
	text := fmt.Sprintf("%d records, %.1f MB", n, float64(bytes)/1e6)
	if bytes > logLimit {
		return warn("%s: larger than the leader should leave it; allow it xtrim and memory|usage, "+
			"and check whether passes fail", text)
	}
	return fine("%s", text)
}

package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/janitor"
)

// glance is the part of a partition's state that decides about sweeping.
type glance struct {
	number  int
	now     time.Time
	witness Witness
	heard   bool // lately
	hold    *Hold
	leader  *Leader
	damaged []damagedKey
	refused error // why Redis refuses writes
}

type look struct {
	glance
	unread  bool // no answer, and all else is empty
	entries int64

	beatsAt   time.Time // by the server's clock
	sampledAt time.Time
	sampled
	roster []string
	cut    int64
	beats  map[string]beating
	doubts map[string]suspicion
}

// sampleEvery is how often owners on no roster are looked for.
const sampleEvery = 10 * time.Second

func (w *Watch) read(ctx context.Context, to reached, servers []Server) (s Status, err error) {
	var pause *janitor.Pause
	var left time.Duration
	if to.fleet {
		if pause, left, err = w.pause(ctx); err != nil {
			return s, err
		}
	}
	for k := range w.looks {
		if !slices.Contains(to.parts, to.all[k]) {
			w.looks[k] = look{unread: true}
		}
	}
	if _, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (_ struct{}, err error) {
		l := &w.looks[part.number]
		l.unread = false
		if l.glance, err = part.glance(ctx, to.now(part), pause, left); err != nil {
			return
		}
		if l.damaged, err = part.damaged(ctx, to.fleet); err != nil {
			return
		}
		if l.entries, err = part.client.HLen(ctx, part.keys.Registry()).Result(); unreadable(err) {
			return struct{}{}, fmt.Errorf("inspect: size of the registry: %w", err)
		}
		if l.sampledAt.IsZero() || l.now.Sub(l.sampledAt).Abs() >= sampleEvery {
			l.sampledAt = l.now
			if l.sampled, err = part.sample(ctx, max(1, countUpTo/len(to.all))); err != nil {
				return
			}
		}
		l.roster, l.cut, err = part.roster(ctx)
		return
	}); err != nil {
		return s, err
	}
	known := map[string]bool{}
	for _, l := range w.looks {
		for id := range l.counted {
			known[id] = true
		}
		for _, id := range l.roster {
			known[id] = true
		}
	}
	ids := slices.Sorted(maps.Keys(known))
	asked := slices.Clone(ids)
	for _, l := range w.looks {
		if l.leader != nil && l.leader.unlogged {
			asked = append(asked, l.leader.Instance)
		}
	}
	if _, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (_ struct{}, err error) {
		l := &w.looks[part.number]
		l.beatsAt = to.now(part) // the TTL is computed from it
		if l.beats, err = part.heartbeats(ctx, asked); err != nil {
			return
		}
		l.doubts, err = part.doubts(ctx, l.witness, l.beatsAt, l.beats, ids)
		return
	}); err != nil {
		return s, err
	}
	abouts := map[string]About{}
	if to.fleet {
		if abouts, err = w.Abouts(ctx, asked); err != nil {
			return s, err
		}
	}
	for k, l := range w.looks {
		if h := l.leader; h != nil && h.unlogged {
			about, describes := abouts[h.Instance]
			h.report(about, describes && k == 0 && len(w.looks) == 1, about.of(l.beats[h.Instance]), l.now)
			if slices.ContainsFunc(l.damaged, func(d damagedKey) bool { return d.Key == to.all[k].keys.Log() }) {
				h.Epoch, h.LogLost = 0, false
			}
		}
	}
	s = w.assemble(ids, abouts, servers)
	s.Unread = to.unread
	return s, nil
}

// neverWrites is a script that writes nothing, and that Redis refuses as it refuses writes.
const neverWrites = "#!lua\nreturn 1"

// refusal returns why Redis refuses writes, or nil. While ticks land it does not, and is not asked.
func (r *Reader) refusal(ctx context.Context, w Witness, now time.Time) error {
	at, err := r.at(ctx)
	if err != nil || w.heard(now) {
		return nil
	}
	err = at.Eval(ctx, neverWrites, nil).Err()
	for _, word := range []string{"MISCONF", "NOREPLICAS", "READONLY", "OOM"} {
		if redis.HasErrorPrefix(err, word) {
			return err
		}
	}
	return nil
}

// glance reads what decides about sweeping.
func (r *Reader) glance(
	ctx context.Context, now time.Time, pause *janitor.Pause, left time.Duration,
) (g glance, err error) {
	g.number, g.now = r.number, now
	if g.witness, err = r.witness(ctx); err != nil {
		return g, err
	}
	g.heard = g.witness.heard(now)
	g.refused = r.refusal(ctx, g.witness, now)
	g.hold = holdOf(pause, left, g.witness, now, g.heard && g.refused == nil)
	g.leader, err = r.leader(ctx, now)
	return g, err
}

func (w *Watch) assemble(ids []string, abouts map[string]About, servers []Server) Status {
	var worst *look
	for k := range w.looks {
		if l := &w.looks[k]; !l.unread && (worst == nil || l.worseThan(*worst)) {
			worst = l
		}
	}
	st := Status{
		Now: worst.now, Leader: w.looks[0].leader, Hold: worst.hold, Witness: worst.witness, Heard: worst.heard,
		Instances: []Instance{}, Sweeps: []Record{}, Redis: servers[0], servers: servers,
	}
	for _, sweep := range slices.Sorted(maps.Keys(w.last)) {
		st.Sweeps = append(st.Sweeps, w.last[sweep])
	}
	st.Witness.Evicted = 0
	for _, l := range w.looks {
		if !l.unread {
			st.parts = append(st.parts, l.glance)
		}
		st.Witness.Evicted += l.witness.Evicted
		st.Entries += l.entries
		st.Damaged = append(st.Damaged, l.damaged...)
		st.Unreadable = append(st.Unreadable, l.unreadable...)
		st.Cut = max(st.Cut, l.cut)
	}
	st.Unreadable = st.Unreadable[:min(len(st.Unreadable), mostUnreadable)]
	if len(w.looks) > 1 {
		st.Partitions = w.partitions(worst.number)
	}
	for _, id := range ids {
		about, said := abouts[id]
		in := w.instance(id, about)
		if said && about.of(in.beat) {
			if !in.beat.Alive { // somebody else may be there by now
				about.Address = ""
			}
			st.describe(&in, about)
			if st.Leads(id) != "" {
				st.UnderWay, st.Passes = append(st.UnderWay, about.UnderWay...), append(st.Passes, about.Passes...)
			}
		}
		st.Instances = append(st.Instances, in)
	}
	st.Witness.settle(st.Instances)
	for i := range st.Instances {
		st.Instances[i].Differs = st.differs(st.Instances[i])
	}
	for _, in := range st.Instances {
		st.denied(in.Knows)
	}
	if st.Partitions != nil {
		st.Passes = partition.Sum(st.Passes)
	}
	if st.young() {
		st.Hold.Young = true // also in st.parts
		st.Hold.Sentence = fmt.Sprintf("the fleet has just started; sweeping begins in %s, when Redis has "+
			"been listened to for long enough", Short(st.Hold.Until.Sub(st.Now)))
	}
	return st
}

// young reports whether all that live started when the present hold began, or later: nobody could
// have listened before.
func (s *Status) young() bool {
	if s.Hold == nil || s.Hold.Reason != "gap" || s.Partitions != nil {
		return false
	}
	living := 0
	for _, in := range s.Instances {
		if !in.Alive {
			continue
		}
		if in.Started.IsZero() || in.Started.Add(s.Witness.gap).Before(s.Hold.Since) {
			return false
		}
		living++
	}
	return living > 0
}

func (l look) worseThan(than look) bool {
	switch {
	case l.heard != than.heard:
		return !l.heard
	case l.hold != nil && than.hold != nil:
		return l.hold.Until.After(than.hold.Until)
	case l.hold != nil || than.hold != nil:
		return l.hold != nil
	}
	return l.witness.Since.After(than.witness.Since)
}

func (w *Watch) partitions(worst int) *Partitions {
	p := &Partitions{Count: len(w.looks), Worst: worst, Leaders: []Leads{}}
	for k, l := range w.looks {
		if l.unread {
			p.Unread = append(p.Unread, k)
			continue
		}
		if l.entries > p.Most {
			p.Largest, p.Most = k, l.entries
		}
		if l.leader == nil {
			continue
		}
		i := slices.IndexFunc(p.Leaders, func(of Leads) bool { return of.Instance == l.leader.Instance })
		if i < 0 {
			i = len(p.Leaders)
			p.Leaders = append(p.Leaders, Leads{Instance: l.leader.Instance})
		}
		p.Leaders[i].Partitions = append(p.Leaders[i].Partitions, k)
	}
	slices.SortFunc(p.Leaders, func(a, b Leads) int { return strings.Compare(a.Instance, b.Instance) })
	return p
}

func (w *Watch) instance(id string, about About) Instance {
	in := Instance{ID: id}
	counted, whole, sampled, rostered := int64(0), true, true, true
	least := time.Duration(0)
	for k := range w.looks {
		l := &w.looks[k]
		if l.unread {
			continue
		}
		h := l.beats[id]
		switch {
		case !h.Alive:
			in.SilentIn = append(in.SilentIn, k)
		case !in.beat.Alive:
			in.beat, in.LastBeat, in.Started, least = h, h.Beat, h.Boot, h.ExpiresIn
			in.ttl, in.interval = h.settings(l.beatsAt, about)
		default:
			least = min(least, h.ExpiresIn)
			if h.Beat.Before(in.LastBeat) {
				in.LastBeat = h.Beat
			}
		}
		in.BadIndex = in.BadIndex || h.badIndex
		in.Devices += h.index
		if d, ok := l.doubts[id]; ok && (in.Doubt == nil || d.Until.After(in.Doubt.Until)) {
			in.Doubt = &d
		}
		in.left += int64(l.counted[id])
		sampled = sampled && l.whole
		if h.index == 0 {
			counted += int64(l.counted[id])
		}
		whole = whole && (l.whole || h.index > 0)
		if _, on := slices.BinarySearch(l.roster, id); !on {
			rostered = false
		}
	}
	if in.Alive = in.beat.Alive && len(in.SilentIn) == 0; in.Alive {
		in.ExpiresIn = span(least)
	}
	if !in.beat.Alive {
		in.SilentIn = nil
	}
	switch {
	case in.Devices == 0 && !whole:
		in.Devices = -1
	case whole:
		in.Devices += counted
	}
	if !sampled {
		in.left = -1
	}
	in.Old = in.beat.Alive && (in.beat.Boot.IsZero() || in.Alive && !rostered)
	if in.ttl > 0 {
		in.TTL = span(in.ttl)
		if in.Alive {
			in.life = float64(least) / float64(in.ttl)
		}
	}
	return in
}

const silentIn = "no heartbeat in "

// damagedKey is a key of the wrong type: somebody overwrote it, or uses the same name.
type damagedKey struct {
	Key  string `json:"key"`
	Is   string `json:"is"`
	Must string `json:"must_be"`

	level   Level
	follows string
}

func (r *Reader) types() []damagedKey {
	k := r.keys
	return []damagedKey{
		{k.Registry(), "", "hash", Wrong, "no device can be registered or found, and nothing is swept"},
		{k.Lease(), "", "string", Wrong, "nobody leads until contenders have set it aside, after one lease TTL"},
		{k.Log(), "", "stream", Wrong, "nothing is swept until the next term sets it aside"},
		{k.Roster(), "", "set", Warning, "the dead are found by the full scan alone"},
		{k.Witness(), "", "hash", Warning, "the next tick sets it aside, and deletes wait for GRACE"},
		{k.Contenders(), "", "set", Warning, "replicas do not see who else contends"},
		{k.Timeline(), "", "stream", Warning, "nobody can see what happened"},
		{k.Paused(), "", "string", Warning, "it still pauses sweeping"},
	}
}

func (r *Reader) damaged(ctx context.Context, fleet bool) (found []damagedKey, err error) {
	types := r.types()
	if !fleet {
		types = slices.DeleteFunc(types, func(t damagedKey) bool { return !strings.HasPrefix(t.Key, r.keys.Prefix) })
	}
	p := r.client.Pipeline()
	kinds := make([]*redis.StatusCmd, len(types))
	for i, t := range types {
		kinds[i] = p.Type(ctx, t.Key)
	}
	if err := exec(ctx, p, "types of the keys"); err != nil && !Refused(err) {
		return nil, err
	}
	for i, t := range types {
		if t.Is = kinds[i].Val(); t.Is != "" && t.Is != "none" && t.Is != t.Must {
			found = append(found, t)
		}
	}
	return found, nil
}

// suspicion is why the entries of a silent owner are kept, although nothing is held.
type suspicion struct {
	Reason string    `json:"reason"` // the runbook's: most, refused
	Until  time.Time `json:"until"`  // at the latest
}

// doubts judges the silent among ids as a leader does, by all records.
func (r *Reader) doubts(
	ctx context.Context, w Witness, now time.Time, beats map[string]beating, ids []string,
) (map[string]suspicion, error) {
	silent := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return beats[id].Alive })
	if len(silent) == 0 {
		return nil, nil
	}
	p := r.client.Pipeline()
	refused, records := p.HGet(ctx, r.keys.Witness(), "refused_at"), p.HGetAll(ctx, r.keys.Beats())
	if err := exec(ctx, p, "the owners' records"); err != nil {
		return nil, err
	}
	refusedAt, _ := refused.Int64()
	at, since := now.UnixMilli(), w.Since.UnixMilli()
	fleet := doubt.Fleet{}
	for id, text := range records.Val() {
		if x := doubt.Parse(text); x.TTL > 0 {
			fleet[id] = x
		}
	}
	found := map[string]suspicion{}
	for _, id := range silent {
		x := fleet[id]
		switch why := x.Verdict(at, since, refusedAt, fleet.Together(id, at, since)); {
		case x.TTL == 0:
		case why == doubt.Most, why == doubt.Refused:
			found[id] = suspicion{string(why), time.UnixMilli(x.Ends(since, why))}
		}
	}
	return found, nil
}

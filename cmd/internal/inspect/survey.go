package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/janitor"
)

// survey assembles a status.
type survey struct {
	*Reader
	parts  []*Reader
	server Server
	sweeps []Last
	looks  []look
}

// glance is the part of a partition's state that decides about sweeping.
type glance struct {
	number  int
	now     time.Time
	witness Witness
	heard   bool // lately
	hold    *Hold
	leader  *Leader
	damaged []Damaged
	refused error // why Redis refuses writes
}

type look struct {
	glance
	unread  bool // no answer, and all else is empty
	entries int64

	beatsAt   time.Time // by the server's clock
	sampledAt time.Time
	sampled
	roster  []string
	cut     int64
	beats   map[string]Heartbeat
	indexes map[string]index
	doubts  map[string]Doubt
}

type index struct {
	size int64
	bad  bool
}

func newSurvey(r *Reader, parts []*Reader) *survey {
	return &survey{Reader: r, parts: parts, looks: make([]look, len(parts))}
}

// read takes, in now, the server's clock of a single partition.
func (s *survey) read(
	ctx context.Context, to reached, now time.Time,
	abouts func(ctx context.Context, ids []string) (map[string]About, error),
) (Status, error) {
	began := time.Now()
	var pause *janitor.Pause
	var left time.Duration
	var err error
	if to.fleet {
		if pause, left, err = s.pause(ctx); err != nil {
			return Status{}, err
		}
	}
	of := func(part *Reader) *look { return &s.looks[part.number] }
	for k, part := range s.parts {
		if !to.answers(part) {
			s.looks[k] = look{unread: true}
		}
	}
	if _, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (_ struct{}, err error) {
		l := of(part)
		l.unread, l.now = false, now
		if part.single { // others may have been waited for
			l.now = to.nows[part.number].Add(time.Since(to.asked[part.number]))
		}
		if l.glance, err = part.glance(ctx, l.now, pause, left); err != nil {
			return
		}
		if l.damaged, err = part.damaged(ctx, to.fleet); err != nil {
			return
		}
		l.entries, err = part.client.HLen(ctx, part.keys.Registry()).Result()
		if wrongType(err) {
			err = nil
		}
		if err != nil {
			return struct{}{}, fmt.Errorf("inspect: size of the registry: %w", err)
		}
		if l.sampledAt.IsZero() || l.now.Sub(l.sampledAt).Abs() >= serverEvery {
			l.sampledAt = l.now
			if l.sampled, err = part.sample(ctx, max(1, countUpTo/len(s.parts))); err != nil {
				return
			}
		}
		l.roster, l.cut, err = part.roster(ctx)
		return
	}); err != nil {
		return Status{}, err
	}
	ids := s.ids()
	if _, err := each(ctx, to.parts, func(ctx context.Context, part *Reader) (_ struct{}, err error) {
		l := of(part)
		// The TTL is computed from it, so add the time of the reads in between.
		l.beatsAt = l.now.Add(time.Since(began))
		if part.single {
			l.beatsAt = to.nows[part.number].Add(time.Since(to.asked[part.number]))
		}
		if l.beats, err = part.heartbeats(ctx, ids); err != nil {
			return
		}
		if l.indexes, err = part.indexes(ctx, ids); err != nil {
			return
		}
		l.doubts, err = part.doubts(ctx, l.witness, l.beatsAt, l.beats, ids)
		return
	}); err != nil {
		return Status{}, err
	}
	said := map[string]About{}
	if to.fleet {
		if said, err = abouts(ctx, ids); err != nil {
			return Status{}, err
		}
	}
	st := s.status(ids, said)
	st.Unread = to.unread
	return st, nil
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

func (s *survey) ids() []string {
	known := map[string]bool{}
	for _, l := range s.looks {
		for id := range l.counted {
			known[id] = true
		}
		for _, id := range l.roster {
			known[id] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

func (r *Reader) indexes(ctx context.Context, ids []string) (map[string]index, error) {
	all := make(map[string]index, len(ids))
	if len(ids) == 0 {
		return all, nil
	}
	p := r.client.Pipeline()
	sizes := make([]*redis.IntCmd, len(ids))
	for i, id := range ids {
		sizes[i] = p.SCard(ctx, r.keys.Devices(id))
	}
	if err := exec(ctx, p, "the indexes"); err != nil {
		return nil, err
	}
	for i, id := range ids {
		all[id] = index{sizes[i].Val(), wrongType(sizes[i].Err())}
	}
	return all, nil
}

func (s *survey) status(ids []string, abouts map[string]About) Status {
	worst := slices.IndexFunc(s.looks, func(l look) bool { return !l.unread })
	for k := range s.looks {
		if !s.looks[k].unread && s.looks[k].worseThan(s.looks[worst]) {
			worst = k
		}
	}
	w := s.looks[worst]
	st := Status{
		Now: w.now, Leader: s.looks[0].leader, Hold: w.hold, Witness: w.witness, Heard: w.heard,
		Instances: []Instance{}, Sweeps: s.sweeps, Redis: s.server,
	}
	st.Witness.Evicted = 0
	for _, l := range s.looks {
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
	if len(s.looks) > 1 {
		st.Partitions = s.partitions(worst)
	}
	all := make(map[string]beat, len(ids))
	for _, id := range ids {
		all[id] = s.beat(id)
	}
	st.Witness.settle(all, abouts)
	var passes []janitor.Report // of all leaders
	for _, id := range ids {
		about, said := abouts[id]
		in := s.instance(id, all[id], about, &st)
		if said && about.of(all[id].Heartbeat) {
			if !all[id].Alive { // somebody else may be there by now
				about.Address = ""
			}
			st.describe(&in, about)
			if st.Leads(id) != "" {
				st.UnderWay, passes = append(st.UnderWay, about.UnderWay...), append(passes, about.Passes...)
			}
		}
		st.Instances = append(st.Instances, in)
	}
	for _, in := range st.Instances {
		st.denied(in.Knows)
	}
	if st.Passes = passes; st.Partitions != nil {
		st.Passes = partition.Sum(passes)
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

func (s *survey) partitions(worst int) *Partitions {
	p := &Partitions{Count: len(s.parts), Worst: worst, Leaders: []Leads{}}
	leads := map[string][]int{}
	holds := map[string]*PartitionHold{}
	for k, l := range s.looks {
		if l.unread {
			p.Unread = append(p.Unread, k)
			continue
		}
		if l.leader == nil {
			p.Unled = append(p.Unled, k)
		} else {
			leads[l.leader.Instance] = append(leads[l.leader.Instance], k)
		}
		if !l.heard {
			p.Unheard = append(p.Unheard, k)
		}
		if h := l.hold; h != nil && h.Reason != "paused" {
			if holds[h.Reason] == nil {
				holds[h.Reason] = &PartitionHold{Reason: h.Reason}
			}
			of := holds[h.Reason]
			of.Partitions = append(of.Partitions, k)
			if h.Until.After(of.Until) {
				of.Until = h.Until
			}
		}
		if l.entries > p.Most {
			p.Largest, p.Most = k, l.entries
		}
	}
	for _, id := range slices.Sorted(maps.Keys(leads)) {
		p.Leaders = append(p.Leaders, Leads{Instance: id, Partitions: leads[id]})
	}
	for _, reason := range slices.Sorted(maps.Keys(holds)) {
		p.Holds = append(p.Holds, *holds[reason])
	}
	return p
}

type beat struct {
	Heartbeat           // the first
	now       time.Time // its server's clock
	any       bool
	oldest    time.Time     // last beat, at the oldest
	least     time.Duration // life left; 0: never expires
	silentIn  []int
}

func (s *survey) beat(id string) (b beat) {
	timed := false
	for k, l := range s.looks {
		if l.unread {
			continue
		}
		h, ok := l.beats[id]
		if !ok || !h.Alive {
			b.silentIn = append(b.silentIn, k)
			continue
		}
		if !b.any {
			b.any, b.Heartbeat, b.now = true, h, l.beatsAt
		}
		if !timed || h.Beat.Before(b.oldest) {
			b.oldest = h.Beat
		}
		if !timed || h.ExpiresIn < b.least {
			b.least = h.ExpiresIn
		}
		timed = true
	}
	return b
}

func (s *survey) instance(id string, b beat, about About, st *Status) Instance {
	in := Instance{ID: id, Alive: b.any && len(b.silentIn) == 0, LastBeat: b.oldest, Started: b.Boot}
	counted, whole, sampled := int64(0), true, true
	rostered := true
	for _, l := range s.looks {
		if l.unread {
			continue
		}
		index := l.indexes[id]
		in.BadIndex = in.BadIndex || index.bad
		in.Devices += index.size
		if d, ok := l.doubts[id]; ok && !in.Alive && (in.Doubt == nil || d.Until.After(in.Doubt.Until)) {
			in.Doubt = &d
		}
		in.left += int64(l.counted[id])
		sampled = sampled && l.whole
		if index.size == 0 {
			counted += int64(l.counted[id])
		}
		whole = whole && (l.whole || index.size > 0)
		if _, on := slices.BinarySearch(l.roster, id); !on {
			rostered = false
		}
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
	in.Old = b.any && (b.Boot.IsZero() || in.Alive && !rostered)
	if in.Alive {
		in.ExpiresIn = span(b.least)
	}
	if ttl, _ := b.settings(b.now, about); ttl > 0 {
		in.TTL, in.life = span(ttl), float64(b.least)/float64(ttl)
		want := st.Witness.TTL.Round(100 * time.Millisecond)
		// When memory is full, heartbeats are only prolonged, and their value is old.
		if want > 0 && !near(ttl, want) && !st.Redis.full() {
			in.Differs = "TTL " + Short(ttl) + ", fleet " + Short(want)
		}
	}
	if b.any && len(b.silentIn) > 0 {
		in.SilentIn, in.life = b.silentIn, 0
		in.Differs = silentIn + named(b.silentIn)
	}
	return in
}

const silentIn = "no heartbeat in "

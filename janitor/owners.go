package janitor

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/subscribe"
)

const (
	// readingFresh is how long a reading is valid while somebody's life is in question.
	readingFresh = time.Second
	// mostPlain bounds the owners for whom the leader keeps records, and looks each second: a
	// registry full of rubbish names any number. The others' entries are kept until there is room.
	mostPlain = 5_000
	// writtenAtOnce is the most records that one script stores.
	writtenAtOnce = 500
	// blindAfter is the time between two readings in which a beat may have been missed.
	blindAfter = 3 * time.Second
	// longestDoubt is the longest doubt and time to sweep, in GRACE.
	longestDoubt = 12
	// mostDoubts bounds the doubts in Status.
	mostDoubts = 1000
)

// owners reads the owners' records, and judges by them. Only the timeline needs the reading before:
// the verdict of package doubt rests on the records alone, so every leader comes to the same.
type owners struct {
	t                    *termState
	j                    *Janitor
	lease                guard.Lease
	records, roster, own *streak.Streak

	mu   sync.Mutex // held during a reading, which concurrent callers share
	last *reading   // nil: there was none
	// Owners that write no records and have no entries, by when they fell: their records may go.
	empty map[string]int64

	subscribed atomic.Bool   // arrivals and goodbyes are announced to us
	news       atomic.Uint64 // counts announcements and subscriptions
}

// reading is one reading of all records.
type reading struct {
	guard.Reading
	at       time.Time // when it began
	news     uint64    // value of owners.news then
	until    time.Time // how long it is valid, if nothing is announced
	expires  time.Time // when the next owner on the roster may fall silent; zero: none
	owners   map[string]*owner
	fleet    doubt.Fleet
	together map[doubt.Record]bool // Fleet.Together, which depends on the record alone
	plain    int                   // number of owners that write no records
}

// Liveness is the verdict on an owner.
type Liveness uint8

// The verdicts on an owner.
const (
	Unreadable Liveness = iota // an error, or an impossible id: keep
	Alive
	Dead
	Doubted // silent, but that proves nothing yet: keep
)

// owner is an owner at one reading.
type owner struct {
	doubt.Record        // zero: none
	stored       string // as Redis has it; "" if it has none
	listed       bool   // on the roster
	asked, beats bool   // its heartbeat was asked for, and is there
	kept         bool   // its heartbeat could not be read, or its record stored
	liveness     Liveness
	why          doubt.Doubt // the reason of a doubt
}

func newOwners(t *termState, l guard.Lease) *owners {
	log := t.j.log
	return &owners{
		t: t, j: t.j, lease: l, empty: map[string]int64{},
		records: streak.New(log, "cannot store records of owners that write none; their entries are kept",
			"storing records again", "key", t.j.layout.Beats()),
		own: streak.New(log, "cannot read the owners' records; treated as empty", "reading the owners' records again",
			"key", t.j.layout.Beats()),
		roster: streak.New(log, "roster cannot be read; treated as empty (inspect it, then DEL)", "roster can be read again",
			"key", t.j.layout.Roster()),
	}
}

// valid reports whether the last reading is. While everybody lives and writes records, that is
// until the next can fall silent, arrives or leaves, or a third of an interval.
func (o *owners) valid() bool {
	r, now := o.last, time.Now()
	announced := func() bool { return !o.subscribed.Load() || r.news != o.news.Load() }
	return r != nil && now.Before(r.until) && (now.Sub(r.at) < readingFresh || !announced())
}

func (o *owners) fresh() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.valid()
}

// read returns a valid reading. The caller holds mu.
func (o *owners) read(ctx context.Context) (*reading, error) {
	if o.valid() {
		return o.last, nil
	}
	r := &reading{at: time.Now(), news: o.news.Load(), owners: map[string]*owner{}}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var err error
	if r.Reading, err = o.j.guard.Read(call, o.j.cfg.Registry.Newest()); err != nil {
		o.t.checkFormer(err)
		return nil, err
	}
	o.own.Note(r.RecordsErr)
	o.roster.Note(r.RosterErr)
	if err := o.judge(ctx, r, r.meet()); err != nil {
		return nil, err
	}
	if err := o.prune(ctx, r); err != nil {
		return nil, err
	}
	r.settle(o)
	o.noteOwners(ctx, o.last, r)
	o.last = r
	return r, nil
}

// meet returns the owners whose heartbeats must be asked for: those that write no records, and
// those on the roster that have none or look silent.
func (r *reading) meet() (ids []string) {
	r.fleet = make(doubt.Fleet, len(r.Records))
	for id, text := range r.Records {
		r.owners[id] = &owner{Record: doubt.Parse(text), stored: text}
	}
	for _, id := range r.Roster {
		r.of(id).listed = true
	}
	for id, x := range r.owners {
		ahead := x.Last > r.Now // the clock went back, or somebody else wrote this: Seen corrects it
		x.Last = min(x.Last, r.Now)
		if x.TTL > 0 {
			r.fleet[id] = x.Record
		}
		if x.State == doubt.Plain {
			r.plain++
		}
		silent := x.State == 0 || x.State == doubt.Bye || x.Fell() <= r.Now
		if ahead || x.listed && silent || x.State == doubt.Plain {
			ids = append(ids, id)
		}
	}
	return ids
}

func (r *reading) of(id string) *owner {
	if r.owners[id] == nil {
		r.owners[id] = &owner{}
	}
	return r.owners[id]
}

// judge asks for the heartbeats of ids, writes records for owners that write none, and judges
// everybody.
func (o *owners) judge(ctx context.Context, r *reading, ids []string) error {
	found, err := o.j.heartbeats(ctx, ids)
	if err != nil {
		return err
	}
	own := doubt.Own{Interval: o.j.timing.Interval.Milliseconds(), TTL: o.j.timing.TTL.Milliseconds()}
	blind := o.last == nil || r.at.Sub(o.last.at) > blindAfter
	var changes []guard.Change
	for _, id := range ids {
		x := r.of(id)
		left, readable := found[id]
		x.asked, x.beats = true, left > 0
		if x.TTL == 0 && readable {
			readable = r.plain < mostPlain // else until there is room
			r.plain++
		}
		if x.kept = !readable; x.kept {
			continue
		}
		x.Record = x.Seen(r.Now, left.Milliseconds(), own, blind)
		r.fleet[id] = x.Record
		if is := x.String(); is != x.stored {
			changes = append(changes, guard.Change{Owner: id, Was: x.stored, Is: is})
		}
	}
	if err := o.write(ctx, r, changes); err != nil {
		return err
	}
	r.together = map[doubt.Record]bool{}
	for id, x := range r.owners {
		x.liveness, x.why = o.verdict(r, id, x)
	}
	return nil
}

func (o *owners) verdict(r *reading, id string, x *owner) (Liveness, doubt.Doubt) {
	switch {
	case id == o.j.instance: // its heartbeat may be absent: for that the guard raises a hold
		return Alive, ""
	case x.kept || x.TTL == 0:
		return Unreadable, ""
	case x.beats, x.Fell() > r.Now && x.State != doubt.Bye:
		return Alive, ""
	}
	most, known := r.together[x.Record]
	if !known {
		most = r.fleet.Together(id, r.Now, r.Since)
		r.together[x.Record] = most
	}
	if why := x.Verdict(r.Now, r.Since, r.RefusedAt, most); why == doubt.Refused || why == doubt.Most {
		return Doubted, why
	}
	return Dead, "" // if Redis has not been heard for long enough, the pass and the guard are held
}

// write stores records. An owner whose record has changed meanwhile, or cannot be stored, is kept.
func (o *owners) write(ctx context.Context, r *reading, changes []guard.Change) error {
	for some := range slices.Chunk(changes, writtenAtOnce) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		v, changed, err := o.j.guard.Write(call, o.lease, some)
		cancel()
		if v == guard.Fenced {
			o.t.end(ErrFenced)
			return ErrFenced
		}
		if ctx.Err() == nil {
			o.records.Note(err)
		}
		for _, c := range some {
			x := r.owners[c.Owner]
			if err != nil || slices.Contains(changed, c.Owner) {
				x.kept = true
			} else {
				x.stored = c.Is
			}
		}
	}
	return nil
}

// prune deletes records that no verdict needs any more. Unless its owner left in good order, a
// record stays until a full scan has found no entry of it, or the longest doubt is over: an owner
// with entries and no record is met again, but its silence begins anew.
func (o *owners) prune(ctx context.Context, r *reading) error {
	var changes []guard.Change
	spent := r.fleet.Spent(r.Now, r.Since)
	for id, x := range r.owners {
		if x.TTL == 0 && x.stored != "" {
			spent = append(spent, id)
		}
	}
	for _, id := range spent {
		x := r.owners[id]
		doubtful := x.State != doubt.Bye && o.empty[id] != x.Fell() && max(x.Fell(), r.Since)+longestDoubt*x.Grace() >= r.Now
		if !x.listed && !doubtful {
			changes = append(changes, guard.Change{Owner: id, Was: x.stored})
		}
	}
	err := o.write(ctx, r, changes)
	for _, c := range changes {
		delete(r.owners, c.Owner)
		delete(r.fleet, c.Owner)
		delete(o.empty, c.Owner)
	}
	return err
}

// settle sets how long the reading is valid, and reports late heartbeats and doubts.
func (r *reading) settle(o *owners) {
	late, unsettled := false, false
	var doubts []Doubt
	next := int64(math.MaxInt64)
	for id, x := range r.owners {
		if x.listed && x.liveness == Alive && x.Fell() > r.Now {
			next = min(next, x.Fell())
		}
		overdue := r.Now - x.Last - x.Due
		// A longer silence than of an interval concerns its owner, not Redis.
		late = late || x.State != doubt.Plain && x.State != doubt.Bye && overdue > 0 &&
			overdue < o.j.timing.Interval.Milliseconds()
		unsettled = unsettled || x.listed && x.liveness != Alive || x.State == doubt.Plain
		if x.liveness == Doubted && (x.listed || x.State == doubt.Plain) && len(doubts) < mostDoubts {
			doubts = append(doubts, Doubt{Owner: id, Reason: string(x.why), Until: r.when(x.Ends(r.Since, x.why))})
		}
	}
	o.j.pace.Late(late)
	o.t.doubted.Store(&doubts)
	r.until = r.at.Add(o.j.timing.Interval / 3)
	if next < math.MaxInt64 {
		r.expires = r.when(next + 1)
	}
	if late || unsettled {
		r.until = r.at.Add(readingFresh)
	}
	if !r.expires.IsZero() && r.expires.Before(r.until) {
		r.until = r.expires
	}
}

// when converts a time of the server's clock.
func (r *reading) when(ms int64) time.Time {
	return r.at.Add(time.Duration(ms-r.Now) * time.Millisecond)
}

// judged returns the verdicts on owners that a sweep has found, whether the roster has them or not.
func (o *owners) judged(ctx context.Context, ids []string) (map[string]Liveness, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.readWith(ctx, ids)
	if err != nil {
		return nil, err
	}
	if open := r.open(ids); len(open) > 0 {
		if err := o.judge(ctx, r, open); err != nil {
			return nil, err
		}
		r.settle(o)
	}
	return r.verdicts(ids), nil
}

// known is judged, or nil if somebody must be asked for.
func (o *owners) known(ids []string) map[string]Liveness {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.valid() || len(o.last.open(ids)) > 0 {
		return nil
	}
	return o.last.verdicts(ids)
}

// open returns those whose heartbeats are not known, and whose records do not suffice.
func (r *reading) open(ids []string) (open []string) {
	for _, id := range ids {
		if x := r.owners[id]; x == nil || !x.asked && x.liveness != Alive {
			open = append(open, id)
		}
	}
	return open
}

func (r *reading) verdicts(ids []string) map[string]Liveness {
	found := make(map[string]Liveness, len(ids))
	for _, id := range ids {
		found[id] = r.owners[id].liveness
	}
	return found
}

// readWith returns a valid reading, made after ids have come.
func (o *owners) readWith(ctx context.Context, ids []string) (*reading, error) {
	r, err := o.read(ctx)
	if err == nil && slices.ContainsFunc(ids, func(id string) bool { return r.owners[id] == nil }) {
		r.until = time.Time{}
		return o.read(ctx)
	}
	return r, err
}

// members returns the owners on the roster.
func (o *owners) members(ctx context.Context) (roster map[string]Liveness, expires time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.read(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	roster = make(map[string]Liveness, len(r.Roster))
	for id, x := range r.owners {
		if x.listed {
			roster[id] = x.liveness
		}
	}
	return roster, r.expires, nil
}

// evidence returns what the guard needs to judge an owner, or the answer that it would give.
func (o *owners) evidence(ctx context.Context, id string) (guard.Evidence, guard.Answer, error) {
	newest := o.j.cfg.Registry.Newest()
	if id == "" {
		return guard.Evidence{Newest: newest}, guard.Answer{}, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.readWith(ctx, []string{id})
	if err == nil && r.owners[id] == nil {
		err = o.judge(ctx, r, []string{id})
	}
	if err != nil {
		return guard.Evidence{}, guard.Answer{}, err
	}
	var keep guard.Answer
	x := r.owners[id]
	switch x.liveness {
	case Unreadable:
		keep = guard.Answer{Verdict: guard.Wait, Reason: "unknown"}
	case Alive:
		keep = guard.Answer{Verdict: guard.Alive}
	case Doubted:
		keep = guard.Answer{Verdict: guard.Wait, Reason: string(x.why)}
	}
	return guard.Evidence{Newest: newest, Record: x.stored, ReadAt: r.Now}, keep, nil
}

// view calls f with the last reading, if there is one.
func (o *owners) view(f func(r *reading)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last != nil {
		f(o.last)
	}
}

// forgot notes that an owner has left the roster.
func (o *owners) forgot(id string) {
	o.view(func(r *reading) {
		if x := r.owners[id]; x != nil {
			x.listed = false
		}
	})
}

// While listen cannot receive arrivals and goodbyes, the records are read every second.
func (o *owners) listen(ctx context.Context) {
	subscribe.Channel{
		Client: o.j.cfg.Control, Name: keyless.Channel(o.j.cfg.Control, o.j.layout.News()), Log: o.j.log,
		Silence: 4 * o.j.cfg.LeaseTTL, Retry: func() time.Duration { return o.j.cfg.LeaseTTL / 5 },
		Message: func(string) { o.news.Add(1) },
		Subscribed: func(is bool) {
			o.news.Add(1)
			o.subscribed.Store(is)
		},
	}.Run(ctx)
}

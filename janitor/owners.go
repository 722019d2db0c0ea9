package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/subscribe"
	"github.com/rollcall-redis/rollcall/internal/together"
)

const (
	// maxJudged bounds a pass' memory of judged owners; beyond it, which takes a registry full of
	// rubbish, owners are asked for again.
	maxJudged = 100_000
	// rosterFresh is for how long a reading of the roster is good, unless it saw a heartbeat that ends
	// before. It is refreshed in the middle of a long pass too, since the breaker must see which
	// owners fall meanwhile.
	rosterFresh = time.Second
)

// owners is what a term knows of the owners: it reads the roster and its heartbeats, at most once a
// second, and feeds the breaker with that and with all that sweeps learn about owners.
type owners struct {
	j     *Janitor
	lease guard.Lease

	mu       sync.Mutex // held during a reading: a caller that comes meanwhile wants the same one
	read     time.Time  // the last reading
	full     time.Time  // the last one that asked each heartbeat for the rest of its life
	quiet    bool       // which found everybody alive and none late
	mortal   bool       // and every heartbeat with an end
	met      uint64     // news when it began
	expires  time.Time  // when the next heartbeat ends if it is not refreshed; zero: none does
	roster   map[string]Liveness
	mistyped bool                 // the roster is of another type, and the log says so
	silent   map[string]time.Time // those on it that are dead, and when each was first found so
	breaker  *breaker
	believed time.Time // when the witness last refused to be held for the breaker

	subscribed atomic.Bool   // owners that come or say goodbye are heard
	news       atomic.Uint64 // so often one was, or a subscription began
}

func newOwners(j *Janitor, l guard.Lease) *owners {
	return &owners{
		j: j, lease: l,
		breaker: newBreaker(j.timing, j.cfg.Interval), silent: map[string]time.Time{},
	}
}

// readRoster returns the roster with everybody's liveness, at most a second old, and from after the
// last end of a heartbeat. expires is when the next one ends if it is not refreshed, zero if none
// does.
func (o *owners) readRoster(ctx context.Context) (roster map[string]Liveness, expires time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.refresh(ctx, false); err != nil {
		return nil, o.expires, err
	}
	return maps.Clone(o.roster), o.expires, nil
}

// known is what readRoster would return, without asking; nil: it has to be asked. While all live
// that is so for an interval: a heartbeat whose end is known cannot end before, and owners that
// come or say goodbye are heard. What nobody announces (a heartbeat, or a place on the roster, that
// was deleted by hand) waits so long.
func (o *owners) known() (roster map[string]Liveness, expires time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if !o.quiet || !o.mortal || !o.subscribed.Load() || o.met != o.news.Load() ||
		o.ended(now) || now.Sub(o.full) >= o.j.timing.Interval {
		return nil, o.expires
	}
	return maps.Clone(o.roster), o.expires
}

// ended tells whether a heartbeat may have ended since the last reading.
func (o *owners) ended(now time.Time) bool { return !o.expires.IsZero() && !now.Before(o.expires) }

// refresh reads the roster if that is due. While all live it asks everybody's heartbeat for the
// rest of its life three times an interval: often enough to find late ones while they are. whole
// does so in any case, at most once a second, and again for each owner that has fallen since. The
// caller holds mu.
func (o *owners) refresh(ctx context.Context, whole bool) error {
	begun, news := time.Now(), o.news.Load()
	due, read := o.ended(begun), o.read
	if whole {
		due, read = due || o.full.Before(o.breaker.newest), o.full
	}
	if begun.Sub(read) < rosterFresh && !due {
		return nil
	}
	if !whole && o.quiet && !due && begun.Sub(o.full) < o.j.timing.Interval/3 && o.unchanged(ctx) {
		o.breaker.rosterRead(begun, o.roster, nil, nil)
		o.read, o.met = begun, news
		return nil
	}
	ids, beats, err := o.members(ctx)
	if err != nil {
		return err
	}
	missing := o.breaker.missing(ids)
	others := o.breaker.unlisted(ids)
	found, left, err := o.j.heartbeats(ctx, slices.Concat(ids, missing, others), beats)
	if err != nil {
		return err
	}
	byes, err := o.goodbyes(ctx, found)
	if err != nil {
		return err
	}
	roster := part(found, ids)
	o.hears(begun, roster, byes, part(found, missing), part(found, others), left)
	for _, id := range slices.Concat(missing, others) {
		delete(left, id)
	}
	o.quiet = !o.j.pace.LateHeartbeats(left) && !o.breaker.anyLate()
	o.mortal, o.met = len(left) == len(roster), news
	for id, liveness := range roster {
		if _, before := o.silent[id]; liveness == Dead && !before {
			o.silent[id] = begun
		}
		o.quiet = o.quiet && liveness == Alive
	}
	o.roster, o.read, o.full, o.expires = roster, begun, begun, time.Time{}
	if len(left) > 0 {
		o.expires = time.Now().Add(slices.Min(slices.Collect(maps.Values(left))) + time.Millisecond)
	}
	return nil
}

// part returns what was found of these.
func part(found map[string]Liveness, ids []string) map[string]Liveness {
	p := make(map[string]Liveness, len(ids))
	for _, id := range ids {
		p[id] = found[id]
	}
	return p
}

// hears passes a whole reading on to the breaker. gone left the roster since the last reading, and
// others are not on it. The caller holds mu.
func (o *owners) hears(begun time.Time, roster map[string]Liveness, byes map[string]bool,
	gone, others map[string]Liveness, left map[string]time.Duration,
) {
	o.noteOwners(roster, byes, gone)
	o.breaker.rosterRead(begun, roster, byes, gone)
	for id, liveness := range others {
		o.breaker.judged(begun, id, liveness, byes[id])
	}
	for _, found := range []map[string]Liveness{roster, gone, others} {
		o.breaker.beats(begun, found, left)
	}
	maps.DeleteFunc(o.silent, func(id string, _ time.Time) bool { return roster[id] != Dead })
}

// listen hears of owners that come or say goodbye, until ctx ends. Without, it is as it was: the
// roster is looked at each second.
func (o *owners) listen(ctx context.Context) {
	subscribe.Channel{
		Client: o.j.cfg.Control, Name: o.j.layout.News(), Log: o.j.log,
		Silence: 4 * o.j.cfg.LeaseTTL, Retry: func() time.Duration { return o.j.cfg.LeaseTTL / 5 },
		Message: func(string) { o.news.Add(1) },
		Subscribed: func(is bool) {
			o.news.Add(1)
			o.subscribed.Store(is)
		},
	}.Run(ctx)
}

// unchanged asks, in two commands for however many replicas, whether the roster is as long as it
// was and every heartbeat on it still there. Anything else, an error too, is for a full reading to
// find out about: no verdict rests on a count.
func (o *owners) unchanged(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	keys := make([]string, 0, len(o.roster))
	for id := range o.roster {
		keys = append(keys, o.j.layout.Heartbeat(id))
	}
	pipe := o.j.cfg.Client.Pipeline()
	listed := pipe.SCard(ctx, o.j.layout.Roster())
	var there []*redis.IntCmd
	for slice := range slices.Chunk(keys, existsSlice) {
		there = append(there, pipe.Exists(ctx, slice...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false
	}
	left := int64(len(keys))
	for _, n := range there {
		left -= n.Val()
	}
	return left == 0 && listed.Val() == int64(len(keys))
}

// members reads the ids on the roster in pages: one round trip unless there are thousands. While
// nothing changes it asks in the same one for the heartbeats of those that were on it. A key of
// another type is an empty roster: owners are then met by the full scan.
func (o *owners) members(ctx context.Context) (ids []string, read map[string]heartbeat, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	beats := make(map[string]*redis.DurationCmd, len(o.roster))
	for cursor := uint64(0); ; {
		pipe := o.j.cfg.Client.Pipeline()
		scan := pipe.SScan(ctx, o.j.layout.Roster(), cursor, "", defaultScanCount)
		if cursor == 0 && o.quiet && len(o.roster) <= existsSlice {
			for id := range o.roster {
				beats[id] = pipe.PTTL(ctx, o.j.layout.Heartbeat(id))
			}
		}
		refused := together.Exec(ctx, pipe)
		page, next, err := scan.Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE ") {
			if !o.mistyped {
				o.j.log.Warn("roster is of another type: taken for empty; look what it is, then DEL it",
					"key", o.j.layout.Roster())
			}
			o.mistyped = true
			return nil, nil, nil
		}
		o.mistyped = false
		if err = cmp.Or(refused, err); err != nil {
			if !errors.Is(err, guard.ErrTooLarge) {
				return nil, nil, fmt.Errorf("janitor: read roster: %w", err)
			}
			found, err := guard.SScan(ctx, o.j.cfg.Client, o.j.layout.Roster(), cursor, defaultScanCount)
			if err != nil {
				return nil, nil, fmt.Errorf("janitor: read roster: %w", err)
			}
			page, next = found.Items, found.Next
		}
		ids = append(ids, page...)
		if cursor = next; cursor == 0 {
			break
		}
	}
	read = make(map[string]heartbeat, len(beats))
	for id, pttl := range beats {
		if pttl.Err() == nil { // else it is asked for again
			read[id] = heartbeatOf(pttl)
		}
	}
	return ids, read, nil
}

// goodbyes asks which of those that have just fallen silent said so before. The caller holds mu.
func (o *owners) goodbyes(ctx context.Context, found map[string]Liveness) (map[string]bool, error) {
	var fallen []string
	for id, liveness := range found {
		if liveness == Dead && (!o.breaker.primed || o.breaker.lives(id)) {
			fallen = append(fallen, id)
		}
	}
	byes := map[string]bool{}
	for slice := range slices.Chunk(fallen, existsSlice) {
		fields := make([]string, len(slice))
		for i, id := range slice {
			fields[i] = o.j.layout.Bye(id)
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		marks, err := guard.Fields(ctx, o.j.cfg.Client, o.j.layout.Witness(), fields...)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("janitor: read goodbyes: %w", err)
		}
		for i, mark := range marks {
			byes[slice[i]] = mark != nil
		}
	}
	return byes, nil
}

// judged feeds the breaker with what a sweep found out about owners: left is as heartbeats returns
// it. scanned: a full scan met them.
func (o *owners) judged(
	ctx context.Context, found map[string]Liveness, left map[string]time.Duration, scanned bool,
) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if scanned {
		for id, liveness := range found {
			if liveness != Unreadable {
				o.breaker.met(now, id, liveness)
			}
		}
	}
	byes, err := o.goodbyes(ctx, found)
	if err != nil {
		return err
	}
	for id, liveness := range found {
		o.breaker.judged(now, id, liveness, byes[id])
	}
	o.breaker.beats(now, found, left)
	return nil
}

// listed tells whether an owner stood on the roster at the last reading.
func (o *owners) listed(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, there := o.roster[id]
	return there
}

// silentSince are those on the roster that were silent at the last reading, and since which one.
func (o *owners) silentSince() map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.silent)
}

// fell is since when one owner is silent, as silentSince has it. A copy of all for each owner would
// take minutes where a hundred thousand are dead.
func (o *owners) fell(id string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.silent[id]
}

// metAll notes that a full scan met every owner there is.
func (o *owners) metAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breaker.metAll = true
}

// swept notes that this term took an owner off the roster.
func (o *owners) swept(owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breaker.swept(owner)
	delete(o.roster, owner)
	delete(o.silent, owner)
}

// checkBreaker returns a HeldError when more owners are silent than can be believed, and the
// witness was made to start anew for it. It is asked before each batch that rests on an owner's
// silence, and decides by readings that were made after the last owner was found silent: the others
// may have gone without a beat since anybody asked.
func (o *owners) checkBreaker(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.refresh(ctx, true); err != nil {
		return err
	}
	n := o.breaker.count(time.Now())
	if !n.tripped() || time.Since(o.believed) < rosterFresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held, err := o.j.guard.Hold(ctx, o.lease, 2*o.j.timing.Grace())
	if err != nil {
		return err
	}
	if !held { // it was held lately: this time the silence is believed
		o.believed = time.Now()
		return nil
	}
	o.j.log.Warn("mass-failure breaker: too many owners fell silent at once",
		"fallen", n.fallen, "overdue", n.late, "of", n.known)
	o.j.listener.poke()
	return &HeldError{heldMassFailure}
}

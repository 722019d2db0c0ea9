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
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/subscribe"
	"github.com/rollcall-redis/rollcall/internal/together"
)

const (
	// Beyond maxJudged, which takes a registry full of rubbish, a pass reads owners again.
	maxJudged = 100_000
	// rosterFresh is how long a reading of the roster is valid, unless one of its heartbeats
	// expires earlier.
	rosterFresh = time.Second
)

// owners reads the roster and its heartbeats, at most once a second, and feeds the breaker.
type owners struct {
	j     *Janitor
	lease guard.Lease

	mu       sync.Mutex // held during a reading, which concurrent callers share
	read     time.Time
	full     time.Time // the last reading of every heartbeat's remaining life
	quiet    bool      // it found everybody alive and punctual
	mortal   bool      // and every heartbeat expires
	met      uint64    // value of news when it began
	expires  time.Time // earliest expiry of a heartbeat; zero if none expires
	roster   map[string]Liveness
	mistyped bool                 // the roster has the wrong type; already logged
	silent   map[string]time.Time // the dead on the roster, and when each was first found dead
	breaker  *breaker
	believed time.Time // when the witness last refused a hold of the breaker

	subscribed atomic.Bool   // arrivals and goodbyes are announced to us
	news       atomic.Uint64 // counts announcements and subscriptions
}

func newOwners(j *Janitor, l guard.Lease) *owners {
	return &owners{
		j: j, lease: l,
		breaker: newBreaker(j.timing, j.cfg.Interval), silent: map[string]time.Time{},
	}
}

// readRoster returns the roster, read at most a second ago and after the latest expiry, and the
// earliest expiry of a heartbeat, zero if none expires.
func (o *owners) readRoster(ctx context.Context) (roster map[string]Liveness, expires time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.refresh(ctx, false); err != nil {
		return nil, o.expires, err
	}
	return maps.Clone(o.roster), o.expires, nil
}

// known is readRoster without a read, or nil if one is needed. While everybody lives a reading is
// valid for an interval, since arrivals and goodbyes are announced. A heartbeat or roster entry
// deleted by hand goes unnoticed that long.
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

func (o *owners) ended(now time.Time) bool { return !o.expires.IsZero() && !now.Before(o.expires) }

// refresh reads the roster if that is due. While everybody lives it reads all heartbeats' remaining
// life three times an interval, often enough to notice late ones. whole forces that, at most once a
// second and after each fall. The caller holds mu.
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
	missing, others := o.breaker.absent(ids)
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

func part(found map[string]Liveness, ids []string) map[string]Liveness {
	p := make(map[string]Liveness, len(ids))
	for _, id := range ids {
		p[id] = found[id]
	}
	return p
}

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

// While listen cannot receive arrivals and goodbyes, the roster is read every second.
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

// unchanged checks, in two commands for any number of replicas, whether the roster is as long as
// before and every heartbeat on it exists. If not, a full reading follows: no verdict rests on a
// count.
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

// While nothing changes, the first page of members also brings the known owners' heartbeats. A key
// of another type counts as an empty roster; full scans then find the owners.
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
				o.j.log.Warn("roster has the wrong type; treated as empty (inspect it, then DEL)",
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
		if pttl.Err() == nil { // otherwise it is read again
			read[id] = heartbeatOf(pttl)
		}
	}
	return ids, read, nil
}

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

// judged feeds the breaker with a sweep's findings. scanned: a full scan met these owners.
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

func (o *owners) listed(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, there := o.roster[id]
	return there
}

func (o *owners) silentSince() map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.silent)
}

// fell avoids a copy of all: for each of a hundred thousand dead owners that would take minutes.
func (o *owners) fell(id string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.silent[id]
}

func (o *owners) metAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breaker.metAll = true
}

// sweeps is called before a dead owner is taken off the roster, swept afterwards, unless the reply
// is lost.
func (o *owners) sweeps(owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breaker.swept(owner)
}

func (o *owners) swept(owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.roster, owner)
	delete(o.silent, owner)
}

// checkBreaker returns a HeldError if implausibly many owners are silent and it has restarted the
// witness for that. It is called before each batch that rests on an owner's silence, with readings
// made after the last owner was found silent.
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
	if !held { // it was held lately: believe the silence this time
		o.believed = time.Now()
		return nil
	}
	o.j.log.Warn("mass-failure breaker: too many owners fell silent at once",
		"fallen", n.fallen, "overdue", n.late, "of", n.known)
	o.j.listener.poke()
	return &HeldError{Reason: heldMassFailure}
}

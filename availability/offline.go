package availability

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
)

// Reasons to hold, beside the janitor's.
const (
	heldUnseeded    = "unseeded"
	heldListening   = "listening"
	heldMassFailure = proof.MassFailure
	heldSettings    = "stale_after_too_short" // not above the pause between two heartbeats of an app
	heldSenseless   = "settings"
	offSettings     = "require_ping is off"
)

const (
	// per pass: one transaction sets them offline, all or none, and locks their rows
	condemnMost = 5000
	// for that transaction, which may have to wait while a table is altered
	settleWithin = 10 * time.Second
	// if mitras come back during that transaction
	settleTries = 3
	// a mass failure holds at least this long
	waveHolds = time.Minute
	// Fields of what the sweeps note, the first three in Unix ms: the end of the hold of a mass
	// failure, when a pass last found heartbeats not required, and when the last complete copy of them
	// to the source began; the fleet's name.
	heldUntil    = "held_until"
	notRequired  = "not_required"
	heartbeatsAt = "heartbeats_at"
	fleetName    = "fleet"
)

var (
	errNotRequired = errors.New(offSettings)
	// errHeard: a mitra came back.
	errHeard = errors.New("availability: mitras were heard of while they were set offline")
)

// offline sets silent mitras offline. Redis finds them. The source flips those whom it has at the
// same version, without a later sign of life, in one transaction. Right before the commit the guard
// judges all once more: if it refuses, or anybody was heard of, nobody goes offline. A heartbeat
// that Redis accepts after that overrules the flip: see Source.Revive. If a sweep dies in between,
// either nothing has happened or the feed brings it.
type offline struct {
	*Mirror

	fleet  string // name, once known
	shared bool   // another fleet has the same source
}

func (o *offline) Name() string            { return "availability_offline" }
func (o *offline) Interval() time.Duration { return o.c.OfflineInterval }

func (o *offline) Run(ctx context.Context, p *janitor.Pass) error {
	if p.Owner() != "" { // mitras have no owner
		return nil
	}
	why := ""
	err := o.pass(ctx, p)
	switch held, ok := errors.AsType[*janitor.HeldError](err); {
	case errors.Is(err, errNotRequired):
		why, err = offSettings, nil
	case ok:
		why = held.Reason
	case err != nil:
		why = err.Error()
	}
	o.note(func(h *Health) { h.Offline = why })
	return err
}

type offlinePass struct {
	*offline
	*janitor.Pass
	notes   *proof.Book
	stale   time.Duration
	overdue time.Duration // silence that counts for a mass failure
	room    time.Duration // for heartbeats of another fleet that the source does not have yet

	online, late int
	silent       []Versioned
}

func (o *offline) pass(ctx context.Context, p *janitor.Pass) error {
	if err := o.checkPass(ctx, p); err != nil {
		return err
	}
	settings, err := o.readSettings(ctx) // never cached: turning it off has to work at once
	senseless := errors.Is(err, ErrSetting)
	if err != nil && !senseless {
		return err
	}
	x := &offlinePass{offline: o, Pass: p, stale: settings.StaleAfter, overdue: overdue(settings)}
	x.notes, err = proof.Open(ctx, p, proof.Options{State: o.keys.noted(), Hold: max(x.stale, waveHolds)})
	if err != nil {
		return err
	}
	if err := x.announce(ctx); err != nil {
		return err
	}
	switch {
	case senseless: // nobody goes offline because of a value that nobody chose
		return &janitor.HeldError{Reason: heldSenseless}
	case !settings.RequirePing:
		if err := x.notes.NoteMoment(ctx, notRequired, x.notes.Now()); err != nil {
			return err
		}
		return errNotRequired
	case settings.StaleAfter <= settings.PingInterval: // even punctual apps would be silent
		return &janitor.HeldError{Reason: heldSettings}
	}
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	if err := x.checkNotes(ctx); err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := x.find(ctx)
		if err == nil {
			err = x.wave(ctx)
		}
		if err == nil {
			err = x.flip(ctx)
		}
		if !errors.Is(err, errHeard) || try == settleTries {
			return err
		}
	}
}

// announce records for other fleets on the same source, each with its own Redis or prefix, that
// mitras send heartbeats to this one. The source may hear of theirs two of their intervals later,
// as for reads.
func (x *offlinePass) announce(ctx context.Context) error {
	if x.DryRun() {
		return nil
	}
	name := x.notes.State(fleetName)
	if name == "" { // or that of before Redis was emptied
		if name = x.fleet; name == "" {
			name = rand.Text()
		}
		if err := x.notes.Note(ctx, map[string]string{fleetName: name}); err != nil {
			return err
		}
	}
	x.fleet = name
	others, err := x.source.Announce(ctx, name, x.c.HeartbeatInterval)
	if err != nil {
		return fmt.Errorf("availability: announce the fleet: %w", err)
	}
	x.room = 2 * others
	if (others > 0) != x.shared {
		x.shared = others > 0
		x.log.Warn("another fleet, with a Redis or a prefix of its own, on the same database: going offline for "+
			"silence waits until its heartbeats have arrived", "is_there", x.shared, "waits", x.room.String())
	}
	return nil
}

// checkNotes holds the sweep during a mass failure, and until heartbeats have been required for as
// long as a mitra may be silent: before, no app had to send any.
func (x *offlinePass) checkNotes(ctx context.Context) error {
	free, err := x.notes.Moment(ctx, notRequired, 0)
	if err != nil {
		return err
	}
	// They became required at most one pass after the stored time.
	waits, reason := free.Add(x.c.OfflineInterval+x.stale).Sub(x.notes.Now()), heldListening
	if free.IsZero() || waits <= 0 {
		if waits, err = x.notes.Held(ctx); err != nil || waits == 0 {
			return err
		}
		reason = heldMassFailure
	}
	x.RunAgain(time.Now().Add(waits))
	return &janitor.HeldError{Reason: reason}
}

func (x *offlinePass) find(ctx context.Context) error {
	x.online, x.late, x.silent = 0, 0, nil
	for page, err := range x.beats(ctx, x.Pass, x.stale, x.overdue) {
		switch {
		case err != nil:
			return err
		case !page.whole:
			return &janitor.HeldError{Reason: heldUnseeded}
		case page.listened < x.stale:
			x.RunAgain(time.Now().Add(x.stale - page.listened))
			return &janitor.HeldError{Reason: heldListening}
		}
		x.online += page.online
		x.late += page.late
		for _, one := range page.mitras {
			x.silent = append(x.silent, one.Versioned)
		}
	}
	// A changing set may return somebody twice.
	slices.SortFunc(x.silent, func(a, b Versioned) int { return cmp.Compare(a.ID, b.ID) })
	x.silent = slices.CompactFunc(x.silent, func(a, b Versioned) bool { return a.ID == b.ID })
	return nil
}

// overdue returns the silence that counts for a mass failure. Apps ping out of step, so mitras cut
// off together fall silent one by one, over a pause between two pings. When the first is silent,
// the last has been quiet for StaleAfter less that pause. A punctual app must never be overdue, so
// a StaleAfter below two pauses misses part of the wave.
func overdue(s Settings) time.Duration {
	return max(s.StaleAfter-s.PingInterval, s.PingInterval)
}

// wave holds the sweep if a mitra is silent and most mitras online are silent or overdue: the fault
// is more likely ours. It does so once: those still silent after the hold may go offline, and the
// next hold needs a pass with fewer of them in between.
func (x *offlinePass) wave(ctx context.Context) error {
	wave := len(x.silent) > 0 && x.late > x.online/2
	held := x.notes.State(heldUntil) != ""
	if wave == held {
		return nil
	}
	if held {
		return x.notes.Note(ctx, nil, heldUntil)
	}
	err := x.notes.Fell(ctx, x.late, x.online)
	if _, fell := errors.AsType[*janitor.HeldError](err); fell {
		x.Log().Warn("nobody goes offline for now: most of those who are online fell silent at once",
			"silent", len(x.silent), "silent_or_overdue", x.late, "online", x.online)
		x.RunAgain(time.Now().Add(max(x.stale, waveHolds)))
	}
	return err
}

// flip sets the silent offline in the source, in one transaction, and copies the result to Redis.
// A mitra with a later sign of life in the source, or a row under a lock, is left to the next
// pass.
func (x *offlinePass) flip(ctx context.Context) error {
	if len(x.silent) > condemnMost {
		x.silent = x.silent[:condemnMost]
		x.RunAgain(time.Now())
	}
	if len(x.silent) == 0 || x.DryRun() {
		x.AddCondemned(len(x.silent))
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	cutoff := x.clocks.judgedBefore(x.notes.Now(), x.stale+x.room)
	states, flipped, err := x.source.AutoOffline(bounded, x.silent, cutoff, func() error { return x.confirm(bounded) })
	if err != nil {
		return fmt.Errorf("availability: set the silent offline: %w", err)
	}
	failpoint.Hit(failpoint.Flipped)
	x.metrics.offline.Add(float64(len(flipped)))
	if len(flipped) > 0 {
		x.Log().Info("mitras set offline for their silence", "count", len(flipped), "mitras", flipped)
	}
	_, err = x.reconciliation(newer, x.Call).deliver(ctx, newer, states) // or the feed delivers them
	return err
}

// confirm has the guard judge all once more.
func (x *offlinePass) confirm(ctx context.Context) error {
	stale := strconv.FormatInt(x.stale.Milliseconds(), 10)
	for rest := x.silent; len(rest) > 0; {
		items := make([]string, min(len(rest), x.BatchSize()))
		for i := range items {
			items[i] = stale + " " + rest[i].ID
		}
		rest = rest[len(items):]
		a, err := x.Delete(ctx, janitor.Batch{Body: condemnBody, Keys: x.keys.all(), Items: items})
		switch {
		case err != nil:
			return err
		case a.Reason != "":
			return &janitor.HeldError{Reason: a.Reason}
		case a.Reowned > 0:
			return errHeard
		}
	}
	failpoint.Hit(failpoint.Confirmed)
	return nil
}

const (
	// skewLeast: smaller differences stay. Heartbeats are copied both ways each minute, so a
	// correction that changed with each answer would make them younger each time.
	skewLeast = time.Second
	// skewMoves is by how much a new measurement must differ to replace the correction.
	skewMoves = 500 * time.Millisecond
	// answerWithin: times of slower answers are too inexact.
	answerWithin = 500 * time.Millisecond
)

// A Clock estimates another machine's, from the times in its answers. This process's clock only
// measures durations, so it may be wrong. The zero Clock knows nothing yet.
type Clock struct {
	mu          sync.Mutex
	there, here time.Time
}

// Learn takes the time in an answer to a call that began at begun. A time that was read after this
// machine was suspended wins over any other; a slow answer is better than none.
func (c *Clock) Learn(begun, there time.Time) {
	now := time.Now()
	took := now.Sub(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	if asleep(begun, now).Abs() <= skewMoves && (took <= answerWithin || c.there.IsZero()) {
		c.there, c.here = there, begun.Add(took/2)
	}
}

// At returns its time at one of ours; zero: it is not known since this machine was suspended.
func (c *Clock) At(then time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there.IsZero() || asleep(c.here, then).Abs() > skewMoves {
		return time.Time{}
	}
	return c.there.Add(then.Sub(c.here))
}

// Forget has the next answer count, however long it took: the estimate was wrong.
func (c *Clock) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there = time.Time{}
}

// asleep returns how much further the wall clock moved than the monotonic one, which stops while a
// machine is suspended. It is as large, either way, if somebody set the wall clock.
func asleep(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// clocks compares the mirror's server, which dates heartbeats, with the source, which dates all
// that it stores.
type clocks struct {
	mirror Clock
	source *Clock // nil: it dates by the mirror's

	mu       sync.Mutex
	skew     time.Duration // how far the source's clock is ahead, as corrected
	compared bool          // skew was measured
}

var errUncompared = errors.New("availability: the clocks of Redis and the source are not compared yet")

// compare measures the skew again, after either has answered.
func (c *clocks) compare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	mirror, measured := c.mirror.At(now), time.Duration(0)
	if c.source != nil {
		source := c.source.At(now)
		if source.IsZero() || mirror.IsZero() {
			return
		}
		measured = source.Sub(mirror)
	}
	c.compared = true
	switch {
	case (measured - c.skew).Abs() <= skewMoves:
	case measured.Abs() < skewLeast:
		c.skew = 0
	default:
		c.skew = measured
	}
}

// check returns errUncompared until times can be converted.
func (c *clocks) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.compared {
		return errUncompared
	}
	return nil
}

// toMirror converts a time of the source. Zero stays zero.
func (c *clocks) toMirror(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Add(-c.skew)
}

func (c *clocks) toSource(at time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Add(c.skew)
}

// measured is the correction in ms, for other replicas; "" before the first comparison.
func (c *clocks) measured() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.compared {
		return ""
	}
	return strconv.FormatInt(c.skew.Milliseconds(), 10)
}

// adopt takes the correction that the feeding replica measured.
func (c *clocks) adopt(ms string) {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew, c.compared = time.Duration(n)*time.Millisecond, true
}

// sourceNow is our own time until the servers have answered.
func (c *clocks) sourceNow() time.Time {
	now := time.Now()
	if c.source != nil {
		if there := c.source.At(now); !there.IsZero() {
			return there
		}
	}
	if there := c.mirror.At(now); !there.IsZero() {
		return c.toSource(there)
	}
	return now
}

// judgedBefore returns the oldest sign of life at the source that still counts, by its clock. now
// is the mirror's time. The earlier of two estimates keeps more mitras online.
func (c *clocks) judgedBefore(now time.Time, stale time.Duration) time.Time {
	cutoff := c.toSource(now)
	if own := c.sourceNow(); own.Before(cutoff) {
		cutoff = own
	}
	return cutoff.Add(-stale)
}

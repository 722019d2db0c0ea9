package availability

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
)

// Reasons to hold, beside the janitor's.
const (
	heldUnseeded    = "unseeded"
	heldListening   = "listening"
	heldMassFailure = "mass_failure"
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
	// Fields of the breaker's hash, the first three in Unix ms: the end of its hold, when a pass last
	// found heartbeats not required, and when the last complete copy of them to the source began; the
	// fleet's name.
	heldUntil    = "held_until"
	notRequired  = "not_required"
	heartbeatsAt = "heartbeats_at"
	fleetName    = "fleet"
)

// errMarks: a mitra came back, or Redis lost the mark.
var errMarks = errors.New("availability: marks changed while mitras were set offline")

// offline sets silent mitras offline. Redis judges silence, under the guard: a mark with the
// version, from which on heartbeats are refused. The source carries it out if it still has that
// version and no later sign of life. If a sweep dies in between, the next one, on any replica,
// carries out its marks.
type offline struct {
	*Mirror

	fleet  string // name, once known
	shared bool   // another fleet has the same source
}

func (o *offline) Name() string            { return "availability_offline" }
func (o *offline) Interval() time.Duration { return o.c.OfflineInterval }

// Run ends on any error; mitras without a mark then stay online.
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

var errNotRequired = errors.New(offSettings)

func (o *offline) pass(ctx context.Context, p *janitor.Pass) error {
	if err := o.checkPass(ctx, p); err != nil {
		return err
	}
	room, err := o.announce(ctx, p)
	if err != nil {
		return err
	}
	settings, err := o.readSettings(ctx) // never cached: turning it off has to work at once
	if errors.Is(err, ErrSetting) {      // nobody goes offline because of a value that nobody chose
		return &janitor.HeldError{Reason: heldSenseless}
	}
	if err != nil {
		return err
	}
	x := &offlinePass{offline: o, Pass: p, stale: settings.StaleAfter, overdue: overdue(settings), room: room}
	if !settings.RequirePing {
		if err := x.pardonAll(ctx); err != nil {
			return err
		}
		if err := x.noteNotRequired(ctx); err != nil {
			return err
		}
		return errNotRequired
	}
	if settings.StaleAfter <= settings.PingInterval { // even punctual apps would be silent
		return &janitor.HeldError{Reason: heldSettings}
	}
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	if err := x.checkRequired(ctx); err != nil {
		return err
	}
	if err := x.checkBreaker(ctx); err != nil {
		return err
	}
	if err := x.settle(ctx); err != nil { // of earlier passes
		return err
	}
	if err := x.find(ctx); err != nil {
		return err
	}
	if err := x.breaker(ctx); err != nil {
		return err
	}
	if err := x.condemn(ctx); err != nil {
		return err
	}
	return x.settle(ctx)
}

// announce records for other fleets on the same source, each with its own Redis or prefix, that
// mitras send heartbeats to this one. It returns how much later the source may hear of theirs: two
// of their intervals, as for reads.
func (o *offline) announce(ctx context.Context, p *janitor.Pass) (room time.Duration, err error) {
	if p.DryRun() {
		return 0, nil
	}
	name := o.fleet // of before Redis was emptied
	if name == "" {
		name = rand.Text()
	}
	err = p.Call(ctx, func(ctx context.Context) error {
		known, err := o.rdb.HGet(ctx, o.keys.breaker(), fleetName).Result()
		if errors.Is(err, redis.Nil) {
			return o.rdb.HSet(ctx, o.keys.breaker(), fleetName, name).Err()
		}
		name = known
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("availability: the fleet's name: %w", err)
	}
	o.fleet = name
	others, err := o.source.Announce(ctx, name, o.c.HeartbeatInterval)
	if err != nil {
		return 0, fmt.Errorf("availability: announce the fleet: %w", err)
	}
	if (others > 0) != o.shared {
		o.shared = others > 0
		o.log.Warn("another fleet, with a Redis or a prefix of its own, on the same database: going offline for "+
			"silence waits until its heartbeats have arrived", "is_there", o.shared, "waits", (2 * others).String())
	}
	return 2 * others, nil
}

type offlinePass struct {
	*offline
	*janitor.Pass
	stale   time.Duration
	overdue time.Duration // silence that the breaker counts
	room    time.Duration // for heartbeats of another fleet that the source does not have yet

	now    time.Time // the server's, on the first page
	online int
	late   int
	silent []string
}

func (x *offlinePass) find(ctx context.Context) error {
	keys := x.keys.all(x.keys.Witness())
	read := func(ctx context.Context, cursor string) ([]string, error) {
		page, err := silentScript.Run(ctx, x.rdb, keys, cursor, x.PageSize(),
			x.stale.Milliseconds(), x.overdue.Milliseconds()).StringSlice()
		return page, unseeded(err)
	}
	for page, err := range x.scan(ctx, x.Call, 5, read) {
		if errors.Is(err, errUnseeded) {
			return &janitor.HeldError{Reason: heldUnseeded}
		}
		if err != nil {
			return fmt.Errorf("availability: find the silent: %w", err)
		}
		num := func(i int) int { n, _ := strconv.Atoi(page[i]); return n }
		if listened := time.Duration(num(1)) * time.Millisecond; listened < x.stale {
			x.RunAgain(time.Now().Add(x.stale - listened))
			return &janitor.HeldError{Reason: heldListening}
		}
		x.now = time.UnixMilli(int64(num(0)))
		x.online += num(2)
		x.AddScanned(num(2))
		x.Skip(janitor.SkipUnreadable, num(3))
		x.late += num(4)
		x.silent = append(x.silent, page[5:]...)
	}
	return nil
}

func (x *offlinePass) noteNotRequired(ctx context.Context) error {
	now, err := x.serverTime(ctx, x.Call)
	if err != nil {
		return err
	}
	return x.noteMoment(ctx, notRequired, now)
}

// checkRequired holds the sweep until heartbeats have been required for as long as a mitra may be
// silent: before, no app had to send any.
func (x *offlinePass) checkRequired(ctx context.Context) error {
	// They became required at most one pass after the stored time.
	return x.holdUntil(ctx, notRequired, 0, x.c.OfflineInterval+x.stale, heldListening)
}

// holdUntil holds the sweep until the stored moment plus more. A moment later than now plus ahead
// predates a step back of the server's clock, and is replaced by that latest possible one.
func (x *offlinePass) holdUntil(
	ctx context.Context, field string, ahead, more time.Duration, reason string,
) error {
	noted, err := x.moment(ctx, field)
	if err != nil || noted.IsZero() {
		return err
	}
	now, err := x.serverTime(ctx, x.Call)
	if err != nil {
		return err
	}
	if latest := now.Add(ahead); noted.After(latest) {
		noted = latest
		if err := x.noteMoment(ctx, field, noted); err != nil {
			return err
		}
	}
	if until := noted.Add(more); now.Before(until) {
		x.RunAgain(time.Now().Add(until.Sub(now)))
		return &janitor.HeldError{Reason: reason}
	}
	return nil
}

func (x *offlinePass) noteMoment(ctx context.Context, field string, at time.Time) error {
	if x.DryRun() {
		return nil
	}
	err := x.Call(ctx, func(ctx context.Context) error {
		return x.rdb.HSet(ctx, x.keys.breaker(), field, at.UnixMilli()).Err()
	})
	if err != nil {
		return fmt.Errorf("availability: note %s: %w", field, err)
	}
	return nil
}

func (x *offlinePass) moment(ctx context.Context, field string) (time.Time, error) {
	var text string
	err := x.Call(ctx, func(ctx context.Context) (err error) {
		text, err = x.rdb.HGet(ctx, x.keys.breaker(), field).Result()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("availability: read the breaker: %w", err)
	}
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		x.metrics.badKeys.WithLabelValues("availability:offline", rebuilt).Inc()
		x.Log().Warn("a moment that the sweep noted makes no sense: it holds for as long as it can have meant",
			"key", x.keys.breaker(), "field", field, "value", text[:min(len(text), 40)])
		at = math.MaxInt64 // holdUntil replaces it with the latest possible moment
	}
	return time.UnixMilli(at), nil
}

// condemn judges the silent again, under the guard.
func (x *offlinePass) condemn(ctx context.Context) error {
	stale := strconv.FormatInt(x.stale.Milliseconds(), 10)
	if len(x.silent) > condemnMost {
		x.silent = x.silent[:condemnMost]
		x.RunAgain(time.Now())
	}
	for len(x.silent) > 0 {
		n := min(len(x.silent), x.BatchSize())
		items := make([]string, n)
		for i, id := range x.silent[:n] {
			items[i] = stale + " " + id
		}
		x.silent = x.silent[n:]
		a, err := x.Delete(ctx, janitor.Batch{Body: condemnBody, Keys: x.keys.all(), Items: items})
		if err != nil {
			return err
		}
		if a.Reason != "" {
			return &janitor.HeldError{Reason: a.Reason}
		}
	}
	return nil
}

// settle carries out all marks or none: if one vanished, Redis may have lost others too.
func (x *offlinePass) settle(ctx context.Context) error {
	if x.DryRun() {
		return nil
	}
	for try := 1; ; try++ {
		marks, err := x.marks(ctx)
		if err != nil {
			return err
		}
		if len(marks) > 0 {
			err = x.carryOut(ctx, marks)
		}
		if !errors.Is(err, errMarks) || try == settleTries {
			return err
		}
		if !wait.For(ctx, x.c.Tick) {
			return context.Cause(ctx)
		}
	}
}

func (x *offlinePass) marks(ctx context.Context) ([]Condemned, error) {
	var marks []Condemned
	var nonsense []any
	for fields, err := range x.pages(ctx, x.Call, x.keys.condemned(), x.PageSize()) {
		if err != nil {
			return nil, fmt.Errorf("availability: read marks: %w", err)
		}
		for ; len(fields) >= 2; fields = fields[2:] {
			version, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil || strconv.FormatInt(version, 10) != fields[1] { // no sweep set it or can carry it out
				x.Skip(janitor.SkipUnreadable, 1)
				nonsense = append(nonsense, fields[0], fields[1])
				continue
			}
			marks = append(marks, Condemned{fields[0], version})
		}
	}
	return marks, x.lift(ctx, nonsense)
}

// carryOut sets the condemned offline in the source, in one transaction, and copies the result to
// Redis, which removes the marks. If the source has a later sign of life, the mark stays until the
// mitra goes online again or that sign is too old too; if somebody holds the row, until the next
// pass. Reconciliation removes marks of unknown mitras.
func (x *offlinePass) carryOut(ctx context.Context, those []Condemned) error {
	now, err := x.serverTime(ctx, x.Call)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.Condemned)
	bounded, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	confirm := func() error { return x.confirm(bounded, those) }
	cutoff := x.clocks.judgedBefore(now, x.stale+x.room)
	states, flipped, err := x.source.AutoOffline(bounded, those, cutoff, confirm)
	x.metrics.offline.Add(float64(len(flipped)))
	if err != nil {
		if len(flipped) > 0 { // no later pass finds them
			x.Log().Warn("mitras may have been set offline for their silence: the commit got no answer",
				"count", len(flipped), "mitras", flipped)
		}
		return fmt.Errorf("availability: set the silent offline: %w", err)
	}
	failpoint.Hit(failpoint.Flipped)
	if len(flipped) > 0 {
		x.Log().Info("mitras set offline for their silence", "count", len(flipped), "mitras", flipped)
	}
	var found []unequal
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		found, err = x.apply(ctx, newer, states...)
		return err // the feed delivers the states, which removes the marks
	})
	if err != nil {
		return err
	}
	// A heartbeat acknowledged during the commit overrules it.
	_, err = x.settleFound(ctx, found)
	return errors.Join(err, x.lift(ctx, voidMarks(those, states, flipped)))
}

// confirm checks right before the commit that all marks are still set. While they are, Redis
// accepts no heartbeat from these mitras.
func (x *offlinePass) confirm(ctx context.Context, those []Condemned) error {
	ids := make([]string, len(those))
	for i, c := range those {
		ids[i] = c.ID
	}
	ctx, cancel := context.WithTimeout(ctx, x.patience) // rows are locked: do not wait for a turn
	defer cancel()
	stand, err := x.rdb.HMGet(ctx, x.keys.condemned(), ids...).Result()
	if err != nil {
		return fmt.Errorf("availability: read marks again: %w", err)
	}
	for i, c := range those {
		if i >= len(stand) || stand[i] != strconv.FormatInt(c.Version, 10) {
			return errMarks
		}
	}
	failpoint.Hit(failpoint.Confirmed)
	return nil
}

func (x *offlinePass) pardonAll(ctx context.Context) error {
	if x.DryRun() {
		return nil
	}
	marks, err := x.marks(ctx)
	if err != nil {
		return err
	}
	var args []any
	for _, c := range marks {
		args = append(args, c.ID, c.Version)
	}
	return x.lift(ctx, args)
}

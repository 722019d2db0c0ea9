package availability

import (
	"context"
	"errors"
	"time"
)

// Refusals of a Source.
var (
	ErrNotFound = errors.New("availability: no such mitra or session")
	// it can no longer be accepted, extended, ended or rerouted
	ErrTaken    = errors.New("availability: session is taken or over")
	ErrFull     = errors.New("availability: mitra has no room")
	ErrInactive = errors.New("availability: mitra is not active")
	// no such status, or not one that ends a session
	ErrStatus = errors.New("availability: no such status of a session")
	// so a heartbeat does not prove that it takes work
	ErrNotOnline = errors.New("availability: mitra is not online")
	// no such name, or a value without sense
	ErrSetting = errors.New("availability: bad setting")
)

// Running lists the statuses of running sessions. None of them ends a session.
var Running = []string{"searching", "active", "pending_payment"}

// A State is what the source knows about one mitra. The higher Version is newer.
type State struct {
	ID       string // UUID, in lower case
	Version  int64
	Online   bool
	Active   bool // also false if the mitra was deleted
	Sessions int  // in `active` or `pending_payment`
	// Seen is the last sign of life, to the millisecond; zero: none. By the source's clock, or the
	// mirror's, corrected.
	Seen time.Time
	// Judged is when a mitra was set offline for silence, by the source's clock; else zero. A
	// heartbeat that Redis accepted later overrules it.
	Judged time.Time
}

// working reports whether a mitra is in `mitras:online`: nobody who is deactivated is.
func (s State) working() bool { return s.Online && s.Active }

// A Cursor is a position in a feed. The zero Cursor reads from now on.
type Cursor struct {
	Xmin uint64
	// Life identifies the source, Connection the connection that read. Anything that may lose commits
	// changes one of the two.
	Life, Connection string
	// Snapshot lists the visible transactions from Xmin on.
	Snapshot string
}

// A Session was accepted by a mitra.
type Session struct {
	ID      string `json:"id"`
	MitraID string `json:"mitra_id"`
	Status  string `json:"status"`
}

// Versioned is a mitra as Redis has it at this version.
type Versioned struct {
	ID      string
	Version int64
}

// A Heartbeat is a mitra's last one in Redis.
type Heartbeat struct {
	ID string
	At time.Time
}

// Repaired is a state that did not match the base tables.
type Repaired struct {
	ID          string
	Was, Became string
}

// Settings can be changed by an administrator while everything runs.
type Settings struct {
	MaxCustomers int           // per mitra: max_customers_per_mitra
	StaleAfter   time.Duration // longest silence: stale_after_seconds
	RequirePing  bool          // if false, silence condemns nobody
	PingInterval time.Duration // between two heartbeats of an app: heartbeat_cadence_seconds
}

// A Source is the durable truth. Its writers return the new states, for the mirror. After any error
// other than those above, the outcome of a change is unknown. A call that arrives after its
// context's deadline changes nothing: a newer change may have been made since.
type Source interface {
	// Clock estimates the source's clock. Feed, at least, keeps it. nil: it dates by the mirror's.
	Clock() *Clock
	// Feed returns the states that may have changed since the cursor, and the current cursor. It may
	// repeat a state, but never misses one, and waits for nobody. After anything that may have lost
	// commits, at least on each new connection, it returns all states, and the cursor records that.
	Feed(ctx context.Context, since Cursor) ([]State, Cursor, error)
	// Page returns states after the given id, in order.
	Page(ctx context.Context, after string, limit int) ([]State, error)
	// States omits mitras that never existed.
	States(ctx context.Context, ids []string) ([]State, error)
	// Repair corrects states that do not match the base tables, and returns them.
	Repair(ctx context.Context) ([]Repaired, error)
	// Unseen describes, for people, how the base tables may change without their states.
	Unseen(ctx context.Context) ([]string, error)
	// Outbid raises states above these versions, which the mirror has from lost commits.
	Outbid(ctx context.Context, those []Versioned) ([]State, error)
	// Revive sets mitras whose state is Judged online again, and returns the states of all.
	Revive(ctx context.Context, ids []string) ([]State, error)

	// SetOnline true is also a sign of life.
	SetOnline(ctx context.Context, id string, online bool) (State, error)
	// SetActive also revokes a deactivated mitra's sign-in sessions, in the same transaction.
	SetActive(ctx context.Context, id string, active bool) (State, error)
	// Accept gives a searching session to a mitra with fewer than most sessions, and fewer than the
	// setting now allows. Sessions are counted in their own table. The states of these four have no
	// Seen.
	Accept(ctx context.Context, session, mitra string, most int) (Session, []State, error)
	// End ends a session with a status such as completed, ended, cancelled, expired. ErrStatus.
	End(ctx context.Context, session, status string) (Session, []State, error)
	// Extend makes a running session wait for the payment of more time, pending_payment, or run again,
	// active. It stays with its mitra.
	Extend(ctx context.Context, session string, paid bool) (Session, []State, error)
	// Reroute moves a session to another mitra that has room, in one transaction.
	Reroute(ctx context.Context, session, mitra string, most int) (Session, []State, error)
	// AutoOffline flips the silent who are online, still at this version, and without a sign of
	// life after cutoff at the source itself. It calls confirm before the commit; an error rolls back.
	// It returns all states, and which were flipped. It may skip a mitra that is being changed.
	AutoOffline(
		ctx context.Context,
		those []Versioned,
		cutoff time.Time,
		confirm func() error,
	) ([]State, []string, error)
	// Beat stores a sign of life of an online mitra, by the source's own clock. It takes a version:
	// the feed delivers it, and any earlier auto-offline becomes void. ErrNotFound, ErrInactive,
	// ErrNotOnline.
	Beat(ctx context.Context, id string) (State, error)
	// Announce stores that a fleet copies heartbeats at this interval, and returns the longest one of
	// other fleets that were announced of late; zero: there are none.
	Announce(ctx context.Context, fleet string, copies time.Duration) (others time.Duration, err error)
	// MirrorHeartbeats stores heartbeats, each only if newer, and counts them.
	MirrorHeartbeats(ctx context.Context, those []Heartbeat) (int, error)

	// Available serves reads that fall back: mitras who are online, active, seen after cutoff unless
	// that is zero, and have fewer than most sessions, the least busy first.
	Available(ctx context.Context, cutoff time.Time, most, limit int) ([]State, error)
	// CountOnline includes silent mitras, but none that is not active.
	CountOnline(ctx context.Context) (int, error)
	// Settings lists missing and invalid settings in an ErrSetting; the result has their last good
	// value or default, and is usable.
	Settings(ctx context.Context) (Settings, error)
	// PutSetting stores a setting, by its name in app_config.
	PutSetting(ctx context.Context, name string, value any) error
}

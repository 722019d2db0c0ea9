package availability

import (
	"context"
	"errors"
	"time"
)

// Errors of a Source that refuses a change.
var (
	ErrNotFound = errors.New("availability: no such mitra or session")
	// ErrTaken: the session can no longer be accepted, extended, ended or rerouted.
	ErrTaken = errors.New("availability: session is taken or over")
	// ErrFull: the mitra has as many sessions as allowed.
	ErrFull = errors.New("availability: mitra has no room")
	// ErrInactive: the mitra was deactivated.
	ErrInactive = errors.New("availability: mitra is not active")
	// ErrStatus: the source has no such session status, or it is not one that ends a session.
	ErrStatus = errors.New("availability: no such status of a session")
	// ErrNotOnline: the mitra is not online, so a heartbeat does not prove that it takes work.
	ErrNotOnline = errors.New("availability: mitra is not online")
	// ErrSetting: no setting has this name, or the value makes no sense.
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
	// Seen is the last known sign of life, to the millisecond; zero: none. It is by the source's
	// clock, or by the mirror's, corrected.
	Seen time.Time
	// Judged is when a mitra was set offline for silence, by the source's clock; zero if it is not
	// offline for that reason. A heartbeat that Redis accepted later overrules it.
	Judged time.Time
}

// A Cursor is a position in a feed. The zero Cursor reads from now on.
type Cursor struct {
	Xmin uint64
	// Life identifies the source of these transactions, Connection the connection that read them.
	// Anything that may lose commits changes one of the two.
	Life, Connection string
	// Snapshot lists the visible transactions from Xmin on.
	Snapshot string
	// At is the source's clock at the read.
	At time.Time
}

// A Session was accepted by a mitra.
type Session struct {
	ID      string `json:"id"`
	MitraID string `json:"mitra_id"`
	Status  string `json:"status"`
}

// A Condemned mitra was silent for too long, according to Redis at this version.
type Condemned struct {
	ID      string
	Version int64
}

// A Heartbeat is the last one of a mitra in Redis.
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
	MaxCustomers int           // sessions per mitra: max_customers_per_mitra
	StaleAfter   time.Duration // longest silence: stale_after_seconds
	RequirePing  bool          // require_ping; if false, silence condemns nobody
	PingInterval time.Duration // between two heartbeats of an app: heartbeat_cadence_seconds
}

// A Source is the durable truth. Package postgres has one. Its writers return the new states, for
// the mirror. After any error other than those above, the outcome of a change is unknown.
type Source interface {
	// Feed returns the states that may have changed since the cursor, each at its present version,
	// and the current cursor. It may return a state again, but never misses one. It waits for no
	// other call or transaction. After anything that may have lost commits, and at least on each new
	// connection, it returns all states, and the cursor records that.
	Feed(ctx context.Context, since Cursor) ([]State, Cursor, error)
	// Page returns states after the given id, in the order of their ids.
	Page(ctx context.Context, after string, limit int) ([]State, error)
	// States returns the states of some mitras, without those that never existed.
	States(ctx context.Context, ids []string) ([]State, error)
	// Repair corrects states that do not match the base tables, after disabled triggers or a
	// restore.
	Repair(ctx context.Context) ([]Repaired, error)
	// Unseen describes, for people, how the base tables may change without their states. Repair
	// corrects the states.
	Unseen(ctx context.Context) ([]string, error)
	// Outbid raises states above these versions: the mirror has newer ones, from lost commits.
	Outbid(ctx context.Context, ids []string, versions []int64) ([]State, error)
	// Revive sets mitras whose state is Judged online again, and returns the states of all.
	Revive(ctx context.Context, ids []string) ([]State, error)

	// SetOnline sets whether a mitra takes work. If it is online, that is also a sign of life.
	SetOnline(ctx context.Context, id string, online bool) (State, error)
	// SetActive also revokes the sign-in sessions of a deactivated mitra, in the same transaction.
	SetActive(ctx context.Context, id string, active bool) (State, error)
	// Accept gives a searching session to a mitra with fewer than most sessions, and fewer than the
	// setting now allows. Sessions are counted in their own table.
	Accept(ctx context.Context, session, mitra string, most int) (Session, []State, error)
	// End ends a session with a status such as completed, ended, cancelled, expired. ErrStatus.
	End(ctx context.Context, session, status string) (Session, []State, error)
	// Extend makes a running session wait for the payment of more time, pending_payment, or run
	// again, active. It stays with its mitra throughout.
	Extend(ctx context.Context, session string, paid bool) (Session, []State, error)
	// Reroute moves a session to another mitra that has room, in one transaction.
	Reroute(ctx context.Context, session, mitra string, most int) (Session, []State, error)
	// AutoOffline flips the condemned who are online, still at this version, and without a sign of
	// life after cutoff at the source itself. It calls confirm before the commit; an error rolls
	// back. It returns all states, and which were flipped. It may skip a mitra that somebody else is
	// changing, who is then condemned again.
	AutoOffline(
		ctx context.Context,
		those []Condemned,
		cutoff time.Time,
		confirm func() error,
	) ([]State, []string, error)
	// Beat stores a sign of life of an online mitra, by the source's own clock. It takes a version:
	// the feed delivers it to the mirror, and any earlier auto-offline becomes void. ErrNotFound,
	// ErrInactive, ErrNotOnline.
	Beat(ctx context.Context, id string) (State, error)
	// MirrorHeartbeats stores heartbeats, each only if it is newer, and returns how many were.
	MirrorHeartbeats(ctx context.Context, those []Heartbeat) (int, error)

	// Available serves reads that fall back: mitras who are online, active, seen after cutoff unless
	// that is zero, and have fewer than most sessions, the least busy first.
	Available(ctx context.Context, cutoff time.Time, most, limit int) ([]State, error)
	// CountOnline returns how many mitras are online, including silent ones.
	CountOnline(ctx context.Context) (int, error)
	// Settings returns the present settings. An ErrSetting lists missing and invalid ones; the
	// result has their last good value or default, and is usable.
	Settings(ctx context.Context) (Settings, error)
	// PutSetting stores one of the four settings, by its name in app_config.
	PutSetting(ctx context.Context, name string, value any) error
}

package availability

import (
	"context"
	"errors"
	"time"
)

// What a Source refuses.
var (
	ErrNotFound = errors.New("availability: no such mitra or session")
	// ErrTaken: the session is not there to be accepted, extended, ended or rerouted any more.
	ErrTaken = errors.New("availability: session is taken or over")
	// ErrFull: the mitra has as many sessions as it may.
	ErrFull = errors.New("availability: mitra has no room")
	// ErrInactive: the mitra was deactivated.
	ErrInactive = errors.New("availability: mitra is not active")
	// ErrStatus: the source has no such status of a session, or it ends none.
	ErrStatus = errors.New("availability: no such status of a session")
	// ErrNotOnline: the mitra is not online, so a heartbeat does not show that it takes work.
	ErrNotOnline = errors.New("availability: mitra is not online")
	// ErrSetting: there is no setting of this name, or the value makes no sense.
	ErrSetting = errors.New("availability: bad setting")
)

// Running are the statuses of sessions that have not ended: none of them ends a session.
var Running = []string{"searching", "active", "pending_payment"}

// A State is what the source knows of one mitra. Of two states the one with the higher Version is
// the newer.
type State struct {
	ID       string // UUID, in lower case
	Version  int64
	Online   bool
	Active   bool // false too if the mitra was deleted
	Sessions int  // in `active` or `pending_payment`
	// Seen is the last sign of life that the source knows, to the millisecond; zero: none. It is of
	// the source's clock, or of the mirror's, corrected.
	Seen time.Time
	// Judged is set of a mitra who was set offline for silence, and is offline since: a heartbeat
	// that Redis took later overrules that. By the source's clock.
	Judged time.Time
}

// A Cursor is how far a feed has been read. The zero Cursor reads from now on.
type Cursor struct {
	Xmin uint64
	// Life is of the source whose transactions these are, Connection the one that read them. Whatever
	// may lose commits begins another of the two.
	Life, Connection string
	// Snapshot has the transactions from Xmin on that were visible.
	Snapshot string
	// At is the source's clock at the read.
	At time.Time
}

// A Session is one that a mitra accepted.
type Session struct {
	ID      string `json:"id"`
	MitraID string `json:"mitra_id"`
	Status  string `json:"status"`
}

// A Condemned mitra was silent for too long, as Redis saw it at this version.
type Condemned struct {
	ID      string
	Version int64
}

// A Heartbeat is the last one that Redis has of a mitra.
type Heartbeat struct {
	ID string
	At time.Time
}

// Repaired is a state that was not what the base tables say.
type Repaired struct {
	ID          string
	Was, Became string
}

// Settings are what an administrator may change while everything runs.
type Settings struct {
	MaxCustomers int           // sessions of one mitra: max_customers_per_mitra
	StaleAfter   time.Duration // of silence: stale_after_seconds
	RequirePing  bool          // require_ping: false, and silence condemns nobody
	PingInterval time.Duration // between two heartbeats of an app: heartbeat_cadence_seconds
}

// A Source is the durable truth. Package postgres has one. Its writers return the states after the
// change, for the mirror. Errors other than those above mean that the fate of a change is not
// known.
type Source interface {
	// Feed returns states that may have changed since the cursor, each at its present version, and the
	// cursor of now. It may return a state again; it never misses one. It waits for no other call, and
	// for nobody's transaction. After whatever may have lost commits, and at least on each new
	// connection, that is in the cursor, and all states are returned.
	Feed(ctx context.Context, since Cursor) ([]State, Cursor, error)
	// Page returns states in the order of their ids, behind one.
	Page(ctx context.Context, after string, limit int) ([]State, error)
	// States returns those of some mitras; one that never was is missing.
	States(ctx context.Context, ids []string) ([]State, error)
	// Repair puts states right that are not what the base tables say: triggers were off, or a restore.
	Repair(ctx context.Context) ([]Repaired, error)
	// Unseen describes, for people, how the base tables may change without their states. Repair makes
	// the states right again.
	Unseen(ctx context.Context) ([]string, error)
	// Outbid gives states versions above these: the mirror knew newer ones, of commits that were lost.
	Outbid(ctx context.Context, ids []string, versions []int64) ([]State, error)
	// Revive sets mitras online again whose state is Judged, and returns the states of all.
	Revive(ctx context.Context, ids []string) ([]State, error)

	// SetOnline says that a mitra takes work, or does not. Of one who is online it is a sign of life.
	SetOnline(ctx context.Context, id string, online bool) (State, error)
	// SetActive also revokes the sign-in sessions of one that is deactivated, in the same transaction.
	SetActive(ctx context.Context, id string, active bool) (State, error)
	// Accept gives a session that is searching to a mitra that has room for it: less than most
	// sessions, and less than the setting allows at this moment. Sessions are counted where they are.
	Accept(ctx context.Context, session, mitra string, most int) (Session, []State, error)
	// End ends a session with a status, such as completed, ended, cancelled, expired. ErrStatus.
	End(ctx context.Context, session, status string) (Session, []State, error)
	// Extend has a session that runs wait for the payment of more time, pending_payment, or run again,
	// active. Its mitra has it all the while.
	Extend(ctx context.Context, session string, paid bool) (Session, []State, error)
	// Reroute moves a session to another mitra that has room, in one transaction.
	Reroute(ctx context.Context, session, mitra string, most int) (Session, []State, error)
	// AutoOffline flips those of the condemned whose version is still this one, who are online, and of
	// whom the source itself knows no sign of life after cutoff. confirm is asked before the commit:
	// an error rolls back. It returns the states of all, and which were flipped. One that somebody
	// else is changing may be left as it is: it comes again.
	AutoOffline(
		ctx context.Context,
		those []Condemned,
		cutoff time.Time,
		confirm func() error,
	) ([]State, []string, error)
	// Beat stores a sign of life, by the source's own clock, of one who is online. It takes a version:
	// the feed brings it to the mirror, and an auto-offline of before changes nothing any more.
	// ErrNotFound, ErrInactive, ErrNotOnline.
	Beat(ctx context.Context, id string) (State, error)
	// MirrorHeartbeats stores heartbeats, each only if it is newer, and says how many were.
	MirrorHeartbeats(ctx context.Context, those []Heartbeat) (int, error)

	// Available is the fallback of reads: mitras who are online, active, seen after cutoff unless that
	// is zero, and have less than most sessions, the least busy first.
	Available(ctx context.Context, cutoff time.Time, most, limit int) ([]State, error)
	// CountOnline is how many are online, whether or not they were heard of.
	CountOnline(ctx context.Context) (int, error)
	// Settings returns the present settings. An ErrSetting names the ones that are missing or invalid.
	// The result can be used all the same: it has their last good value, or the default.
	Settings(ctx context.Context) (Settings, error)
	// PutSetting stores one of the four, by its name in app_config.
	PutSetting(ctx context.Context, name string, value any) error
}

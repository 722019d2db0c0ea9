package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rollcall-redis/rollcall/availability"
)

var outcomes = map[string]error{
	"done":     nil,
	"unknown":  availability.ErrNotFound,
	"taken":    availability.ErrTaken,
	"full":     availability.ErrFull,
	"inactive": availability.ErrInactive,
	"offline":  availability.ErrNotOnline,
}

const returned = `(f.state).mitra_id::text, (f.state).version, (f.state).is_online, (f.state).is_active,
	(f.state).active_sessions, (f.state).seen, (f.state).judged`

// writing calls a writer with $2 and further arguments. A call that arrives after $1, by the
// server's clock, was given up, and a newer one may have been made since: it changes nothing.
func writing(writer string, args int, columns string) string {
	more := ""
	for n := 3; n < 2+args; n++ {
		more += fmt.Sprintf(", $%d", n)
	}
	return `SELECT clock_timestamp(), CASE WHEN t.late THEN 'late' ELSE f.outcome END, ` + columns + returned + `
		FROM (SELECT coalesce(clock_timestamp() > $1::timestamptz, false) AS late OFFSET 0) t
		CROSS JOIN LATERAL ` + writer + `(CASE WHEN NOT t.late THEN $2::uuid END` + more + `) f`
}

// write returns states with a refusal too, because the caller assumed different ones.
func (s *Source) write(
	ctx context.Context, what, writer, columns string, args []any, more ...any,
) (states []availability.State, err error) {
	var outcome string
	sql := writing(writer, len(args), columns)
	err = s.within(ctx, what, func(ctx context.Context, pool *pgxpool.Pool) error {
		return s.inTime(ctx, func(until pgtype.Timestamptz, at *time.Time) (late bool, err error) {
			outcome = ""
			to := append([]any{at, &outcome}, more...)
			states, err = query(ctx, pool, sql, append([]any{until}, args...), to...)
			return outcome == "late", err
		})
	})
	if err != nil {
		return nil, err
	}
	refusal, known := outcomes[outcome]
	if !known {
		refusal = fmt.Errorf("postgres: %s: outcome %q", what, outcome)
	}
	return states, refusal
}

// SetOnline true takes a version even if the mitra is online. A mitra that is not active gets
// ErrInactive, but may go offline.
func (s *Source) SetOnline(ctx context.Context, id string, online bool) (availability.State, error) {
	return s.set(ctx, "set online", "availability_set_online", id, online, false)
}

// SetActive implements [availability.Source].
func (s *Source) SetActive(ctx context.Context, id string, active bool) (availability.State, error) {
	return s.set(ctx, "set active", "availability_set_active", id, active)
}

const beatWaits = time.Second

// Beat waits, if the mitra is being changed, as by an auto-offline about to commit, up to a second
// and goes by the result.
func (s *Source) Beat(ctx context.Context, id string) (availability.State, error) {
	ctx, cancel := context.WithTimeout(ctx, beatWaits)
	defer cancel()
	return s.set(ctx, "heartbeat", "availability_set_online", id, true, true)
}

func (s *Source) set(ctx context.Context, what, writer, id string, more ...any) (st availability.State, err error) {
	mitra := idOf(id)
	if !mitra.Valid {
		return st, availability.ErrNotFound
	}
	states, err := s.write(ctx, what, writer, "", append([]any{mitra}, more...))
	if len(states) > 0 {
		st = states[0]
	}
	return st, err
}

// Accept returns the mitra's state also with ErrFull, ErrTaken and ErrInactive. Accepting again
// succeeds.
func (s *Source) Accept(ctx context.Context, session, mitra string, most int) (
	availability.Session, []availability.State, error,
) {
	return s.move(ctx, "accept", session, &mitra, "active", most)
}

// End takes any status that the table accepts, except one in which a session runs or waits; else
// ErrStatus. With ErrTaken it returns the state of the mitra that had the session. Ending a session
// again with the same status succeeds.
func (s *Source) End(ctx context.Context, session, status string) (
	availability.Session, []availability.State, error,
) {
	if status == "" || slices.Contains(availability.Running, status) {
		return availability.Session{}, nil, fmt.Errorf("%w: %q ends no session", availability.ErrStatus, status)
	}
	ended, states, err := s.move(ctx, "end", session, nil, status, 0)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && slices.Contains(noSuchStatus, refused.Code) {
		err = fmt.Errorf("%w: %q: %w", availability.ErrStatus, status, err)
	}
	return ended, states, err
}

// noSuchStatus: not in the enum, too long, or against a constraint.
var noSuchStatus = []string{"22P02", "22001", "23514"}

// Extend returns the mitra's state, which it does not change. If the customer does not pay but has
// time left, the session runs again as if paid.
func (s *Source) Extend(ctx context.Context, session string, paid bool) (
	availability.Session, []availability.State, error,
) {
	status := "pending_payment"
	if paid {
		status = "active"
	}
	return s.move(ctx, "extend", session, nil, status, 0)
}

// Reroute returns the states of both mitras, also with ErrFull and ErrInactive. Rerouting to the
// same mitra succeeds.
func (s *Source) Reroute(ctx context.Context, session, mitra string, most int) (
	availability.Session, []availability.State, error,
) {
	return s.move(ctx, "reroute", session, &mitra, nil, most)
}

// move gives a session another mitra, another status, or both.
func (s *Source) move(ctx context.Context, what, session string, mitra *string, status any, most int) (
	moved availability.Session, states []availability.State, err error,
) {
	which, who := idOf(session), pgtype.UUID{}
	if mitra != nil {
		who = idOf(*mitra)
	}
	if !which.Valid || mitra != nil && !who.Valid {
		return moved, nil, availability.ErrNotFound
	}
	var is *string
	states, err = s.write(ctx, what, "availability_session", "f.status, ", []any{which, who, status, most}, &is)
	if err != nil {
		return moved, states, err
	}
	moved = availability.Session{ID: which.String(), MitraID: who.String(), Status: *is}
	if mitra == nil && len(states) > 0 {
		moved.MitraID = states[0].ID
	}
	return moved, states, nil
}

// idleInTransaction bounds how long a process that froze before the commit can hold its locks. The
// server then ends its connection and rolls the change back.
const idleInTransaction = 10 * time.Second

// patiently waits for locks as long as ctx lets it.
func (s *Source) patiently(ctx context.Context, f func(pgx.Tx) error) error {
	limit := fmt.Sprintf("SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = %d",
		idleInTransaction.Milliseconds())
	return pgx.BeginTxFunc(ctx, s.keep,
		pgx.TxOptions{BeginQuery: "BEGIN ISOLATION LEVEL READ COMMITTED; " + limit}, f)
}

// AutoOffline calls confirm once per try, and retries a try that the server rolled back. While
// confirm runs, accepts wait. A mitra whose row is locked is left as it is.
func (s *Source) AutoOffline(
	ctx context.Context, those []availability.Versioned, cutoff time.Time, confirm func() error,
) (states []availability.State, flipped []string, err error) {
	ids, versions := known(those, func(v availability.Versioned) (string, int64) { return v.ID, v.Version })
	err = again(ctx, s.timeout, "auto-offline", func(ctx context.Context) error {
		flipped = nil
		return s.patiently(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT f.flipped, `+returned+` FROM availability_auto_offline($1, $2, $3) f`,
				ids, versions, cutoff)
			if err != nil {
				return err
			}
			var was bool
			states, err = scan(rows, func(id string) {
				if was {
					flipped = append(flipped, id)
				}
			}, &was)
			if err != nil {
				return err
			}
			return confirm()
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return states, flipped, nil
}

// MirrorHeartbeats skips mitras that are being changed: their heartbeats have to come again. It
// takes no version, and creates no row for a mitra that was never online.
func (s *Source) MirrorHeartbeats(ctx context.Context, those []availability.Heartbeat) (n int, err error) {
	ids, moments := known(those, func(h availability.Heartbeat) (string, time.Time) { return h.ID, h.At })
	err = again(ctx, s.timeout, "mirror heartbeats", func(ctx context.Context) error {
		return s.keep.QueryRow(ctx, `SELECT availability_mirror_heartbeats($1, $2)`, ids, moments).Scan(&n)
	})
	return n, err
}

// Announce implements [availability.Source].
func (s *Source) Announce(ctx context.Context, fleet string, copies time.Duration) (others time.Duration, err error) {
	err = again(ctx, s.timeout, "announce", func(ctx context.Context) error {
		var longest *time.Duration
		err := s.keep.QueryRow(ctx, `SELECT availability_fleet($1, $2)`, fleet, copies).Scan(&longest)
		if longest != nil {
			others = *longest
		}
		return err
	})
	return others, err
}

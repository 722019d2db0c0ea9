package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rollcall-redis/rollcall/availability"
)

// A Mitra is a row of the list.
type Mitra struct {
	availability.State
	Name *string // display_name; nil: none
	// LastOnline and LastOffline are zero for never, or not a valid time.
	LastOnline, LastOffline time.Time
}

// A Listing selects and orders mitras.
type Listing struct {
	Online *bool  // nil: both
	ByName bool   // by display_name, those without one first; else by id
	After  string // the last id of the previous page, or ""
	Limit  int
}

// listed has null for a time beyond the range of a JSON timestamp.
const listed = columns + `, m.display_name::text,
	CASE WHEN o.last_online_at BETWEEN '0001-01-02' AND '9999-12-30' THEN o.last_online_at::timestamptz END,
	CASE WHEN o.last_offline_at BETWEEN '0001-01-02' AND '9999-12-30' THEN o.last_offline_at::timestamptz END
	FROM mitras m JOIN mitra_availability_state s ON s.mitra_id = m.id
	LEFT JOIN mitra_online_status o ON o.mitra_id = m.id`

// List returns existing mitras for an administrator. Each order has an index, as does the selection
// of online mitras. ErrNotFound: ByName needs the mitra After, which no longer exists.
func (s *Source) List(ctx context.Context, l Listing) (page []Mitra, err error) {
	after := idOf(l.After)
	args := []any{after, l.Limit}
	where, order := `m.id > $1 OR $1::uuid IS NULL`, `m.id`
	err = s.within(ctx, "list", func(ctx context.Context, pool *pgxpool.Pool) error {
		if l.ByName {
			order = `coalesce(m.display_name::text, ''), m.id`
			where = `$1::uuid IS NULL`
			if after.Valid {
				name := ""
				err := pool.QueryRow(ctx, `SELECT coalesce(m.display_name::text, '') FROM mitras m WHERE m.id = $1`,
					after).Scan(&name)
				if errors.Is(err, pgx.ErrNoRows) {
					return availability.ErrNotFound
				}
				if err != nil {
					return err
				}
				where = `(coalesce(m.display_name::text, ''), m.id) > ($3::text, $1)`
				args = append(args[:2], name)
			}
		}
		filter := ``
		if l.Online != nil {
			filter = ` AND s.is_online`
			if !*l.Online {
				filter = ` AND NOT s.is_online`
			}
		}
		page, err = mitras(ctx, pool,
			`SELECT `+listed+` WHERE (`+where+`)`+filter+` ORDER BY `+order+` LIMIT $2`, args...)
		return err
	})
	return page, err
}

// Mitra returns one mitra of the list. ErrNotFound.
func (s *Source) Mitra(ctx context.Context, id string) (m Mitra, err error) {
	err = s.within(ctx, "mitra", func(ctx context.Context, pool *pgxpool.Pool) error {
		found, err := mitras(ctx, pool, `SELECT `+listed+` WHERE m.id = $1`, idOf(id))
		if err == nil && len(found) == 0 {
			return availability.ErrNotFound
		}
		if err == nil {
			m = found[0]
		}
		return err
	})
	return m, err
}

func mitras(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) ([]Mitra, error) {
	rows, err := pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(one pgx.CollectableRow) (m Mitra, err error) {
		var r row
		var on, off *time.Time
		if err = one.Scan(append(r.fields(), &m.Name, &on, &off)...); err == nil {
			m.State = r.appendTo(nil)[0]
			m.LastOnline, m.LastOffline = orZero(on), orZero(off)
		}
		return m, err
	})
}

func orZero(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.UTC()
}

var errLate = errors.New("the server's clock is past the end of the call")

// Clock implements [availability.Source].
func (s *Source) Clock() *availability.Clock { return &s.clock }

// inTime passes f the end of ctx by the server's clock, or nothing if that is unknown. The network
// may bring a call that was given up when a newer one has been made: the server refuses it. A call
// that is refused too early, as a clock was set, is made again.
func (s *Source) inTime(
	ctx context.Context, f func(until pgtype.Timestamptz, at *time.Time) (late bool, err error),
) error {
	end, _ := ctx.Deadline()
	for again := false; ; again = true {
		var there time.Time
		begun := time.Now()
		late, err := f(momentOf(s.clock.At(end)), &there)
		if err != nil {
			return err
		}
		if late {
			s.clock.Forget()
		}
		if !there.IsZero() {
			s.clock.Learn(begun, there)
		}
		if !late {
			return nil
		}
		if again {
			return errLate
		}
	}
}

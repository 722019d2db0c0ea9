package workforce

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is the Backend on the tables that availability/postgres migrates. It inserts only ids and
// statuses: other columns need a default.
type DB struct{ Pool *pgxpool.Pool }

// AddMitras implements [Backend].
func (d DB) AddMitras(ctx context.Context, ids []string) error {
	_, err := d.Pool.Exec(ctx, `INSERT INTO mitras (id, is_active)
		SELECT id::uuid, true FROM unnest($1::text[]) id ORDER BY id ON CONFLICT (id) DO NOTHING`, ids)
	if err != nil {
		return fmt.Errorf("workforce: make mitras: %w", err)
	}
	return nil
}

// Search implements [Backend].
func (d DB) Search(ctx context.Context, session string) error {
	_, err := d.Pool.Exec(ctx, `INSERT INTO chat_sessions (id, status) VALUES ($1, 'searching')
		ON CONFLICT (id) DO NOTHING`, session)
	if err != nil {
		return fmt.Errorf("workforce: make a session: %w", err)
	}
	return nil
}

// Session implements [Backend].
func (d DB) Session(ctx context.Context, session string) (mitra, status string, err error) {
	err = d.Pool.QueryRow(ctx, `SELECT coalesce(mitra_id::text, ''), status::text
		FROM chat_sessions WHERE id = $1`, session).Scan(&mitra, &status)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", "", fmt.Errorf("workforce: read a session: %w", err)
	}
	return mitra, status, nil
}

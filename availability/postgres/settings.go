package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rollcall-redis/rollcall/availability"
)

// settings parse JSON values. The migration has the defaults.
var settings = map[string]func(*availability.Settings, []byte) error{
	"max_customers_per_mitra": func(s *availability.Settings, v []byte) error {
		return number(v, 0, func(n int) { s.MaxCustomers = n })
	},
	"stale_after_seconds": func(s *availability.Settings, v []byte) error {
		return number(v, 1, func(n int) { s.StaleAfter = time.Duration(n) * time.Second })
	},
	"require_ping": func(s *availability.Settings, v []byte) error {
		var b *bool
		if err := json.Unmarshal(v, &b); err != nil || b == nil {
			return fmt.Errorf("%s is neither true nor false", v)
		}
		s.RequirePing = *b
		return nil
	},
	"heartbeat_cadence_seconds": func(s *availability.Settings, v []byte) error {
		return number(v, 1, func(n int) { s.PingInterval = time.Duration(n) * time.Second })
	},
}

// most is three years in seconds.
const most = 100_000_000

var errNoRow = errors.New("app_config has no row of it")

func number(v []byte, least int, set func(int)) error {
	var n *int
	if err := json.Unmarshal(v, &n); err != nil || n == nil || *n < least || *n > most {
		return fmt.Errorf("%s is no whole number from %d to %d", v, least, most)
	}
	set(*n)
	return nil
}

// Settings implements [availability.Source].
func (s *Source) Settings(ctx context.Context) (availability.Settings, error) {
	values := map[string]string{}
	err := s.within(ctx, "settings", func(ctx context.Context, pool *pgxpool.Pool) error {
		clear(values)
		rows, err := pool.Query(ctx, `SELECT key, value::text FROM app_config WHERE key = ANY ($1)`,
			slices.Collect(maps.Keys(settings)))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var value *string
			if err := rows.Scan(&name, &value); err != nil {
				return err
			}
			if value == nil {
				value = new(string)
			}
			values[name] = *value
		}
		return rows.Err()
	})
	if err != nil {
		return availability.Settings{}, err
	}
	return s.understand(values)
}

// understand keeps the last valid value of a row that is invalid or missing.
func (s *Source) understand(values map[string]string) (availability.Settings, error) {
	read := availability.Settings{
		MaxCustomers: 3, StaleAfter: 2 * time.Minute, RequirePing: true, PingInterval: 30 * time.Second,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		err := errNoRow
		if value, there := values[name]; there {
			err = settings[name](&read, []byte(value))
		}
		if err == nil {
			s.good[name] = values[name]
			continue
		}
		bad = append(bad, fmt.Errorf("%w: %s: %w", availability.ErrSetting, name, err))
		if last, known := s.good[name]; known {
			_ = settings[name](&read, []byte(last))
		}
	}
	return read, errors.Join(bad...)
}

// unset is a parameter that is set nowhere, so that a late call fails.
const unset = "availability.late"

// PutSetting refuses values that Settings could not read.
func (s *Source) PutSetting(ctx context.Context, name string, value any) error {
	read, known := settings[name]
	if !known {
		return fmt.Errorf("%w: %q", availability.ErrSetting, name)
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = read(new(availability.Settings), text)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", availability.ErrSetting, name, err)
	}
	return s.within(ctx, "put setting", func(ctx context.Context, pool *pgxpool.Pool) error {
		return s.inTime(ctx, func(until pgtype.Timestamptz, at *time.Time) (late bool, err error) {
			err = pool.QueryRow(ctx, `INSERT INTO app_config (key, value) VALUES (
				CASE WHEN coalesce(clock_timestamp() > $3::timestamptz, false)
				THEN current_setting('`+unset+`') ELSE $1 END, $2)
				ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value RETURNING clock_timestamp()`,
				name, string(text), until).Scan(at)
			if refused, ok := errors.AsType[*pgconn.PgError](err); ok && strings.Contains(refused.Message, unset) {
				return true, nil
			}
			return false, err
		})
	})
}

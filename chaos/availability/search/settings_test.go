package search

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// setting changes a setting: by the program, by hand, to nonsense, or deletes it.
func (w *world) setting() {
	const limit = "max_customers_per_mitra"
	switch w.rng.IntN(6) {
	case 0, 1:
		w.putLimit(1+w.rng.IntN(4), w.chance(1, 2))
	case 2:
		w.badLimit("UPDATE app_config SET value = '" + []string{`"many"`, "null", "-1", "2.5", "[]"}[w.rng.IntN(5)] +
			"' WHERE key = '" + limit + "'")
	case 3:
		w.badLimit("DELETE FROM app_config WHERE key = '" + limit + "'")
	case 4:
		w.pinging = !w.pinging
		w.raw("UPDATE app_config SET value = to_jsonb($1::boolean) WHERE key = 'require_ping'", w.pinging)
	case 5:
		sql := "DELETE FROM app_config WHERE key = 'stale_after_seconds'"
		if w.chance(1, 2) {
			sql = "UPDATE app_config SET value = '\"long\"' WHERE key = 'stale_after_seconds'"
		}
		w.raw(sql)
	}
	w.announce()
}

// announce has the replicas read the settings again.
func (w *world) announce() {
	if w.chance(3, 4) {
		w.rdb.Publish(context.Background(), "config:invalidate", "x")
	}
}

// putLimit changes the limit, and what the oracle holds the program to, in one transaction.
func (w *world) putLimit(most int, by bool) {
	w.say("  limit %d", most)
	if by { // raising it first, lowering it last: for an instant less is demanded
		if !w.raw("UPDATE search_limit SET most = greatest(most, $1)", most) {
			return
		}
		ctx, cancel := briefly()
		defer cancel()
		err := w.replica().PutSetting(ctx, "max_customers_per_mitra", most)
		w.say("  %v", err)
		w.limited()
		return
	}
	w.raw(`WITH row AS (INSERT INTO app_config VALUES ('max_customers_per_mitra', to_jsonb($1::int))
		ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value)
		UPDATE search_limit SET most = $1`, most)
}

// badLimit leaves no limit that makes sense: the last one that a replica has read applies.
func (w *world) badLimit(sql string) {
	known := w.knownLimit()
	w.inTx(func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE search_limit SET most = greatest(most, $1)", known)
		return err
	})
}

func (w *world) knownLimit() (most int) {
	for _, r := range w.replicas {
		ctx, cancel := briefly()
		if s, err := r.Settings(ctx); err == nil {
			most = max(most, s.MaxCustomers)
		}
		cancel()
	}
	return most
}

// limited has the oracle hold the program to the limit of app_config, or where that makes no sense,
// to the highest that somebody may know.
func (w *world) limited() {
	w.raw(fmt.Sprintf(`UPDATE search_limit SET most = coalesce((SELECT value::text::integer FROM app_config
		WHERE key = 'max_customers_per_mitra' AND value::text ~ '^[0-9]+$'), greatest(most, %d))`, w.knownLimit()))
}

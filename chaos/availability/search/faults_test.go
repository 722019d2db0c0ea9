package search

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
)

// advance moves time on: all that is stored is so much older then. First PostgreSQL, then Redis,
// then the oracle: in between, signs of life are later than they should be, which keeps mitras
// online. It does nothing while somebody holds rows.
func (w *world) advance(d time.Duration) {
	w.copiedLate()
	var began time.Time
	if err := w.db.QueryRow(context.Background(), "SELECT clock_timestamp()").Scan(&began); err != nil {
		return
	}
	by := fmt.Sprintf("interval '%d milliseconds'", d.Milliseconds())
	_, err := w.db.Exec(context.Background(), strings.ReplaceAll(`
		UPDATE mitra_online_status SET last_online_at = last_online_at - by, last_offline_at = last_offline_at - by,
			last_heartbeat_at = last_heartbeat_at - by;
		UPDATE mitra_availability SET judged_at = judged_at - by;
		UPDATE search_flips SET at = at - by`, "by", by))
	w.say("  time goes on by %s: %v", d, err)
	if err != nil {
		return
	}
	w.advanceRedis(d)
	w.moved = [2]time.Time{began.Add(-d), began}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.signs {
		for _, at := range []*time.Time{&s.redis, &s.source} {
			if !at.IsZero() {
				*at = at.Add(-d)
			}
		}
	}
	w.gone = w.gone.Add(-d)
}

// copiedLate has all compared if heartbeats that were read from Redis before time was moved on were
// written to PostgreSQL afterwards: they are of a time that nothing is of any more.
func (w *world) copiedLate() {
	var late bool
	err := w.db.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM mitra_online_status
		WHERE last_heartbeat_at > $1 AND last_heartbeat_at <= $2)`, w.moved[0], w.moved[1]).Scan(&late)
	if err == nil && late {
		w.say("  heartbeats were copied while time went on")
		w.all = true
	}
}

// moments are moved by ARGV[1] (ms): fields of two hashes, and what excuses silence.
var moments = redis.NewScript(`
local function field(key, name)
  local v = redis.pcall('HGET', key, name)
  if type(v) == 'string' and string.find(v, '^%d+$') then
    redis.call('HSET', key, name, string.format('%.0f', tonumber(v) - ARGV[1]))
  end
end
for _, name in ipairs({ 'since', 'hold', 'disagreed', 'lost' }) do field('janitor:witness', name) end
for _, name in ipairs({ 'held_until', 'not_required', 'heartbeats_at' }) do field('availability:offline', name) end
for _, key in ipairs(redis.call('KEYS', 'mitra:unheard:*')) do
  local v = redis.pcall('GET', key)
  if type(v) == 'string' and string.find(v, '^%d+$') then
    redis.call('SET', key, string.format('%.0f', tonumber(v) - ARGV[1]), 'KEEPTTL')
  end
end`)

// exchange sets KEYS[1] to ARGV[2] if it is ARGV[1]; 0: it is not.
var exchange = redis.NewScript(`
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1`)

const iso = "2006-01-02T15:04:05.000Z"

func (w *world) advanceRedis(d time.Duration) {
	ctx := context.Background()
	err := moments.Run(ctx, w.rdb, nil, d.Milliseconds()).Err()
	if err != nil && err != redis.Nil { //nolint:errorlint // it is returned as it is
		w.found("time does not go on in Redis: %v", err)
	}
	for _, id := range w.ids {
		key := "mitra:heartbeat:" + id
		for {
			was, err := w.rdb.Get(ctx, key).Result()
			at, parsed := time.Parse(iso, was)
			if err != nil || parsed != nil || len(was) != len(iso) {
				break
			}
			if n, err := exchange.Run(ctx, w.rdb, []string{key}, was, at.Add(-d).Format(iso)).Int(); err == nil && n == 1 {
				break
			}
		}
	}
}

// mend ends all faults that last.
func (w *world) mend() {
	for _, h := range w.hung {
		_ = h.tx.Rollback(context.Background()) // or its connection has ended
	}
	w.hung = nil
	for _, r := range w.replicas {
		r.line.cut.Store(false)
	}
	for key, value := range map[string]string{
		"max_customers_per_mitra": "3", "require_ping": "true", "heartbeat_cadence_seconds": "1",
		"stale_after_seconds": fmt.Sprint(int(staleAfter.Seconds())),
	} {
		w.must("INSERT INTO app_config VALUES ($1, $2::jsonb) ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value",
			key, value)
	}
	w.limited()
	w.pinging = true
	w.rdb.Publish(context.Background(), "config:invalidate", "x")
}

func (w *world) endFeeds() {
	w.raw(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%pg_walfile_name%'`)
}

// endConnections ends all connections to the database but those of the oracle. One whose write it
// was about may or may not have happened.
func (w *world) endConnections() {
	_, err := w.admin.Exec(context.Background(), `SELECT pg_terminate_backend(pid, 3000) FROM pg_stat_activity
		WHERE datname = $1 AND application_name = 'rollcall'`, present)
	w.say("  %v", err)
}

// crash kills one of PostgreSQL's processes. It recovers, and has lost what was committed last.
func (w *world) crash() {
	w.voidSigns() // that a mitra went offline may get lost, and its heartbeats in Redis have gone with it
	ctx := context.Background()
	conn, err := w.db.Acquire(ctx)
	if err != nil {
		return
	}
	require.NoError(w.t, syscall.Kill(int(conn.Conn().PgConn().PID()), syscall.SIGKILL))
	conn.Release()
	w.until("PostgreSQL recovers", time.Minute, func() bool {
		_, err := w.admin.Exec(ctx, "SELECT 1")
		return err == nil
	})
	w.sourceIsBack()
}

// sourceIsBack forgets what PostgreSQL has lost.
func (w *world) sourceIsBack() {
	w.mending = true
	for _, h := range w.hung {
		_ = h.tx.Rollback(context.Background()) // it has
	}
	w.hung = nil
	w.lost(false, true, w.ids...)
	w.db.Reset()
	w.must("DELETE FROM search_flips")
	w.must("DELETE FROM search_excess")
	var child bool
	w.until("PostgreSQL says what it has", time.Minute, func() bool {
		return w.db.QueryRow(context.Background(),
			"SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = 'search_children'::regclass)").Scan(&child) == nil
	})
	w.child = child
	// What staysAway put back may be among what was lost.
	w.must("UPDATE app_config SET value = to_jsonb($1::int) WHERE key = 'stale_after_seconds' AND value = to_jsonb($2::int)",
		int(staleAfter.Seconds()), int(shortStale.Seconds()))
	w.rdb.Publish(context.Background(), "config:invalidate", "x")
	w.limited()
}

func (w *world) restartSource() {
	w.voidSigns() // as in a crash
	w.pg.Restart()
	w.admin.Reset()
	w.sourceIsBack()
}

// saved are the tables that a backup of the service's data has.
var saved = []string{"mitras", "mitra_online_status", "chat_sessions", "mitra_availability"}

// backUp copies the database as it is now, the data, or the whole server.
func (w *world) backUp() {
	switch n := w.rng.IntN(8); {
	case n == 0:
		w.discard(w.data)
		w.data = w.pg.Copy()
	case n <= 2 && len(w.hung) == 0:
		if err := w.copyDatabase(context.Background(), present, backup); err != nil {
			w.found("backup: %v", err)
		}
		w.copied = true
		w.db.Reset()
	default:
		w.inTx(func(ctx context.Context, tx pgx.Tx) error {
			for _, table := range saved {
				_, err := tx.Exec(ctx, fmt.Sprintf("DROP TABLE IF EXISTS saved_%[1]s; "+
					"CREATE TABLE saved_%[1]s AS SELECT * FROM ONLY %[1]s", table))
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// restore puts back what a backup has, while all others are connected.
func (w *world) restore() {
	if w.copied && w.chance(1, 3) {
		if err := w.copyDatabase(context.Background(), backup, present); err != nil {
			w.found("restore: %v", err)
		}
		w.say("  the database")
		w.sourceIsBack()
		return
	}
	if len(w.hung) > 0 { // they would wait for each other
		return
	}
	empty := "TRUNCATE mitras, mitra_online_status, mitra_online_logs, auth_sessions, chat_sessions, mitra_availability"
	kept := w.chance(1, 3)
	if kept { // only a comparison can see it
		empty = "DELETE FROM chat_sessions; DELETE FROM mitra_online_status; DELETE FROM mitras; DELETE FROM mitra_availability"
	}
	ok := w.inTx(func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL session_replication_role = replica; "+empty); err != nil {
			return err
		}
		for _, table := range saved {
			if _, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %[1]s SELECT * FROM saved_%[1]s", table)); err != nil {
				return err
			}
		}
		return nil
	})
	if ok {
		w.say("  the data, by DELETE %t", kept)
		w.unseen, w.mending = w.unseen || kept, true
		w.lost(false, true, w.ids...)
	}
}

// failOver has the server go on with what it had when its data were copied.
func (w *world) failOver() {
	if w.data == "" {
		return
	}
	w.voidSigns() // as in a crash
	w.pg.RestartOn(w.data)
	w.admin.Reset()
	w.copied = false // it may not be there, or half of it
	w.sourceIsBack()
}

// discard deletes a copy of the server's data; "" is none.
func (w *world) discard(copied string) {
	require.NoError(w.t, os.RemoveAll(copied))
}

// emptied notes that Redis has lost what it had.
func (w *world) emptied() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = time.Now()
}

func (w *world) flush() {
	w.rdb.FlushAll(context.Background())
	w.emptied()
}

// setRedisBack gives Redis what it last saved while it runs: its ids and connections stay.
func (w *world) setRedisBack() {
	err := w.rdb.Do(context.Background(), "DEBUG", "RELOAD", "NOSAVE").Err()
	w.say("  %v", err)
	w.emptied()
	w.count("set back")
}

// restartRedis has Redis begin anew with what it last saved, if anything.
func (w *world) restartRedis() {
	w.redis.Restart()
	w.emptied()
}

const heartbeatKey, capacityKey, unheardKey = "mitra:heartbeat:", "mitra:capacity:", "mitra:unheard:"

// shared are the keys that all mitras share, and the type of each.
var shared = []struct{ key, is string }{
	{"mitras:online", "set"}, {"mitras:deactivated", "set"}, {"mitras:version", "hash"},
	{"mitras:seeded", "string"}, {"mitras:fed", "hash"},
	{"availability:snapshot", "string"}, {"availability:snapshot:computing", "string"},
	{"availability:offline", "hash"},
}

// structures are those that a comparison makes again, if they are of their type.
var structures = map[string]bool{"mitras:online": true, "mitras:deactivated": true, "mitras:version": true}

// types are commands that put a value of each type in the place of a key.
var types = []struct{ is, command string }{
	{"string", "SET KEY VALUE"}, {"list", "LPUSH KEY VALUE"}, {"set", "SADD KEY VALUE"}, {"zset", "ZADD KEY 0 VALUE"},
	{"hash", "HSET KEY VALUE 1 x VALUE"}, {"stream", "XADD KEY * x VALUE"},
}

func (w *world) ofMitra() (key, id string) {
	id = w.any()
	return []string{heartbeatKey, capacityKey, unheardKey}[w.rng.IntN(3)] + id, id
}

// poison puts a value of any type and size in the place of any key.
func (w *world) poison() {
	value := "x"
	if w.chance(1, 3) {
		value = strings.Repeat(value, mostReply)
	}
	kind := types[w.rng.IntN(len(types))]
	key, id := w.ofMitra()
	if w.chance(1, 2) {
		one := shared[w.rng.IntN(len(shared))]
		key, id = one.key, ""
		w.all = w.all || structures[one.key] && one.is == kind.is
	}
	w.say("  %s is a %s of %d bytes", key, kind.is, len(value))
	w.mayLose(key, id)
	_, err := w.rdb.TxPipelined(context.Background(), func(p redis.Pipeliner) error {
		p.Del(context.Background(), key)
		var command []any
		for word := range strings.FieldsSeq(kind.command) {
			is, ours := map[string]string{"KEY": key, "VALUE": value}[word]
			if !ours {
				is = word
			}
			command = append(command, is)
		}
		p.Do(context.Background(), command...)
		return nil
	})
	if err != nil {
		w.found("%v", err)
	}
}

// mayLose notes which mitra's answers a change by hand may touch. A heartbeat that somebody
// overwrote with nonsense still keeps its mitra from going offline.
func (w *world) mayLose(key, id string) {
	if strings.HasPrefix(key, capacityKey) || strings.HasPrefix(key, heartbeatKey) {
		w.marred[id] = true
	}
}

// deleteKey deletes a key: of the mirror, or of the janitors.
func (w *world) deleteKey() {
	key, id := w.ofMitra()
	switch n := w.rng.IntN(14); {
	case n < len(shared):
		key, id = shared[n].key, ""
		w.all = w.all || structures[key]
	case n < len(shared)+3:
		key, id = []string{"janitor:leader", "janitor:witness", "janitor:log"}[n-len(shared)], ""
	}
	w.say("  %s", key)
	w.mayLose(key, id)
	if strings.HasPrefix(key, heartbeatKey) || strings.HasPrefix(key, unheardKey) {
		w.lost(true, false, id)
	}
	w.rdb.Del(context.Background(), key)
}

// mar changes what the mirror has of one mitra.
func (w *world) mar() {
	ctx, id := context.Background(), w.any()
	w.marred[id] = true
	version, _ := w.rdb.HGet(ctx, "mitras:version", id).Int64()
	switch n := w.rng.IntN(7); n {
	case 0:
		w.rdb.SRem(ctx, "mitras:online", id)
	case 1:
		w.rdb.SAdd(ctx, "mitras:deactivated", id)
	case 2:
		w.rdb.Set(ctx, capacityKey+id, []string{"-1", "9", "many", ""}[w.rng.IntN(4)], 0)
	case 3:
		w.rdb.HSet(ctx, "mitras:version", id, version+int64(w.rng.IntN(9))-4)
	case 4:
		w.rdb.HSet(ctx, "mitras:version", id, []string{"x", "nan", "1e9", "9223372036854775807"}[w.rng.IntN(4)])
	case 5:
		w.lost(true, false, id)
		w.rdb.Set(ctx, heartbeatKey+id, time.Now().UTC().Add(-time.Hour).Format(iso), 0)
	case 6:
		w.rdb.Set(ctx, heartbeatKey+id, []string{"now", "", "9999-12-31T23:59:59.999Z"}[w.rng.IntN(3)], 0)
	}
	w.say("  %s", id)
}

// staysAway has Redis be away from all replicas, for as long as a mitra may be silent: from then on
// reads that fall back call nobody reachable who has been silent for longer.
func (w *world) staysAway() {
	w.rests()
	w.must("UPDATE app_config SET value = to_jsonb($1::int) WHERE key = 'stale_after_seconds'", int(shortStale.Seconds()))
	w.until("replicas know the setting", time.Minute, func() bool {
		w.rdb.Publish(context.Background(), "config:invalidate", "x")
		for _, r := range w.replicas {
			if s, err := r.Settings(context.Background()); err != nil || s.StaleAfter != shortStale {
				return false
			}
		}
		return true
	})
	// Heartbeats may have become required a moment ago: every replica has to hear that it is longer,
	// also where Redis has lost since when.
	w.advance(time.Hour)
	w.until("it is a hash", time.Minute, func() bool { // until a moment ago it may have been another type
		return w.rdb.HSet(context.Background(), "availability:offline", "not_required",
			time.Now().Add(-3*time.Hour).UnixMilli()).Err() == nil
	})
	begun := time.Now()
	w.until("replicas have looked", time.Minute, func() bool {
		return !slices.ContainsFunc(w.replicas, func(r *replica) bool { return !r.Health().LookedAt.After(begun) })
	})
	for _, r := range w.replicas {
		for _, id := range w.ids {
			w.online(r, id)
			w.beat(r, id)
		}
		r.line.sever()
	}
	<-time.After(shortStale + 50*time.Millisecond)
	w.advance(20 * time.Minute)
	w.beatAtSource(w.replica(), w.ids[0])
	over := w.patience(within)
	for why := w.calledReachable(); why != ""; why = w.calledReachable() {
		if over() {
			w.found("%s", why)
		}
		<-time.After(pollEvery)
	}
	w.count("Redis away for long")
	w.must("UPDATE app_config SET value = to_jsonb($1::int) WHERE key = 'stale_after_seconds'", int(staleAfter.Seconds()))
	for _, r := range w.replicas {
		r.line.cut.Store(false)
	}
	w.rdb.Publish(context.Background(), "config:invalidate", "x")
}

// calledReachable is an answer of the fallback that calls a mitra reachable who is silent.
func (w *world) calledReachable() string {
	ctx := context.Background()
	for _, r := range w.replicas {
		for _, id := range w.ids {
			a, err := r.Reachable(ctx, id)
			if age := w.age(id, availability.FromValkey); err == nil && a.Value && age > shortStale+2*beatsMirrored+w.slack() {
				return fmt.Sprintf("replica %s: %s is reachable (from %s), and the last sign of life was %s ago",
					r.name, id, a.From, age)
			}
		}
	}
	return ""
}

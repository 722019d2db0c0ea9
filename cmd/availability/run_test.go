package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAMitrasLifeThroughTheProgram(t *testing.T) {
	s := own(t)
	rdb := s.server.Client()
	// As the user that is documented, from which nothing is kept, also where nobody would see it.
	user := redistest.User(t, "../../docs/redis.md", "availability")
	require.NoError(t, rdb.Do(t.Context(), append([]any{"ACL", "SETUSER", "availability"}, user...)...).Err())
	defer func() {
		refused, err := rdb.ACLLog(context.Background(), 100).Result()
		require.NoError(t, err)
		for _, r := range refused {
			t.Errorf("refused: %s %s, from %s", r.Reason, r.Object, r.Context)
		}
	}()
	p := s.serving("--redis-url=redis://availability:PASSWORD@" + s.server.Addr()) // on an empty database
	p.Await(func() bool { return p.state().Ready }, "it is ready")
	st := p.state()
	require.True(t, st.Mirror.Whole, "it was seeded before HTTP was open")
	require.True(t, st.Postgres.Prepared)

	id, silent := p.mitra("a"), p.mitra("silent")
	p.session("s")
	p.plays(`
		204 {a} POST /mitra/online
		204 {silent} POST /mitra/online
		200 service GET /available -> valkey {a}
		200 service POST /sessions/{s}/accept {"mitra_id": "{a}"}`)
	require.True(t, rdb.SIsMember(t.Context(), "mitras:online", id).Val(), "other services read these keys")
	require.Equal(t, "1", rdb.Get(t.Context(), "mitra:capacity:"+id).Val())

	// From here on, two seconds of silence set a mitra offline, once Redis has been observed for
	// that long.
	p.plays(`
		200 service POST /sessions/{s}/end {"status": "completed"}
		200 admin PUT /config/heartbeat_cadence_seconds {"value": 1}
		200 admin PUT /config/stale_after_seconds {"value": 2}`)
	p.Await(func() bool {
		resp, _ := p.Ask(bearer(token.Mitra, id), "POST", "/api/v1/mitra/heartbeat", "")
		if resp.StatusCode == http.StatusConflict { // this machine was slower than that
			p.plays("204 {a} POST /mitra/online")
		}
		return !rdb.SIsMember(t.Context(), "mitras:online", silent).Val()
	}, "the silent one goes offline")
	p.plays("409 {silent} POST /mitra/heartbeat")
	var logged int
	require.NoError(t, s.db.QueryRow(t.Context(),
		"SELECT count(*) FROM mitra_online_logs WHERE mitra_id = $1 AND status = 'offline'", silent).Scan(&logged))
	require.Equal(t, 1, logged)

	code, body := p.Post("/api/v1/sweep?sweep=availability_reconcile", adminToken)
	require.Equal(t, http.StatusOK, code, body)
	st = p.state()
	require.True(t, st.Janitor.Leading)
	require.False(t, st.Mirror.DriftAt.IsZero())
	p.Await(func() bool { return !p.state().Counts.At.IsZero() }, "mitras are counted")
	for _, want := range []string{
		"Rollcall availability ", "this replica leads", "whole", "connections busy", "who is silent for too long goes offline", "can take work",
	} { // after a hold: this machine may have stood still
		p.Await(func() bool { _, page := p.Get("/"); return strings.Contains(page, want) }, "the page says "+want)
	}
	_, metrics := p.Get("/metrics")
	for _, want := range []string{
		"availability_mirror_whole 1", "availability_postgres_answers 1", "availability_mitras_online ", "availability_seeds_total 1",
		`availability_http_request_seconds_count{code="204",route="POST /api/v1/mitra/online"}`, "janitor_leader 1\n", "go_goroutines",
		"availability_auto_offline_total ", "availability_postgres_connections ",
	} {
		require.Contains(t, metrics, want)
	}
	require.NotContains(t, metrics, id, "no label is a mitra")
	require.NotContains(t, metrics, "registry_held", "there are no devices")

	p.stops()
	for _, key := range []string{"janitor:leader", "instance:heartbeat:" + st.Instance} {
		require.Zero(t, rdb.Exists(t.Context(), key).Val(), key)
	}
	require.NotContains(t, p.Log.String(), secret)
}

func TestWhileRedisIsAwayEverythingIsAnsweredFromPostgres(t *testing.T) {
	s := own(t)
	p := s.serving()
	p.mitra("a")
	p.session("s")
	p.plays(`
		204 {a} POST /mitra/online
		200 admin GET /config`)
	s.server.Kill()
	p.Await(func() bool { return p.state().Mirror.Redis != "closed" || !p.state().Mirror.Whole }, "it is noticed")
	p.plays(`
		200 service GET /available -> postgres {a}
		200 service GET /availability`)
	p.Await(func() bool { // the last snapshot is good for ten seconds
		source, body := p.plays("200 customer GET /availability")
		return source == "postgres" && body == `{"available":true,"count":1}`
	}, "the snapshot is computed from Postgres")
	p.plays(`
		200 {a} GET /mitra/status -> postgres "is_online":true
		204 {a} POST /mitra/heartbeat -> postgres
		200 admin GET /mitras?online=true -> postgres {a}
		200 service POST /sessions/{s}/accept {"mitra_id": "{a}"}
		200 admin PUT /config/max_customers_per_mitra {"value": 1}
		200 service GET /available -> []
		200 service POST /sessions/{s}/end {"status": "expired"}
		204 {a} POST /mitra/offline
		409 {a} POST /mitra/heartbeat
		204 {a} POST /mitra/online
		200 admin PUT /mitras/{a} {"is_active": false}
		403 {a} POST /mitra/heartbeat`)
	p.Await(func() bool { st := p.state(); return st.Ready && st.Counts.Source == "postgres" }, "it is ready: Postgres answers")
	_, page := p.Get("/")
	require.Contains(t, page, "reads fall back to PostgreSQL")

	s.server.Restart() // with nothing in it
	p.Await(func() bool {
		source, _ := p.plays("200 service GET /available")
		return source == "valkey"
	}, "the mirror is seeded again")
	p.plays("403 {a} POST /mitra/heartbeat")
}

func TestWhilePostgresIsAwayReadsAndHeartbeatsGoOn(t *testing.T) {
	t.Parallel()
	postgres := pgtest.Start(t)
	s := stores{t, redistest.Start(t), postgres.Database()}
	p := s.serving()
	p.mitra("a")
	p.session("s")
	p.plays("204 {a} POST /mitra/online")
	postgres.Kill()
	p.Await(func() bool { return !p.state().Postgres.Answers }, "it is noticed")
	for range 3 {
		p.plays(`
			204 {a} POST /mitra/heartbeat
			200 service GET /available -> valkey {a}
			200 {a} GET /mitra/status -> valkey
			200 customer GET /availability
			200 admin GET /config`)
	}
	p.plays(`
		503 service POST /sessions/{s}/accept {"mitra_id": "{a}"}
		503 service POST /sessions/{s}/end {"status": "completed"}
		503 {a} POST /mitra/offline
		503 admin GET /mitras
		503 admin PUT /mitras/{a} {"is_active": false}
		503 admin PUT /config/require_ping {"value": false}`)
	p.Await(func() bool { st := p.state(); return st.Ready && st.Counts.Source == "valkey" }, "it is ready: the mirror is whole")
	_, page := p.Get("/")
	require.Contains(t, page, "does not answer")

	s.server.Kill() // now nobody can answer
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == http.StatusServiceUnavailable }, "it is not ready")
	_, body := p.Get("/readyz")
	require.Contains(t, body, "nobody can answer")
	p.plays(`
		503 service GET /available
		503 {a} POST /mitra/heartbeat`)
	source, _ := p.plays("200 customer GET /availability")
	require.NotEmpty(t, source)
	postgres.Restart()
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == http.StatusOK }, "it is ready again")
	p.plays("204 {a} POST /mitra/heartbeat")
	require.NotContains(t, p.Log.String(), secret)
}

func TestItStartsWithoutPostgresAndServesWhatRedisKnows(t *testing.T) {
	t.Parallel()
	postgres := pgtest.Start(t)
	s := stores{t, redistest.Start(t), postgres.Database()}
	former := s.serving()
	former.mitra("a")
	former.plays("204 {a} POST /mitra/online")
	former.stops()
	postgres.Kill()

	p := s.serving()
	p.names = former.names
	require.Contains(t, p.Log.String(), "PostgreSQL cannot be prepared: trying again")
	p.plays(`
		204 {a} POST /mitra/heartbeat
		503 service GET /available`) // no settings are known
	postgres.Restart()
	p.Await(func() bool { st := p.state(); return st.Postgres.Prepared && st.Mirror.Whole && st.Ready }, "it is whole")
	p.plays("200 service GET /available")
}

func TestAReplicaStartsWithASettingThatMakesNoSenseAndSaysSo(t *testing.T) {
	s := own(t)
	s.serving().stops()
	s.exec(`UPDATE app_config SET value = '"many"' WHERE key = 'max_customers_per_mitra'`)
	p := s.serving()
	p.mitra("a")
	p.session("s")
	p.plays(`
		204 {a} POST /mitra/online
		200 service GET /available
		200 service POST /sessions/{s}/accept {"mitra_id": "{a}"}
		200 admin GET /config -> "max_customers_per_mitra":3`)
	p.Await(func() bool {
		st := p.state().Mirror
		return strings.Contains(st.SettingsError, "max_customers_per_mitra") && st.Offline == "settings"
	}, "status says so")
	_, page := p.Get("/")
	require.Contains(t, page, "last good settings apply, or defaults")
	p.plays(`200 admin PUT /config/max_customers_per_mitra {"value": 2}`)
	p.Await(func() bool { return p.state().Mirror.SettingsError == "" }, "it is mended")
	require.Equal(t, 1, strings.Count(p.Log.String(), "a setting makes no sense"))
}

func TestWithoutMigrationWhatLacksIsNamed(t *testing.T) {
	s := own(t)
	const off, free = "--migrate=off", "--http-addr=127.0.0.1:0"
	code, _, said := says(t, s.args(off, free)...)
	require.Equal(t, cli.ExitFailed, code)
	for _, want := range []string{
		"relation mitras", "relation app_config", "function availability_session",
		"trigger availability_named on mitra_online_status", "availability migrate",
	} {
		require.Contains(t, said, want)
	}
	for range 2 { // it may be run again
		code, out, said := says(t, "migrate", "--database-url="+s.db.URL)
		require.Equal(t, cli.ExitOK, code, said)
		require.Equal(t, "the database has all that replicas need\n", out)
	}
	first, second := s.serving(off), s.serving(off)
	require.True(t, second.state().Postgres.Prepared)
	first.stops()
	second.stops()
	s.exec("ALTER TABLE chat_sessions DISABLE TRIGGER availability_update")
	_, _, said = says(t, s.args(off, free)...)
	require.Contains(t, said, "the schema lacks: trigger availability_update on chat_sessions")
	code, _, said = says(t, "migrate", "--database-url="+s.db.URL)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, said,
		"trigger availability_update on chat_sessions: somebody has dropped or disabled it")
}

func TestAPostgresThatRefusesEndsItAndThePasswordIsNotRepeated(t *testing.T) {
	s := own(t)
	role := s.db.Name + "_reader"
	s.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'geheim'")
	for as, want := range map[string]string{role: "permission denied for schema public", "nobody_" + s.db.Name: "does not exist"} {
		code, _, said := says(t, on(s.server, s.db.As(as+":geheim"), "--http-addr=127.0.0.1:0")...)
		require.Equal(t, cli.ExitFailed, code)
		require.Contains(t, said, want)
		require.NotContains(t, said, "geheim")
	}
	s.exec("DROP ROLE " + role)
}

func TestAnAddressInUseIsSaidAtTheStart(t *testing.T) {
	s := own(t)
	code, _, said := says(t, s.args("--http-addr="+s.serving().HTTP)...)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, said, "address already in use")
}

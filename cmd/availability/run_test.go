package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAMitrasLifeThroughTheProgram(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	rdb := server.Client()
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
	p := serving(t, on(server, db.URL, "--redis-url=redis://availability:PASSWORD@"+server.Addr())...) // on an empty database
	p.Await(func() bool { return p.state().Ready }, "it is ready")
	st := p.state()
	require.True(t, st.Mirror.Whole, "it was seeded before HTTP was open")
	require.True(t, st.Postgres.Prepared)

	id, as := newMitra(t, db)
	silent, asSilent := newMitra(t, db)
	p.is(204, as, "POST", "/api/v1/mitra/online", "")
	p.is(204, asSilent, "POST", "/api/v1/mitra/online", "")
	require.True(t, rdb.SIsMember(t.Context(), "mitras:online", id).Val(), "other services read these keys")
	source, body := p.is(200, asService, "GET", "/api/v1/available", "")
	require.Equal(t, "valkey", source)
	require.Contains(t, body, id)
	session := newSession(t, db)
	p.is(200, asService, "POST", "/api/v1/sessions/"+session+"/accept", `{"mitra_id": "`+id+`"}`)
	require.Equal(t, "1", rdb.Get(t.Context(), "mitra:capacity:"+id).Val())
	p.is(200, asService, "POST", "/api/v1/sessions/"+session+"/end", `{"status": "completed"}`)

	// From here on, two seconds of silence set a mitra offline, once Redis has been observed for
	// that long.
	p.is(200, asAdmin, "PUT", "/api/v1/config/heartbeat_cadence_seconds", `{"value": 1}`)
	p.is(200, asAdmin, "PUT", "/api/v1/config/stale_after_seconds", `{"value": 2}`)
	p.Await(func() bool {
		resp, _ := p.Ask(as, "POST", "/api/v1/mitra/heartbeat", "")
		if resp.StatusCode == http.StatusConflict { // this machine was slower than that
			p.is(204, as, "POST", "/api/v1/mitra/online", "")
		}
		return !rdb.SIsMember(t.Context(), "mitras:online", silent).Val()
	}, "the silent one goes offline")
	p.is(409, asSilent, "POST", "/api/v1/mitra/heartbeat", "")
	var logged int
	require.NoError(t, db.QueryRow(t.Context(),
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

	p.Stop()
	require.Equal(t, cli.ExitOK, p.Ends())
	for _, key := range []string{"janitor:leader", "instance:heartbeat:" + st.Instance} {
		require.Zero(t, rdb.Exists(t.Context(), key).Val(), key)
	}
	require.NotContains(t, p.Log.String(), secret)
}

func TestWhileRedisIsAwayEverythingIsAnsweredFromPostgres(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	p := serving(t, on(server, db.URL)...)
	id, as := newMitra(t, db)
	p.is(204, as, "POST", "/api/v1/mitra/online", "")
	p.is(200, asAdmin, "GET", "/api/v1/config", "")
	server.Kill()
	p.Await(func() bool { return p.state().Mirror.Redis != "closed" || !p.state().Mirror.Whole }, "it is noticed")
	for _, path := range []string{"/api/v1/available", "/api/v1/availability"} {
		source, body := p.is(200, asService, "GET", path, "")
		if path == "/api/v1/available" {
			require.Equal(t, "postgres", source, path)
			require.Contains(t, body, id)
		}
	}
	p.Await(func() bool { // the last snapshot is good for ten seconds
		source, body := p.is(200, asCustomer, "GET", "/api/v1/availability", "")
		return source == "postgres" && body == `{"available":true,"count":1}`
	}, "the snapshot is computed from Postgres")
	source, body := p.is(200, as, "GET", "/api/v1/mitra/status", "")
	require.Equal(t, "postgres", source)
	require.Contains(t, body, `"is_online":true`)
	source, _ = p.is(204, as, "POST", "/api/v1/mitra/heartbeat", "")
	require.Equal(t, "postgres", source)
	source, body = p.is(200, asAdmin, "GET", "/api/v1/mitras?online=true", "")
	require.Equal(t, "postgres", source)
	require.Contains(t, body, id)
	session := newSession(t, db)
	p.is(200, asService, "POST", "/api/v1/sessions/"+session+"/accept", `{"mitra_id": "`+id+`"}`)
	p.is(200, asAdmin, "PUT", "/api/v1/config/max_customers_per_mitra", `{"value": 1}`)
	_, body = p.is(200, asService, "GET", "/api/v1/available", "")
	require.Equal(t, "[]", body, "the mitra is busy, and the setting is read at once")
	p.is(200, asService, "POST", "/api/v1/sessions/"+session+"/end", `{"status": "expired"}`)
	p.is(204, as, "POST", "/api/v1/mitra/offline", "")
	p.is(409, as, "POST", "/api/v1/mitra/heartbeat", "")
	p.is(204, as, "POST", "/api/v1/mitra/online", "")
	p.is(200, asAdmin, "PUT", "/api/v1/mitras/"+id, `{"is_active": false}`)
	p.is(403, as, "POST", "/api/v1/mitra/heartbeat", "")
	p.Await(func() bool { st := p.state(); return st.Ready && st.Counts.Source == "postgres" }, "it is ready: Postgres answers")
	_, page := p.Get("/")
	require.Contains(t, page, "reads fall back to PostgreSQL")

	server.Restart() // with nothing in it
	p.Await(func() bool {
		source, _ := p.is(200, asService, "GET", "/api/v1/available", "")
		return source == "valkey"
	}, "the mirror is seeded again")
	p.is(403, as, "POST", "/api/v1/mitra/heartbeat", "")
}

func TestWhilePostgresIsAwayReadsAndHeartbeatsGoOn(t *testing.T) {
	t.Parallel()
	server, postgres := redistest.Start(t), pgtest.Start(t)
	db := postgres.Database()
	p := serving(t, on(server, db.URL)...)
	id, as := newMitra(t, db)
	p.is(204, as, "POST", "/api/v1/mitra/online", "")
	session := newSession(t, db)
	postgres.Kill()
	p.Await(func() bool { return !p.state().Postgres.Answers }, "it is noticed")
	for range 3 {
		p.is(204, as, "POST", "/api/v1/mitra/heartbeat", "")
		source, body := p.is(200, asService, "GET", "/api/v1/available", "")
		require.Equal(t, "valkey", source)
		require.Contains(t, body, id)
		source, _ = p.is(200, as, "GET", "/api/v1/mitra/status", "")
		require.Equal(t, "valkey", source)
		p.is(200, asCustomer, "GET", "/api/v1/availability", "")
		p.is(200, asAdmin, "GET", "/api/v1/config", "")
	}
	for path, body := range map[string]string{
		"/api/v1/sessions/" + session + "/accept": `{"mitra_id": "` + id + `"}`,
		"/api/v1/sessions/" + session + "/end":    `{"status": "completed"}`,
	} {
		p.is(503, asService, "POST", path, body)
	}
	p.is(503, as, "POST", "/api/v1/mitra/offline", "")
	p.is(503, asAdmin, "GET", "/api/v1/mitras", "")
	p.is(503, asAdmin, "PUT", "/api/v1/mitras/"+id, `{"is_active": false}`)
	p.is(503, asAdmin, "PUT", "/api/v1/config/require_ping", `{"value": false}`)
	p.Await(func() bool { st := p.state(); return st.Ready && st.Counts.Source == "valkey" }, "it is ready: the mirror is whole")
	_, page := p.Get("/")
	require.Contains(t, page, "does not answer")

	server.Kill() // now nobody can answer
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == http.StatusServiceUnavailable }, "it is not ready")
	_, body := p.Get("/readyz")
	require.Contains(t, body, "nobody can answer")
	p.is(503, asService, "GET", "/api/v1/available", "")
	p.is(503, as, "POST", "/api/v1/mitra/heartbeat", "")
	source, _ := p.is(200, asCustomer, "GET", "/api/v1/availability", "")
	require.NotEmpty(t, source)
	postgres.Restart()
	p.Await(func() bool { code, _ := p.Get("/readyz"); return code == http.StatusOK }, "it is ready again")
	p.is(204, as, "POST", "/api/v1/mitra/heartbeat", "")
	require.NotContains(t, p.Log.String(), secret)
}

func TestItStartsWithoutPostgresAndServesWhatRedisKnows(t *testing.T) {
	t.Parallel()
	server, postgres := redistest.Start(t), pgtest.Start(t)
	db := postgres.Database()
	former := serving(t, on(server, db.URL)...)
	_, as := newMitra(t, db)
	former.is(204, as, "POST", "/api/v1/mitra/online", "")
	former.Stop()
	require.Equal(t, cli.ExitOK, former.Ends())
	postgres.Kill()

	p := serving(t, on(server, db.URL)...)
	require.Contains(t, p.Log.String(), "PostgreSQL cannot be prepared: trying again")
	p.is(204, as, "POST", "/api/v1/mitra/heartbeat", "")
	p.is(503, asService, "GET", "/api/v1/available", "") // no settings are known
	postgres.Restart()
	p.Await(func() bool { st := p.state(); return st.Postgres.Prepared && st.Mirror.Whole && st.Ready }, "it is whole")
	p.is(200, asService, "GET", "/api/v1/available", "")
}

func TestTwoReplicasMigrateOneAfterTheOtherAndOneLeads(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	replicas := make(chan *running, 2)
	for range 2 {
		go func() { replicas <- serving(t, on(server, db.URL)...) }()
	}
	one, other := <-replicas, <-replicas
	_, as := newMitra(t, db)
	one.is(204, as, "POST", "/api/v1/mitra/online", "")
	other.is(204, as, "POST", "/api/v1/mitra/heartbeat", "")
	one.Await(func() bool { return one.state().Janitor.Leading != other.state().Janitor.Leading }, "one leads")
	// An event carries a change from one replica to the other.
	one.is(200, asAdmin, "PUT", "/api/v1/config/heartbeat_cadence_seconds", `{"value": 7}`)
	other.Await(func() bool {
		_, body := other.is(200, as, "GET", "/api/v1/mitra/status", "")
		return strings.Contains(body, `"heartbeat_cadence_seconds":7`)
	}, "the other knows the setting")
}

func TestAReplicaStartsWithASettingThatMakesNoSenseAndSaysSo(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	former := serving(t, on(server, db.URL)...)
	former.Stop()
	require.Equal(t, cli.ExitOK, former.Ends())
	_, err := db.Exec(t.Context(),
		`UPDATE app_config SET value = '"many"' WHERE key = 'max_customers_per_mitra'`)
	require.NoError(t, err)
	p := serving(t, on(server, db.URL)...)
	id, as := newMitra(t, db)
	p.is(204, as, "POST", "/api/v1/mitra/online", "")
	p.is(200, asService, "GET", "/api/v1/available", "")
	p.is(200, asService, "POST", "/api/v1/sessions/"+newSession(t, db)+"/accept", `{"mitra_id": "`+id+`"}`)
	_, body := p.is(200, asAdmin, "GET", "/api/v1/config", "")
	require.Contains(t, body, `"max_customers_per_mitra":3`)
	p.Await(func() bool {
		st := p.state().Mirror
		return strings.Contains(st.SettingsError, "max_customers_per_mitra") && st.Offline == "settings"
	}, "status says so")
	_, page := p.Get("/")
	require.Contains(t, page, "last good settings apply, or defaults")
	p.is(200, asAdmin, "PUT", "/api/v1/config/max_customers_per_mitra", `{"value": 2}`)
	p.Await(func() bool { return p.state().Mirror.SettingsError == "" }, "it is mended")
	require.Equal(t, 1, strings.Count(p.Log.String(), "a setting makes no sense"))
}

func TestWithoutMigrationWhatLacksIsNamed(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	code, _, said := says(t, on(server, db.URL, "--migrate=off", "--http-addr=127.0.0.1:0")...)
	require.Equal(t, cli.ExitFailed, code)
	for _, want := range []string{"relation mitras", "relation app_config", "function availability_session", "trigger availability_named on mitra_online_status"} {
		require.Contains(t, said, want)
	}
	require.Contains(t, said, "availability migrate")
	for range 2 { // it may be run again
		code, out, said := says(t, "migrate", "--database-url="+db.URL)
		require.Equal(t, cli.ExitOK, code, said)
		require.Equal(t, "the database has all that replicas need\n", out)
	}
	first := serving(t, on(server, db.URL, "--migrate=off")...)
	second := serving(t, on(server, db.URL, "--migrate=off")...)
	require.True(t, second.state().Postgres.Prepared)
	first.Stop()
	require.Equal(t, cli.ExitOK, first.Ends())
	second.Stop()
	require.Equal(t, cli.ExitOK, second.Ends())
	_, err := db.Exec(t.Context(), "ALTER TABLE chat_sessions DISABLE TRIGGER availability_update")
	require.NoError(t, err)
	_, _, said = says(t, on(server, db.URL, "--migrate=off", "--http-addr=127.0.0.1:0")...)
	require.Contains(t, said, "the schema lacks: trigger availability_update on chat_sessions")
	code, _, said = says(t, "migrate", "--database-url="+db.URL)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, said,
		"trigger availability_update on chat_sessions: somebody has dropped or disabled it")
}

func TestAPostgresThatRefusesEndsItAndThePasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	role := db.Name + "_reader"
	_, err := db.Exec(t.Context(), fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'geheim'", role))
	require.NoError(t, err)
	t.Cleanup(func() { // before the database goes
		_, err := db.Exec(t.Context(), "DROP ROLE "+role)
		_ = err
	})
	code, _, said := says(t, on(server, db.As(role+":geheim"), "--http-addr=127.0.0.1:0")...)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, said, "permission denied for schema public")
	require.NotContains(t, said, "geheim")
	code, _, said = says(t, on(server, db.As("nobody_"+db.Name+":geheim"), "--http-addr=127.0.0.1:0")...)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, said, "does not exist")
	require.NotContains(t, said, "geheim")
}

func TestAnAddressInUseIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	p := serving(t, on(server, db.URL)...)
	code, _, said := says(t, on(server, db.URL, "--http-addr="+p.HTTP)...)
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, said, "address already in use")
}

func TestSIGTERMEndsAReplicaWithZero(t *testing.T) {
	t.Parallel()
	server, db := redistest.Start(t), pgtest.Database(t)
	cmd := exec.Command(os.Args[0], on(server, db.URL, "--http-addr=127.0.0.1:0", "--log-format=json")...)
	cmd.Env = []string{asMain + "=1", "GOCOVERDIR=" + t.TempDir()}
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	t.Cleanup(child.Kill)
	require.Eventually(t, func() bool { return child.Said("lease acquired", "instance") != "" }, patience, 5*time.Millisecond)
	require.NoError(t, child.Signal(syscall.SIGTERM))
	select {
	case <-child.Done():
	case <-t.Context().Done():
	}
	require.Equal(t, cli.ExitOK, child.ExitCode(), child.Log())
	require.Contains(t, child.Log(), "said goodbye")
}

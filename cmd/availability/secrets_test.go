package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A role of PostgreSQL has one password at a time.
func TestThePasswordOfPostgresIsChangedWithoutARestart(t *testing.T) {
	t.Parallel()
	pg, server := pgtest.Start(t), redistest.Start(t)
	db := pg.Database()
	exec := func(sql string) {
		t.Helper()
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE ROLE ann SUPERUSER LOGIN PASSWORD 'one'")
	rules := filepath.Join(pg.Dir(), "data", "pg_hba.conf")
	text, err := os.ReadFile(rules)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(rules, append([]byte("local all ann scram-sha-256\n"), text...), 0o644))
	exec("SELECT pg_reload_conf()")
	url := db.As("ann")
	require.Eventually(t, func() bool { // it reads its rules again
		pool, err := pgxpool.New(t.Context(), url)
		require.NoError(t, err)
		defer pool.Close()
		return pool.Ping(t.Context()) != nil
	}, patience, patience/1000)

	path := filepath.Join(t.TempDir(), "password")
	put := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	put("one\n")
	code, _, said := says(t, "migrate", "--database-url="+url, "--database-password-file="+path)
	require.Equal(t, cli.ExitOK, code, said)
	p := stores{t, server, db}.running(on(server, url, "--database-password-file="+path, "--migrate=off")...)
	p.Await(func() bool { return p.state().Postgres.Answers }, "PostgreSQL answers")

	answersAnew := func(what string) {
		t.Helper()
		exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ann'")
		since := p.state().Time
		p.Await(func() bool {
			st := p.state()
			return st.Postgres.Answers && st.Postgres.LastAnswer.After(since)
		}, what)
	}
	tells := func(message string, n int) {
		t.Helper()
		p.Await(func() bool { return strings.Count(p.Log.String(), message) == n }, message)
	}
	put("two\n") // first: until the role has it, the former one is used
	tells("the former value stands", 1)
	answersAnew("with the former password")
	exec("ALTER ROLE ann PASSWORD 'two'")
	tells("its new value is in use", 1)
	answersAnew("with the new password")

	exec("ALTER ROLE ann PASSWORD 'three'") // first: connections that are open go on
	put("three")
	tells("its new value is in use", 2)
	answersAnew("with the third password")
	require.Contains(t, fmt.Sprint(p.state().Files), "DATABASE_PASSWORD_FILE")
	tells("the former value stands", 1)
}

func TestTheSecretOfTokensIsChangedWithoutARestart(t *testing.T) {
	former, next := strings.Repeat("f", token.LeastSecret), strings.Repeat("n", token.LeastSecret)
	path := filepath.Join(t.TempDir(), "secrets")
	put := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	put(former + "\n")
	s := own(t)
	p := s.running(append([]string{
		"--redis-url=redis://" + s.server.Addr(), "--database-url=" + s.db.URL, "--jwt-hs256-secret-file=" + path,
	}, quick...)...)
	accepts := func(secret string) bool {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"sub": "root", "userType": "admin", "exp": 4102444800,
		}).SignedString([]byte(secret))
		require.NoError(t, err)
		resp, _ := p.Ask(text, http.MethodGet, "/api/v1/mitras", "")
		return resp.StatusCode != http.StatusUnauthorized
	}
	require.True(t, accepts(former))
	require.False(t, accepts(next))
	put(next + "\r\n" + former + "\n")
	p.Await(func() bool { return accepts(next) }, "both are accepted")
	require.True(t, accepts(former))
	put("short\n")
	p.Await(func() bool { return strings.Contains(p.Log.String(), "the former value stands") },
		"it is too short")
	require.True(t, accepts(former))
	put(next)
	p.Await(func() bool { return !accepts(former) }, "the former is not accepted")
	require.True(t, accepts(next))
}

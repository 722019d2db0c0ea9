package main

import (
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestTheCauseOfAFailureComesFirst(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	redis := redistest.Start(t).Addr()
	for url, says := range map[string]string{
		"redis://" + strings.TrimPrefix(page.URL, "http://"):     `is no Redis: it answers "HTTP/1.1 400 Bad Request"`,
		"redis://" + strings.TrimPrefix(secure.URL, "https://"):  "Redis ends connections at once",
		"rediss://" + strings.TrimPrefix(secure.URL, "https://"): "REDIS_TLS_CA_FILE: ",
		"redis://ann:guessed@" + redis:                           "Redis refuses this user or password (Redis: ",
		"redis://" + redis + "/99":                               "has no database of that number",
		"redis://127.0.0.1:1":                                    "nothing listens at Redis' address (Redis: 127.0.0.1:1/0). Start Redis, or correct REDIS_URL: ",
	} {
		w := &world{t: t, environ: []string{"REDIS_URL=" + url}}
		code, stdout, stderr := w.runPlainly("status")
		require.Equal(t, cli.ExitFailed, code, url)
		require.Empty(t, stdout, url)
		require.Contains(t, stderr, says, url)
		require.NotContains(t, stderr, "guessed")
	}
}

func TestReplicasAreAskedWhereRedisIsAway(t *testing.T) {
	t.Parallel()
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"instance": "one", "ready": false, "not_ready": "Redis does not answer: EOF", ` +
			`"janitor": {"leading": true}}`))
	}))
	defer replica.Close()
	w := &world{t: t, environ: []string{"REDIS_URL=redis://127.0.0.1:1"}}
	code, stdout, stderr := w.runPlainly("status", "--http", replica.URL+",http://127.0.0.1:2")
	require.Equal(t, cli.ExitFailed, code)
	require.Regexp(t, `(?m)^127.0.0.1:\d+ +one +no +leads, not ready: Redis does not answer: EOF$`, stdout)
	require.Regexp(t, `(?m)^127.0.0.1:2 +- +\? +no answer: `, stdout)
	require.Contains(t, stderr, "nothing listens at Redis' address (Redis: 127.0.0.1:1/0)")
	_, stdout, _ = w.runPlainly("status", "--json", "--http", replica.URL)
	require.Contains(t, stdout, `"not_ready": "Redis does not answer: EOF"`)
}

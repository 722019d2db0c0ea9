package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
)

func TestTheOperatorsPathsAreNotWhereTheAPIIs(t *testing.T) {
	p := own(t).serving("--operator-addr=127.0.0.1:0")
	operator := &programtest.Program{T: t, HTTP: p.Addr("serving HTTP for operators")}
	for _, path := range []string{
		"/", "/metrics", "/page/why", "/docs/", "/debug/pprof/", "/debug/vars", "/api/v1/status", "/api/v1/fleet", "/api/v1/timeline",
		"/api/v1/events", "/api/v1/why?key=x", "/api/v1/devices/1",
	} {
		for _, as := range []string{"", asCustomer, adminToken, "wrong"} {
			resp, body := p.Ask(as, http.MethodGet, path, "")
			require.Equal(t, http.StatusNotFound, resp.StatusCode, "%s: %s", path, body)
		}
	}
	for _, path := range []string{"/api/v1/sweep", "/api/v1/pause", "/api/v1/resume", "/api/v1/resign"} {
		code, body := p.Post(path, adminToken)
		require.Equal(t, http.StatusNotFound, code, "%s: %s", path, body)
	}
	p.plays("200 admin GET /config")
	code, _ := p.Get("/healthz")
	require.Equal(t, 200, code)
	st := programtest.Status[replicaStatus](operator)
	require.Equal(t, operator.HTTP, st.HTTPAddr)
	_, metrics := operator.Get("/metrics")
	require.Contains(t, metrics, "availability_mirror_whole")
	resp, _ := operator.Ask(asAdmin, http.MethodGet, "/api/v1/config", "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode, "the API is at the other address alone")
	operator.Await(func() bool {
		code, _ := operator.Post("/api/v1/sweep?sweep=availability_reconcile", adminToken)
		return code == 200
	}, "it leads")
	code, _ = operator.Post("/api/v1/sweep", "wrong-0123456789abcdef")
	require.Equal(t, 401, code)
	code, _ = operator.Post("/api/v1/sweep", "wrong-0123456789abcdef")
	require.Equal(t, http.StatusTooManyRequests, code)
	p.stops()
}

func TestSecretsOfTheURLOfKeysAreNowhere(t *testing.T) {
	s := own(t)
	p := s.running(append([]string{
		"--redis-url=redis://" + s.server.Addr(), "--database-url=" + s.db.URL, "--log-level=debug",
		"--jwt-jwks=http://user-geheim:pass-geheim@127.0.0.1:1/jwks.json?apikey=geheim#geheim",
	}, quick...)...)
	asked, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{}).SignedString([]byte(secret))
	parts := strings.Split(asked, ".")
	es256 := "eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ." + parts[1] + "." + parts[2]
	p.Await(func() bool {
		_, body := p.is(503, es256, "GET", "/api/v1/availability", "")
		return strings.Contains(body, "keys of tokens") && strings.Contains(p.Log.String(), "keys of JWT_JWKS cannot be read")
	}, "keys are asked for")
	for _, path := range []string{"/", "/page/why", "/api/v1/status", "/api/v1/fleet", "/api/v1/timeline", "/metrics", "/readyz", "/openapi.yaml"} {
		_, body := p.Get(path)
		require.NotContains(t, body, "geheim", path)
	}
	p.Stop()
	p.Ends()
	require.NotContains(t, p.Log.String(), "geheim")
	require.Contains(t, p.Log.String(), "http://127.0.0.1:1/jwks.json", "the log says which keys they are")
}

func TestAnEnumOfOtherWordsEndsSessionsAsConfigured(t *testing.T) {
	s := own(t)
	s.exec(`
		CREATE TYPE st AS ENUM ('searching', 'active', 'pending_payment', 'ended', 'expired', 'cancelled');
		CREATE TABLE mitras (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), is_active boolean NOT NULL DEFAULT true);
		CREATE TABLE chat_sessions (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), mitra_id uuid REFERENCES mitras (id), status st NOT NULL DEFAULT 'searching')`)
	for setting, ends := range map[string]map[string]string{ // by word; "": refused
		// Which changes nothing: these are the words by default.
		"--log-level=info": {"ended": "ended", "expired": "expired", "cancelled": "cancelled", "completed": ""},
		"--session-end-statuses=completed=ended,cancelled": {"completed": "ended", "cancelled": "cancelled", "ended": "", "expired": ""},
	} {
		p := s.serving(setting)
		p.Await(func() bool { return p.state().Postgres.Prepared }, "the schema is there")
		p.mitra("a")
		for word, stored := range ends {
			session := "/sessions/" + p.session("s")
			p.plays("200 service POST " + session + `/accept {"mitra_id": "{a}"}`)
			end := " service POST " + session + `/end {"status": "` + word + `"}`
			for range 2 { // to repeat it does no harm
				if stored == "" {
					p.plays("400" + end)
					continue
				}
				p.plays("200" + end + ` -> "status":"` + stored + `"`)
			}
			s.exec("DELETE FROM chat_sessions")
		}
		require.NotContains(t, p.Log.String(), "invalid input value")
		p.stops()
	}
}

func TestATokenOfAnotherAudienceOrIssuerIsRefused(t *testing.T) {
	p := own(t).serving("--jwt-audience=dispatch", "--jwt-issuer=https://auth.example")
	sign := func(claims jwt.MapClaims) string {
		claims["sub"], claims["userType"], claims["exp"] = "root", token.Admin, time.Now().Add(time.Hour).Unix()
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
		require.NoError(t, err)
		return text
	}
	p.is(200, sign(jwt.MapClaims{"aud": []string{"x", "dispatch"}, "iss": "https://auth.example"}), "GET", "/api/v1/config", "")
	p.is(401, sign(jwt.MapClaims{"aud": "x", "iss": "https://auth.example"}), "GET", "/api/v1/config", "")
	p.is(401, sign(jwt.MapClaims{"aud": "dispatch", "iss": "https://other.example"}), "GET", "/api/v1/config", "")
	p.plays("401 admin GET /config")
}

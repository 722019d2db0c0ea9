package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
)

// paths of all routes that need a token, with a body that is good.
var paths = map[string]string{
	"POST /api/v1/mitra/heartbeat": "", "POST /api/v1/mitra/online": "", "POST /api/v1/mitra/offline": "",
	"GET /api/v1/mitra/status": "", "GET /api/v1/availability": "", "GET /api/v1/available": "",
	"POST /api/v1/sessions/{id}/accept":  `{"mitra_id": "{id}"}`,
	"POST /api/v1/sessions/{id}/end":     `{"status": "completed"}`,
	"POST /api/v1/sessions/{id}/extend":  `{"paid": true}`,
	"POST /api/v1/sessions/{id}/reroute": `{"mitra_id": "{id}"}`,
	"GET /api/v1/mitras/{id}/reachable":  "",
	"GET /api/v1/online":                 "",
	"GET /api/v1/mitras":                 "",
	"PUT /api/v1/mitras/{id}":            `{"is_active": false}`,
	"GET /api/v1/config":                 "",
	"PUT /api/v1/config/{name}":          `{"value": 1}`,
}

// filled is a route with an id and a name.
func filled(route, body, id string) (method, path, text string) {
	method, path, _ = strings.Cut(route, " ")
	path = strings.NewReplacer("{id}", id, "{name}", "max_customers_per_mitra").Replace(path)
	return method, path, strings.ReplaceAll(body, "{id}", id)
}

func TestWithoutAGoodTokenNothingIsAnsweredAndNothingChanged(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra("a")
	r.session("s")
	before := r.state()
	hour := time.Now().Add(time.Hour).Unix()
	claims := func(change func(jwt.MapClaims)) string {
		c := jwt.MapClaims{"sub": id, "userType": "mitra", "exp": hour}
		change(c)
		return signed(jwt.SigningMethodHS256, []byte(secret), c)
	}
	good := jwt.MapClaims{"sub": id, "userType": "mitra", "exp": hour}
	require.Len(t, paths, len(api.Routes())-1, "each route but the document's")
	for name, c := range map[string]struct{ token, problem, says string }{
		"none":                  {"", "no-token", "Bearer"},
		"no JWT":                {"abc", "bad-token", "no JSON Web Token"},
		"expired":               {claims(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Second).Unix() }), "bad-token", "expired"},
		"a sub that is no UUID": {claims(func(c jwt.MapClaims) { c["sub"] = "1; DROP TABLE mitras" }), "bad-token", "no UUID"},
		"another secret":        {signed(jwt.SigningMethodHS256, []byte("another"), good), "bad-token", "signature"},
	} {
		for route, body := range paths {
			method, path, body := filled(route, body, id)
			a := r.ask(c.token, method, path, body).is(http.StatusUnauthorized).problem(c.problem, c.says)
			require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer", name)
			require.NotContains(t, string(a.body), "DROP", name)
		}
	}
	require.Equal(t, before, r.state())
}

// who may call what, beside the path.
func mayCall(who token.UserType, path string) bool {
	switch {
	case path == "/api/v1/availability":
		return true
	case strings.HasSuffix(path, "/reachable"):
		return who == token.Service || who == token.Admin
	case path == "/api/v1/online":
		return who == token.Admin
	case strings.HasPrefix(path, "/api/v1/mitra/"):
		return who == token.Mitra
	case strings.HasPrefix(path, "/api/v1/mitras"), strings.HasPrefix(path, "/api/v1/config"):
		return who == token.Admin
	}
	return who == token.Service
}

func TestATokenOfAnotherUserTypeIsRefusedAndNothingChanged(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra("a")
	r.session("s")
	before := r.state()
	refused := 0
	for route, body := range paths {
		method, path, body := filled(route, body, id)
		for _, who := range token.UserTypes {
			if mayCall(who, path) {
				continue
			}
			refused++
			r.ask(bearer(who, id), method, path, body).is(http.StatusForbidden).problem("wrong-user-type", string(who))
		}
	}
	require.Equal(t, 44, refused)
	require.Equal(t, before, r.state())
}

func TestBadInputIsRefusedByNameAndNothingChanged(t *testing.T) {
	r := newRig(t)
	id := r.onlineMitra("a")
	at := "/api/v1/sessions/" + r.session("s")
	r.names = append(r.names, "{large}", strings.Repeat("a", 1<<20), "{bytes}", "\xff\xfe", "{no dashes}",
		strings.ReplaceAll(id, "-", ""))
	before := r.state()
	r.plays(`
		# ids
		400 service POST /sessions/7/accept {"mitra_id": "{a}"} -> bad-request: id
		400 service POST /sessions/{a}'%3B%20DROP%20TABLE%20mitras%3B--/end {"status": "completed"} -> bad-request: id
		400 admin PUT /mitras/{no dashes} {"is_active": false} -> bad-request: id
		400 service POST /sessions/{s}/accept {"mitra_id": "' OR true --"} -> bad-request: mitra_id
		400 service GET /mitras/7/reachable -> bad-request: id
		400 admin GET /mitras?after=1 -> bad-request: after
		# bodies
		400 service POST /sessions/{s}/accept {} -> bad-request: mitra_id
		400 service POST /sessions/{s}/accept -> bad-request: body
		400 service POST /sessions/{s}/accept {"mitra_id": "{a}"} {} -> bad-request: after
		400 service POST /sessions/{s}/accept {"mitra_id": "{a}", "force": true} -> bad-request: force
		400 service POST /sessions/{s}/accept {"mitra_id": "{bytes}"} -> bad-request: UTF-8
		400 service POST /sessions/{s}/end {"status": "searching"} -> bad-request: status
		400 service POST /sessions/{s}/extend {} -> bad-request: paid
		400 admin PUT /mitras/{a} {"is_active": "false"} -> bad-request: is_active
		400 admin PUT /mitras/{a} {"is_active": null} -> bad-request: is_active
		400 admin PUT /mitras/{a} {"is_active": true, "is_active": false} -> bad-request: more than once
		413 service POST /sessions/{s}/accept {"mitra_id": "{large}"} -> too-large: 65536
		# bodies where none is wanted
		413 {a} POST /mitra/online {"mitra_id": "{large}"} -> too-large: 65536
		400 {a} POST /mitra/offline {"online": false} -> bad-request: online
		400 service GET /available {"limit": 1} -> bad-request: limit
		413 service GET /mitras/{a}/reachable {"mitra_id": "{large}"} -> too-large: 65536
		# parameters
		400 service GET /available?limit=0 -> bad-request: limit
		400 service GET /available?limit=1&limit=2 -> bad-request: more than once
		400 service GET /available?limt=1 -> bad-request: limt
		400 admin GET /mitras?online=yes -> bad-request: online
		400 admin GET /mitras?limit=1001 -> bad-request: limit
		400 admin GET /mitras?sort=name -> bad-request: sort
		400 service POST /sessions/{s}/accept?mitra_id={nobody} {"mitra_id": "{a}"} -> bad-request: unknown parameter
		400 {a} POST /mitra/offline?dry_run=true -> bad-request: dry_run
		400 {a} POST /mitra/heartbeat?junk=%zz -> bad-request: query
		# paths and methods
		404 admin GET /mitra -> no-such-path`)
	require.Equal(t, "PUT", r.plays("405 admin DELETE /mitras/{a} -> wrong-method: PUT").header.Get("Allow"))
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.url+"/api/v1/config", nil)
	require.NoError(t, err)
	req.Header["Authorization"] = []string{"Bearer " + asAdmin, "Bearer " + asCustomer}
	resp, err := r.client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode, "two tokens")
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", ";"} {
		r.send(asService, "POST", at+"/accept", kind, strings.NewReader(`{"mitra_id": "`+id+`"}`)).
			is(http.StatusUnsupportedMediaType).problem("wrong-content-type")
	}
	require.Equal(t, before, r.state())
	r.send(asService, "POST", at+"/accept", "application/json; charset=utf-8", strings.NewReader(`{"mitra_id": "`+id+`"}`)).
		is(http.StatusOK)
}

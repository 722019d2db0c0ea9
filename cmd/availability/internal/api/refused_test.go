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
	id := r.onlineMitra()
	r.session()
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
	id := r.onlineMitra()
	r.session()
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
	id := r.onlineMitra()
	at := "/api/v1/sessions/" + r.session()
	before := r.state()
	large := `{"mitra_id": "` + strings.Repeat("a", 1<<20) + `"}`
	for name, c := range map[string]struct {
		as, method, path, body string
		code                   int
		problem, says          string
	}{
		"a session that is no UUID":       {asService, "POST", "/api/v1/sessions/7/accept", `{"mitra_id": "` + id + `"}`, 400, "bad-request", "id"},
		"SQL in an id":                    {asService, "POST", "/api/v1/sessions/" + id + "'%3B%20DROP%20TABLE%20mitras%3B--/end", `{"status": "completed"}`, 400, "bad-request", "id"},
		"a UUID without dashes":           {asAdmin, "PUT", "/api/v1/mitras/" + strings.ReplaceAll(id, "-", ""), `{"is_active": false}`, 400, "bad-request", "id"},
		"a mitra that is no UUID":         {asService, "POST", at + "/accept", `{"mitra_id": "' OR true --"}`, 400, "bad-request", "mitra_id"},
		"no mitra":                        {asService, "POST", at + "/accept", `{}`, 400, "bad-request", "mitra_id"},
		"no body":                         {asService, "POST", at + "/accept", ``, 400, "bad-request", "body"},
		"two bodies":                      {asService, "POST", at + "/accept", `{"mitra_id": "` + id + `"} {}`, 400, "bad-request", "after"},
		"a member that is not known":      {asService, "POST", at + "/accept", `{"mitra_id": "` + id + `", "force": true}`, 400, "bad-request", "force"},
		"an end that is none":             {asService, "POST", at + "/end", `{"status": "searching"}`, 400, "bad-request", "status"},
		"activity that is a text":         {asAdmin, "PUT", "/api/v1/mitras/" + id, `{"is_active": "false"}`, 400, "bad-request", "is_active"},
		"activity that is null":           {asAdmin, "PUT", "/api/v1/mitras/" + id, `{"is_active": null}`, 400, "bad-request", "is_active"},
		"a megabyte":                      {asService, "POST", at + "/accept", large, 413, "too-large", "65536"},
		"a megabyte where none is wanted": {asMitra(id), "POST", "/api/v1/mitra/online", large, 413, "too-large", "65536"},
		"a limit of zero":                 {asService, "GET", "/api/v1/available?limit=0", ``, 400, "bad-request", "limit"},
		"two limits":                      {asService, "GET", "/api/v1/available?limit=1&limit=2", ``, 400, "bad-request", "more than once"},
		"an unknown parameter":            {asService, "GET", "/api/v1/available?limt=1", ``, 400, "bad-request", "limt"},
		"a page behind no UUID":           {asAdmin, "GET", "/api/v1/mitras?after=1", ``, 400, "bad-request", "after"},
		"online that is neither":          {asAdmin, "GET", "/api/v1/mitras?online=yes", ``, 400, "bad-request", "online"},
		"too large a page":                {asAdmin, "GET", "/api/v1/mitras?limit=1001", ``, 400, "bad-request", "limit"},
		"a member twice":                  {asAdmin, "PUT", "/api/v1/mitras/" + id, `{"is_active": true, "is_active": false}`, 400, "bad-request", "more than once"},
		"a body that is no UTF-8":         {asService, "POST", at + "/accept", "{\"mitra_id\": \"\xff\xfe\"}", 400, "bad-request", "UTF-8"},
		"a parameter beside a body":       {asService, "POST", at + "/accept?mitra_id=" + nobody, `{"mitra_id": "` + id + `"}`, 400, "bad-request", "unknown parameter"},
		"a parameter without a body":      {asMitra(id), "POST", "/api/v1/mitra/offline?dry_run=true", ``, 400, "bad-request", "dry_run"},
		"a heartbeat's broken query":      {asMitra(id), "POST", "/api/v1/mitra/heartbeat?junk=%zz", ``, 400, "bad-request", "query"},
		"a body that asks for something":  {asMitra(id), "POST", "/api/v1/mitra/offline", `{"online": false}`, 400, "bad-request", "online"},
		"no payment":                      {asService, "POST", at + "/extend", `{}`, 400, "bad-request", "paid"},
		"a reachable that is no UUID":     {asService, "GET", "/api/v1/mitras/7/reachable", ``, 400, "bad-request", "id"},
		"an order that is none":           {asAdmin, "GET", "/api/v1/mitras?sort=name", ``, 400, "bad-request", "sort"},
		"a limit in the body of a GET":    {asService, "GET", "/api/v1/available", `{"limit": 1}`, 400, "bad-request", "limit"},
		"a GET with a megabyte":           {asService, "GET", "/api/v1/mitras/" + id + "/reachable", large, 413, "too-large", "65536"},
		"another path":                    {asAdmin, "GET", "/api/v1/mitra", ``, 404, "no-such-path", ""},
		"another method":                  {asAdmin, "DELETE", "/api/v1/mitras/" + id, ``, 405, "wrong-method", "PUT"},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.ask(c.as, c.method, c.path, c.body).is(c.code).problem(c.problem, c.says)
			if c.code == http.StatusMethodNotAllowed {
				require.Equal(t, "PUT", a.header.Get("Allow"))
			}
		})
	}
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

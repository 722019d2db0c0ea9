package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	hour := time.Now().Add(time.Hour).Unix()
	claims := func(change func(jwt.MapClaims)) string {
		c := jwt.MapClaims{"sub": id, "userType": "mitra", "exp": hour}
		change(c)
		return signed(jwt.SigningMethodHS256, []byte(secret), c)
	}
	good := jwt.MapClaims{"sub": id, "userType": "mitra", "exp": hour}
	require.Len(t, paths, len(api.Routes())-1, "each route but the document's")
	for name, c := range map[string]struct{ token, problem, says string }{
		"none":                    {"", "no-token", "Bearer"},
		"no JWT":                  {"abc", "bad-token", "no JSON Web Token"},
		"three dots":              {"a.b.c", "bad-token", "no JSON Web Token"},
		"SQL":                     {"' OR 1=1 --", "bad-token", "no JSON Web Token"},
		"expired":                 {claims(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Second).Unix() }), "bad-token", "expired"},
		"without exp":             {claims(func(c jwt.MapClaims) { delete(c, "exp") }), "bad-token", "exp is missing"},
		"not valid yet":           {claims(func(c jwt.MapClaims) { c["nbf"] = hour }), "bad-token", "not valid yet"},
		"without sub":             {claims(func(c jwt.MapClaims) { delete(c, "sub") }), "bad-token", "sub is missing"},
		"a sub that is no UUID":   {claims(func(c jwt.MapClaims) { c["sub"] = "1; DROP TABLE mitras" }), "bad-token", "no UUID"},
		"a sub that is a number":  {claims(func(c jwt.MapClaims) { c["sub"] = 7 }), "bad-token", "no text"},
		"an unknown userType":     {claims(func(c jwt.MapClaims) { c["userType"] = "root" }), "bad-token", "userType"},
		"without userType":        {claims(func(c jwt.MapClaims) { delete(c, "userType") }), "bad-token", "userType"},
		"another secret":          {signed(jwt.SigningMethodHS256, []byte("another"), good), "bad-token", "signature"},
		"HS512":                   {signed(jwt.SigningMethodHS512, []byte(secret), good), "bad-token", "HS512 is not accepted"},
		"ES256 without a JWKS":    {signed(jwt.SigningMethodES256, key, good), "bad-token", "ES256 is not accepted"},
		"alg none":                {signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good), "bad-token", "none is not accepted"},
		"a signature that is cut": {asService[:len(asService)-4], "bad-token", "signature"},
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
		"a UUID in braces":                {asService, "POST", "/api/v1/sessions/%7B" + id + "%7D/end", `{"status": "completed"}`, 400, "bad-request", "id"},
		"a UUID without dashes":           {asAdmin, "PUT", "/api/v1/mitras/" + strings.ReplaceAll(id, "-", ""), `{"is_active": false}`, 400, "bad-request", "id"},
		"a mitra that is no UUID":         {asService, "POST", at + "/accept", `{"mitra_id": "' OR true --"}`, 400, "bad-request", "mitra_id"},
		"a mitra that is a number":        {asService, "POST", at + "/accept", `{"mitra_id": 7}`, 400, "bad-request", "mitra_id"},
		"no mitra":                        {asService, "POST", at + "/accept", `{}`, 400, "bad-request", "mitra_id"},
		"null":                            {asService, "POST", at + "/accept", `null`, 400, "bad-request", "object"},
		"no body":                         {asService, "POST", at + "/accept", ``, 400, "bad-request", "body"},
		"half a body":                     {asService, "POST", at + "/accept", `{"mitra_id": "`, 400, "bad-request", "body"},
		"two bodies":                      {asService, "POST", at + "/accept", `{"mitra_id": "` + id + `"} {}`, 400, "bad-request", "after"},
		"an array":                        {asService, "POST", at + "/accept", `[]`, 400, "bad-request", "body"},
		"a member that is not known":      {asService, "POST", at + "/accept", `{"mitra_id": "` + id + `", "force": true}`, 400, "bad-request", "force"},
		"an end that is none":             {asService, "POST", at + "/end", `{"status": "searching"}`, 400, "bad-request", "status"},
		"an end without a status":         {asService, "POST", at + "/end", `{}`, 400, "bad-request", "status"},
		"activity that is a text":         {asAdmin, "PUT", "/api/v1/mitras/" + id, `{"is_active": "false"}`, 400, "bad-request", "is_active"},
		"activity that is null":           {asAdmin, "PUT", "/api/v1/mitras/" + id, `{"is_active": null}`, 400, "bad-request", "is_active"},
		"a megabyte":                      {asService, "POST", at + "/accept", large, 413, "too-large", "65536"},
		"a megabyte where none is wanted": {asMitra(id), "POST", "/api/v1/mitra/online", large, 413, "too-large", "65536"},
		"a megabyte with a heartbeat":     {asMitra(id), "POST", "/api/v1/mitra/heartbeat", large, 413, "too-large", "65536"},
		"a limit of zero":                 {asService, "GET", "/api/v1/available?limit=0", ``, 400, "bad-request", "limit"},
		"a limit of words":                {asService, "GET", "/api/v1/available?limit=many", ``, 400, "bad-request", "limit"},
		"two limits":                      {asService, "GET", "/api/v1/available?limit=1&limit=2", ``, 400, "bad-request", "more than once"},
		"an unknown parameter":            {asService, "GET", "/api/v1/available?limt=1", ``, 400, "bad-request", "limt"},
		"a query that is none":            {asCustomer, "GET", "/api/v1/availability?%zz", ``, 400, "bad-request", "query"},
		"a page behind no UUID":           {asAdmin, "GET", "/api/v1/mitras?after=1", ``, 400, "bad-request", "after"},
		"online that is neither":          {asAdmin, "GET", "/api/v1/mitras?online=yes", ``, 400, "bad-request", "online"},
		"too large a page":                {asAdmin, "GET", "/api/v1/mitras?limit=1001", ``, 400, "bad-request", "limit"},
		"a member in other letters":       {asAdmin, "PUT", "/api/v1/mitras/" + id, `{"IS_ACTIVE": false}`, 400, "bad-request", "IS_ACTIVE"},
		"a member twice":                  {asAdmin, "PUT", "/api/v1/mitras/" + id, `{"is_active": true, "is_active": false}`, 400, "bad-request", "more than once"},
		"a member twice, once escaped":    {asAdmin, "PUT", "/api/v1/mitras/" + id, `{"is_active": true, "is\u005factive": false}`, 400, "bad-request", "more than once"},
		"a member twice, further down":    {asAdmin, "PUT", "/api/v1/config/max_customers_per_mitra", `{"value": {"a": 1, "a": 2}}`, 400, "bad-request", "more than once"},
		"a value twice":                   {asAdmin, "PUT", "/api/v1/config/max_customers_per_mitra", `{"value": 4, "value": 0}`, 400, "bad-request", "more than once"},
		"a body that is no UTF-8":         {asService, "POST", at + "/accept", "{\"mitra_id\": \"\xff\xfe\"}", 400, "bad-request", "UTF-8"},
		"a parameter beside a body":       {asService, "POST", at + "/accept?mitra_id=" + nobody, `{"mitra_id": "` + id + `"}`, 400, "bad-request", "unknown parameter"},
		"a parameter for a mitra":         {asAdmin, "PUT", "/api/v1/mitras/" + id + "?dry_run=true", `{"is_active": false}`, 400, "bad-request", "dry_run"},
		"a parameter for a setting":       {asAdmin, "PUT", "/api/v1/config/max_customers_per_mitra?dry_run=1", `{"value": 9}`, 400, "bad-request", "dry_run"},
		"a parameter without a body":      {asMitra(id), "POST", "/api/v1/mitra/offline?dry_run=true", ``, 400, "bad-request", "dry_run"},
		"a heartbeat's broken query":      {asMitra(id), "POST", "/api/v1/mitra/heartbeat?junk=%zz", ``, 400, "bad-request", "query"},
		"half a body to offline":          {asMitra(id), "POST", "/api/v1/mitra/offline", `{"online": false`, 400, "bad-request", "body"},
		"a body that asks for something":  {asMitra(id), "POST", "/api/v1/mitra/offline", `{"online": false}`, 400, "bad-request", "online"},
		"a heartbeat of something":        {asMitra(id), "POST", "/api/v1/mitra/heartbeat", `[]`, 400, "bad-request", "object"},
		"no payment":                      {asService, "POST", at + "/extend", `{}`, 400, "bad-request", "paid"},
		"a reachable that is no UUID":     {asService, "GET", "/api/v1/mitras/7/reachable", ``, 400, "bad-request", "id"},
		"a parameter of reachable":        {asService, "GET", "/api/v1/mitras/" + id + "/reachable?x=1", ``, 400, "bad-request", "x"},
		"a parameter of the count":        {asAdmin, "GET", "/api/v1/online?x=1", ``, 400, "bad-request", "x"},
		"an order that is none":           {asAdmin, "GET", "/api/v1/mitras?sort=name", ``, 400, "bad-request", "sort"},
		"a limit in the body of a GET":    {asService, "GET", "/api/v1/available", `{"limit": 1}`, 400, "bad-request", "limit"},
		"a GET with half a body":          {asAdmin, "GET", "/api/v1/mitras", `{"online": tr`, 400, "bad-request", "body"},
		"a poll with something":           {asCustomer, "GET", "/api/v1/availability", `[]`, 400, "bad-request", "object"},
		"a status of somebody else":       {asMitra(id), "GET", "/api/v1/mitra/status", `{"id": "` + nobody + `"}`, 400, "bad-request", "id"},
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

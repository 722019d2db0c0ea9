package token

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// raw is a token of these two texts, signed with the secret.
func raw(header, claims string) string {
	text := base64.RawURLEncoding.EncodeToString
	body := text([]byte(header)) + "." + text([]byte(claims))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "Bearer " + body + "." + text(mac.Sum(nil))
}

const plainHeader = `{"alg":"HS256"}`

func TestClaimsCountLetterByLetterEachOnce(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: these(secret)})
	hour := time.Now().Add(time.Hour).Unix()
	for claims, says := range map[string]string{
		`{"userType":"customer","sub":"a","exp":%d}`:                              "",
		`{"userType":"customer","sub":"a","exp":%d,"usertype":"admin"}`:           "",
		`{"UserType":"admin","userType":"customer","sub":"a","exp":%d}`:           "",
		`{"userType":"customer","sub":"a","SUB":"b","Sub":"c","exp":%d}`:          "",
		`{"userType":"customer","sub":"a","exp":%d,"Nbf":99999999999}`:            "",
		`{"userType":"customer","sub":"a","exp":5,"Exp":%d}`:                      "expired",
		`{"userType":"customer","sub":"a","Exp":%d}`:                              "exp is missing",
		`{"usertype":"customer","sub":"a","exp":%d}`:                              "userType is none",
		`{"userType":"customer","Sub":"a","exp":%d}`:                              "sub is missing",
		`{"userType":"customer","userType":"admin","sub":"a","exp":%d}`:           "every name once",
		`{"userType":"customer","user\u0054ype":"admin","sub":"a","exp":%d}`:      "every name once",
		`{"userType":"customer","sub":"a","exp":5,"exp":%d}`:                      "every name once",
		`{"userType":"customer","sub":"a","exp":%d,"more":[{"x":{"y":1,"y":2}}]}`: "every name once",
		`{"userType":["admin"],"sub":"a","exp":%d}`:                               "userType is none",
		`{"userType":"ADMIN","sub":"a","exp":%d}`:                                 "userType is none",
		`{"userType":"customer","sub":["a"],"exp":%d}`:                            "no text",
		`{"userType":"customer","sub":"a","exp":%d,"nbf":99999999999}`:            "not valid yet",
		`{"userType":"customer","sub":"a","exp":1e300,"x":%d}`:                    "exp",
		`{"userType":"customer","sub":"a","exp":%d,"nbf":-1e300}`:                 "nbf is no date",
		`{"userType":"customer","sub":"a","exp":"%d"}`:                            "no JSON Web Token",
		"{\"userType\":\"customer\",\"sub\":\"\xff\",\"exp\":%d}":                 "JSON object",
		`null`: "JSON object",
		`[%d]`: "no JSON Web Token",
	} {
		token := raw(plainHeader, strings.ReplaceAll(claims, "%d", strconv.FormatInt(hour, 10)))
		if judged(t, v, token, says, claims); says == "" {
			require.Equal(t, Caller{"a", Customer}, accepted(t, v, token), claims)
		}
	}
}

func TestAHeaderThatAsksForAnExtensionOrSaysSomethingTwiceIsRefused(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: these(secret)})
	claims := fmt.Sprintf(`{"userType":"customer","sub":"a","exp":%d}`, time.Now().Add(time.Hour).Unix())
	for header, says := range map[string]string{
		`{"alg":"HS256","typ":"JWT","kid":"x","Crit":["b64"],"ALG":"none"}`: "",
		`{"alg":"HS256","crit":["b64"],"b64":false}`:                        "crit",
		`{"alg":"HS256","crit":["exp"],"exp":1}`:                            "crit",
		`{"alg":"HS256","crit":[]}`:                                         "crit",
		`{"alg":"HS256","crit":null}`:                                       "crit",
		`{"alg":"none","alg":"HS256"}`:                                      "every name once",
		`{"alg":"HS256","x":{"a":1,"a":1}}`:                                 "every name once",
		`{"Alg":"HS256"}`:                                                   "algorithm is not known",
	} {
		judged(t, v, raw(header, claims), says, header)
	}
}

func TestAudienceAndIssuerAreRequiredWhereTheyAreSet(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: these(secret), Audience: "dispatch", Issuer: "https://auth.example"})
	open := verifier(t, Config{Secrets: these(secret)})
	for claims, says := range map[string]string{
		`"aud":"dispatch","iss":"https://auth.example"`:                      "",
		`"aud":["billing","dispatch"],"iss":"https://auth.example"`:          "",
		`"aud":"billing","iss":"https://auth.example"`:                       "aud",
		`"aud":"Dispatch","iss":"https://auth.example"`:                      "aud",
		`"aud":[],"iss":"https://auth.example"`:                              "required",
		`"aud":7,"iss":"https://auth.example"`:                               "required",
		`"Aud":"dispatch","iss":"https://auth.example"`:                      "aud is missing",
		`"iss":"https://auth.example"`:                                       "aud is missing",
		`"aud":"dispatch"`:                                                   "iss is missing",
		`"aud":"dispatch","iss":"https://auth.example/"`:                     "iss",
		`"aud":"dispatch","iss":"https://evil","Iss":"https://auth.example"`: "iss",
	} {
		token := raw(plainHeader, fmt.Sprintf(`{"userType":"customer","sub":"a","exp":%d,%s}`, time.Now().Add(time.Hour).Unix(), claims))
		accepted(t, open, token)
		judged(t, v, token, says, claims)
	}
}

// set is a JWKS of one RSA key's entries: the same key, with these members beside it.
func set(t testing.TB, key *rsa.PublicKey, entries ...string) []byte {
	t.Helper()
	n := base64.RawURLEncoding.EncodeToString(key.N.Bytes())
	for i, more := range entries {
		entries[i] = fmt.Sprintf(`{"kty":"RSA","n":"%s","e":"AQAB"%s}`, n, more)
	}
	return []byte(`{"keys":[` + strings.Join(entries, ",") + `]}`)
}

func TestAKeyIsUsedAsItsOwnMembersAllow(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for entries, says := range map[string]string{
		`,"kid":"a"`: "",
		`,"kid":"a","use":"sig","alg":"RS256","key_ops":["verify"]`: "",
		`,"kid":"a","key_ops":["sign","verify","theirs"]`:           "",
		`,"kid":"a","use":"sig","USE":"enc","Key_Ops":[]`:           "", // not theirs
		`,"kid":"a","use":"enc"`:                                    "no key fits",
		`,"kid":"a","use":"theirs"`:                                 "no key fits",
		`,"kid":"a","use":""`:                                       "",
		`,"kid":"a","key_ops":["encrypt"]`:                          "no key fits",
		`,"kid":"a","key_ops":[]`:                                   "no key fits",
		`,"kid":"a","use":"sig","key_ops":["wrapKey"]`:              "no key fits",
		`,"kid":"a","alg":"RS512"`:                                  "no key fits",
		`,"kid":"a","alg":"PS256"`:                                  "no key fits",
		`,"kid":"A"`:                                                "no key fits",
		`,"Kid":"a"`:                                                "no key fits",
		`,"kid":7`:                                                  "no key fits",
		`,"kid":"b"|,"kid":"a"`:                                     "",
		`,"kid":"a","use":"enc"|,"kid":"a","use":"sig"`:             "",
	} {
		v := verifier(t, Config{JWKS: file(t, set(t, &key.PublicKey, strings.Split(entries, "|")...))})
		token := signed(t, jwt.SigningMethodRS256, "a", key, claimsOf(Service, "s"))
		judged(t, v, token, says, entries)
	}
	weak := set(t, &rsa.PublicKey{N: key.N.Rsh(key.N, 100), E: 65537}, `,"kid":"a"`)
	v := verifier(t, Config{JWKS: file(t, weak)})
	require.Empty(t, v.keys.keys.Load().verify, "less than 2048 bits")
}

func TestASetOfSeveralKeysNeedsAKid(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	verifies := func(keys []byte, kid any) error {
		v := verifier(t, Config{JWKS: file(t, keys)})
		token := jwt.NewWithClaims(jwt.SigningMethodRS256, claimsOf(Service, "s"))
		if kid != "none" {
			token.Header["kid"] = kid
		}
		text, err := token.SignedString(key)
		require.NoError(t, err)
		_, err = v.Verify(t.Context(), "Bearer "+text)
		return err
	}
	one, two := set(t, &key.PublicKey, `,"kid":"a"`), set(t, &key.PublicKey, `,"kid":"a"`, `,"kid":"b","use":"enc"`)
	require.NoError(t, verifies(one, "none"))
	require.NoError(t, verifies(two, "a"))
	require.ErrorContains(t, verifies(two, "none"), "kid is missing")
	for _, kid := range []any{nil, 1, "", []string{"a"}} {
		require.ErrorContains(t, verifies(one, kid), "kid is no text")
	}
	require.ErrorContains(t, verifies(set(t, &key.PublicKey, ``, ``), ""), "kid is no text")
}

func TestASetThatWasEmptiedRevokesAllAndOneThatIsNoSetRevokesNone(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t)
	ec := ecKey(t)
	keys := map[string]crypto.PublicKey{"1": ec.Public()}
	s.has(t, keys)
	var log bytes.Buffer
	v := verifier(t, Config{JWKS: s.URL, Again: time.Nanosecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	one := signed(t, jwt.SigningMethodES256, "1", ec, claimsOf(Service, "s"))
	unknown := signed(t, jwt.SigningMethodES256, "zz", ec, claimsOf(Service, "s")) // has the set read
	verify := func() error { _, err := v.Verify(t.Context(), one); return err }
	large := `{"keys":[],"x":"` + strings.Repeat("x", mostKeys) + `"}`
	for _, none := range []string{``, `null`, `[]`, `{}`, `{"Keys":[]}`, `{"keys":null}`, `{"keys":{}}`, `{"keys":[],"keys":[]}`, `{"keys":[`, `<html>`, large} {
		text := []byte(none)
		s.raw.Store(&text)
		refusedFor(t, v, unknown, "no key fits")
		require.NoError(t, verify(), none)
	}
	s.has(t, keys)
	refusedFor(t, v, unknown, "no key fits")
	log.Reset()
	for _, empty := range []string{`{"keys":[]}`, `{"keys":[{"kty":"AKP","alg":"ML-DSA-44","kid":"1"}, 7, null]}`} {
		text := []byte(empty)
		s.raw.Store(&text)
		refusedFor(t, v, unknown, "no key fits")
		refusedFor(t, v, one, "no key fits")
	}
	require.Equal(t, 1, strings.Count(log.String(), "JWT_JWKS has no usable key"), "%s", &log)
	s.raw.Store(nil) // away
	refusedFor(t, v, one, "no key fits")
	s.has(t, keys)
	require.NoError(t, verify())
	require.Contains(t, log.String(), "JWT_JWKS has a usable key again")
}

func TestSecretsOfTheURLAreInNoLogAndNoError(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		t.Errorf("another server was asked, with Referer %q", req.Referer())
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/elsewhere":
			http.Redirect(w, req, elsewhere.URL, http.StatusFound)
		case "/loop":
			http.Redirect(w, req, req.URL.String(), http.StatusFound)
		case "/says":
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(req.URL.RawQuery))
		case "/is":
			_, _ = w.Write([]byte(req.URL.RawQuery))
		}
	}))
	defer server.Close()
	base := strings.Replace(server.URL, "http://", "http://user-geheim:pass-geheim@", 1)
	gone := "http://user-geheim:pass-geheim@127.0.0.1:1"
	for _, url := range []string{
		base + "/elsewhere?key=geheim", base + "/loop?key=geheim", base + "/says?key=geheim", base + "/is?key=geheim",
		gone + "/?key=geheim", "http://user-geheim:pass-geheim@no-such-host.invalid/?key=geheim",
	} {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		v := verifier(t, Config{JWKS: url, Again: time.Nanosecond, Logger: logger})
		_, err := v.Verify(t.Context(), signed(t, jwt.SigningMethodES256, "1", ecKey(t), claimsOf(Service, "s")))
		require.ErrorIs(t, err, ErrNoKeys)
		require.NotContains(t, err.Error(), "geheim")
		err = v.keys.read(t.Context())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "geheim", url)
		require.Contains(t, log.String(), "keys of JWT_JWKS cannot be read")
		require.NotContains(t, log.String(), "geheim", url)
		require.NotContains(t, Shown(url), "geheim")
	}
	require.Equal(t, "/etc/keys.json", Shown("/etc/keys.json"))
	require.Equal(t, "https://auth.example:8443/jwks", Shown("https://u:p@auth.example:8443/jwks?k=1#f"))
}

package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret = "0123456789abcdef0123456789abcdef"
	id     = "0123abcd-0000-4000-8000-000000000000"
)

var quiet = slog.New(slog.DiscardHandler)

func claimsOf(userType UserType, subject string) jwt.MapClaims {
	return jwt.MapClaims{"sub": subject, "userType": userType, "exp": time.Now().Add(time.Hour).Unix()}
}

func signed(t testing.TB, method jwt.SigningMethod, kid string, key any, claims jwt.Claims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return "Bearer " + text
}

// jwks is a set of public keys, by kid.
func jwks(t testing.TB, keys map[string]crypto.PublicKey) []byte {
	t.Helper()
	set := []map[string]string{}
	text := base64.RawURLEncoding.EncodeToString
	for kid, key := range keys {
		jwk := map[string]string{"kid": kid}
		switch key := key.(type) {
		case *rsa.PublicKey:
			jwk["kty"], jwk["n"], jwk["e"] = "RSA", text(key.N.Bytes()), "AQAB"
		case *ecdsa.PublicKey:
			point, err := key.Bytes()
			require.NoError(t, err)
			jwk["kty"], jwk["crv"], jwk["x"], jwk["y"] = "EC", "P-256", text(point[1:33]), text(point[33:])
		case ed25519.PublicKey:
			jwk["kty"], jwk["crv"], jwk["x"] = "OKP", "Ed25519", text(key)
		}
		set = append(set, jwk)
	}
	raw, err := json.Marshal(map[string]any{"keys": set})
	require.NoError(t, err)
	return raw
}

func file(t testing.TB, raw []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "jwks.json")
	require.NoError(t, os.WriteFile(name, raw, 0o600))
	return name
}

// these are the secrets that there are.
func these(secrets ...string) func() []string { return func() []string { return secrets } }

func refusedFor(t testing.TB, v *Verifier, token, reason string) {
	t.Helper()
	_, err := v.Verify(t.Context(), token)
	refused, ok := errors.AsType[*RefusedError](err)
	require.True(t, ok, "%v", err)
	require.Contains(t, refused.Reason, reason)
}

// verifier is one that can be made.
func verifier(t testing.TB, c Config) *Verifier {
	t.Helper()
	if c.Logger == nil {
		c.Logger = quiet
	}
	v, err := New(t.Context(), c)
	require.NoError(t, err)
	return v
}

func accepted(t testing.TB, v *Verifier, token string, of ...any) Caller {
	t.Helper()
	caller, err := v.Verify(t.Context(), token)
	require.NoError(t, err, of...)
	return caller
}

// judged requires that a token is refused for a reason; "": it is accepted.
func judged(t testing.TB, v *Verifier, token, reason string, of ...any) {
	t.Helper()
	if reason == "" {
		accepted(t, v, token, of...)
	} else {
		refusedFor(t, v, token, reason)
	}
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func TestTokensOfEachAlgorithmAreTakenWithTheKeyThatKidNames(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ec := ecKey(t)
	edPublic, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	raw := jwks(t, map[string]crypto.PublicKey{"r": rsaKey.Public(), "e": ec.Public(), "d": edPublic})
	v := verifier(t, Config{Secrets: these(secret), JWKS: file(t, raw)})
	of := func(method jwt.SigningMethod, kid string, key any) string {
		return signed(t, method, kid, key, claimsOf(Mitra, id))
	}
	for _, token := range []string{
		signed(t, jwt.SigningMethodHS256, "", []byte(secret), claimsOf(Mitra, strings.ToUpper(id))),
		of(jwt.SigningMethodRS256, "r", rsaKey),
		of(jwt.SigningMethodES256, "e", ec),
		of(jwt.SigningMethodEdDSA, "d", ed),
	} {
		require.Equal(t, Caller{id, Mitra}, accepted(t, v, token))
	}
	refusedFor(t, v, of(jwt.SigningMethodRS512, "r", rsaKey), "RS512 is not accepted")
	refusedFor(t, v, of(jwt.SigningMethodES256, "r", ec), "no key fits")
	refusedFor(t, v, of(jwt.SigningMethodES256, "d", ec), "no key fits")
	refusedFor(t, v, of(jwt.SigningMethodES256, "", ec), "kid is missing")
	refusedFor(t, v, of(jwt.SigningMethodES256, "another", ec), "no key fits")
	refusedFor(t, v, of(jwt.SigningMethodES256, "e", ecKey(t)), "signature is wrong")
	// A public key as the secret is the oldest trick.
	stolen := []byte(base64.RawURLEncoding.EncodeToString(rsaKey.N.Bytes()))
	refusedFor(t, v, of(jwt.SigningMethodHS256, "r", stolen), "signature is wrong")
}

func TestOnlyWhatIsConfiguredIsAccepted(t *testing.T) {
	t.Parallel()
	ec := ecKey(t)
	keys := file(t, jwks(t, map[string]crypto.PublicKey{"e": ec.Public()}))
	ours := signed(t, jwt.SigningMethodHS256, "", []byte(secret), claimsOf(Service, "s"))
	theirs := signed(t, jwt.SigningMethodES256, "e", ec, claimsOf(Service, "s"))
	v := verifier(t, Config{JWKS: keys})
	refusedFor(t, v, ours, "HS256 is not accepted; expected RS256, ES256, EdDSA")
	accepted(t, v, theirs)
	v = verifier(t, Config{Secrets: these(secret)})
	refusedFor(t, v, theirs, "ES256 is not accepted; expected HS256")
	for name, c := range map[string]Config{
		"neither":                {},
		"short":                  {Secrets: these(secret[1:])},
		"no such file":           {JWKS: "/nowhere/jwks.json", Logger: quiet},
		"a file that is no JWKS": {JWKS: file(t, []byte("{}")), Logger: quiet},
		"a file that is no JSON": {JWKS: file(t, []byte("keys")), Logger: quiet},
	} {
		_, err := New(t.Context(), c)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), secret[1:], name)
	}
}

func TestATokenNeedsItsWordAndATime(t *testing.T) {
	t.Parallel()
	v := verifier(t, Config{Secrets: these(secret)})
	good := signed(t, jwt.SigningMethodHS256, "", []byte(secret), claimsOf(Admin, "root"))
	caller, err := v.Verify(t.Context(), "bearer"+good[len("Bearer"):])
	require.NoError(t, err, "the scheme's case does not matter")
	require.Equal(t, Caller{"root", Admin}, caller)
	for _, header := range []string{"", "Bearer", "Bearer ", good[len("Bearer "):], "Basic cm9vdDo=", "Token" + good[6:]} {
		_, err := v.Verify(t.Context(), header)
		require.ErrorIs(t, err, ErrNone, header)
	}
	synctest.Test(t, func(t *testing.T) {
		token := signed(t, jwt.SigningMethodHS256, "", []byte(secret), claimsOf(Admin, "root"))
		time.Sleep(time.Hour - time.Second)
		accepted(t, v, token)
		time.Sleep(time.Second)
		refusedFor(t, v, token, "expired")
	})
}

// keyServer serves a JWKS that a test changes; nil: it is away.
type keyServer struct {
	*httptest.Server
	raw   atomic.Pointer[[]byte]
	asked atomic.Int64
}

func newKeyServer(t testing.TB) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		if raw := s.raw.Load(); raw != nil {
			_, _ = w.Write(*raw)
		} else {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) has(t testing.TB, keys map[string]crypto.PublicKey) {
	t.Helper()
	raw := jwks(t, keys)
	s.raw.Store(&raw)
}

func TestNobodyCanMakeItAskForKeysAllTheTime(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t)
	key := ecKey(t)
	s.has(t, map[string]crypto.PublicKey{"1": key.Public()})
	v := verifier(t, Config{JWKS: s.URL, Again: time.Hour})
	for range 100 {
		refusedFor(t, v, signed(t, jwt.SigningMethodES256, "x", key, claimsOf(Service, "s")), "no key fits")
	}
	require.EqualValues(t, 1, s.asked.Load())
}

type hanging struct{ asked atomic.Int64 }

func (h *hanging) RoundTrip(*http.Request) (*http.Response, error) {
	h.asked.Add(1)
	time.Sleep(fetchTimeout)
	return nil, errors.New("it hangs")
}

func TestNobodyWaitsForAServerOfKeysLongerThanOneReadTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := verifier(t, Config{JWKS: "http://127.0.0.1:1/keys"})
		var server hanging
		v.keys.client = &http.Client{Transport: &server}
		token := signed(t, jwt.SigningMethodES256, "1", ecKey(t), claimsOf(Service, "s"))
		time.Sleep(defaultAgain)
		begun := time.Now()
		answers := make(chan error, 10)
		for range cap(answers) {
			go func() {
				_, err := v.Verify(t.Context(), token)
				answers <- err
			}()
		}
		synctest.Wait()
		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err := v.Verify(gone, token)
		require.ErrorIs(t, err, ErrNoKeys)
		require.Equal(t, begun, time.Now(), "who leaves does not wait")
		for range cap(answers) {
			require.ErrorIs(t, <-answers, ErrNoKeys)
		}
		require.Equal(t, fetchTimeout, time.Since(begun))
		require.EqualValues(t, 1, server.asked.Load())
	})
}

func TestKeysOfAFileAreReadAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := ecKey(t), ecKey(t)
		name := file(t, jwks(t, map[string]crypto.PublicKey{"1": first.Public()}))
		v := verifier(t, Config{JWKS: name, Refresh: time.Minute})
		go func() { _ = v.Run(t.Context()) }()
		synctest.Wait()
		require.NoError(t, os.WriteFile(name, jwks(t, map[string]crypto.PublicKey{"2": second.Public()}), 0o600))
		token := signed(t, jwt.SigningMethodES256, "1", first, claimsOf(Service, "s"))
		time.Sleep(59 * time.Second)
		accepted(t, v, token)
		time.Sleep(2 * time.Second)
		refusedFor(t, v, token, "no key fits")
	})
}

// FuzzVerify looks for a header that is accepted though no key has signed it, and for one that
// breaks the parser.
func FuzzVerify(f *testing.F) {
	ec := ecKey(f)
	v, err := New(f.Context(), Config{
		Secrets: these(secret), JWKS: file(f, jwks(f, map[string]crypto.PublicKey{"e": ec.Public()})),
		Logger: quiet,
	})
	require.NoError(f, err)
	good := signed(f, jwt.SigningMethodHS256, "", []byte(secret), claimsOf(Mitra, id))
	body := strings.Join(strings.Split(good, ".")[:2], ".")
	for _, header := range []string{
		good, good[:len(good)-1], body, body + ".", body + "..", "Bearer a.b.c", "Bearer ", "", "Bearer ....",
		signed(f, jwt.SigningMethodNone, "", jwt.UnsafeAllowNoneSignatureType, claimsOf(Admin, "root")),
		signed(f, jwt.SigningMethodES256, "e", ec, claimsOf(Service, "s")),
		signed(f, jwt.SigningMethodES256, "x", ecKey(f), claimsOf(Service, "s")),
	} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		caller, err := v.Verify(t.Context(), header)
		if err != nil {
			require.Zero(t, caller)
			refused, ok := errors.AsType[*RefusedError](err)
			require.True(t, ok || errors.Is(err, ErrNone), "%v", err)
			if ok { // the reason goes into a header
				require.NotContains(t, refused.Reason, `"`)
				require.NotContains(t, refused.Reason, "\n")
			}
			return
		}
		// Only holders of a key can make others, so the caller must come from one of the fuzzer's
		// signed seeds.
		require.Contains(t, []Caller{{id, Mitra}, {"s", Service}}, caller)
	})
}

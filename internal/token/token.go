// Package token verifies the JSON Web Tokens that callers of an HTTP API carry.
//
//	v, err := token.New(ctx, token.Config{Secrets: secrets, JWKS: "https://auth.example/jwks.json"})
//	go v.Run(ctx)                                    // keeps the keys of JWKS new
//	caller, err := v.Verify(ctx, r.Header.Get("Authorization"))
//
// A token needs a signature by one of the algorithms that are configured: HS256 with the secret,
// RS256, ES256 and EdDSA with a key of the JWKS. It needs `exp`, `sub`, and `userType`. The subject
// of a mitra is a UUID.
package token

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// A UserType says what a caller is.
type UserType string

// The user types that there are.
const (
	Mitra    UserType = "mitra"
	Customer UserType = "customer"
	Service  UserType = "service"
	Admin    UserType = "admin"
)

// UserTypes are all that there are.
var UserTypes = []UserType{Mitra, Customer, Service, Admin}

// A Caller is who a token was given to.
type Caller struct {
	Subject string // of a mitra the UUID, in lower case
	Type    UserType
}

// What Verify returns beside a *RefusedError.
var (
	// ErrNone: there is no token.
	ErrNone = errors.New("token: no bearer token")
	// ErrNoKeys: the keys have never been had, so nobody can tell whether the token is good.
	ErrNoKeys = errors.New("token: keys of JWT_JWKS cannot be had")
)

// A RefusedError says why a token is not accepted, in words for the caller.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "token: " + e.Reason }

func refused(format string, args ...any) error {
	return &RefusedError{fmt.Sprintf(format, args...)}
}

const hs256 = "HS256"

// asymmetric are the algorithms that keys of a JWKS may be for.
var asymmetric = []string{"RS256", "ES256", "EdDSA"}

// LeastSecret is the fewest bytes of a secret for HS256: RFC 7518, section 3.2.
const LeastSecret = 32

// A Verifier verifies tokens. Safe for concurrent use.
type Verifier struct {
	secrets func() []string
	methods []string
	keys    *keySet // nil: there is no JWKS
	parser  *jwt.Parser
}

type claims struct {
	jwt.RegisteredClaims
	UserType UserType `json:"userType"`
}

// New returns a Verifier, or what is wrong with the configuration: a file that cannot be read is
// an error, a URL that does not answer is not.
func New(ctx context.Context, c Config) (*Verifier, error) {
	v := &Verifier{secrets: c.Secrets}
	if c.Secrets != nil {
		if slices.ContainsFunc(c.Secrets(), func(s string) bool { return len(s) < LeastSecret }) {
			return nil, fmt.Errorf("token: a secret has less than %d bytes", LeastSecret)
		}
		v.methods = append(v.methods, hs256)
	}
	if c.JWKS != "" {
		keys, err := openKeys(ctx, c)
		if err != nil {
			return nil, err
		}
		v.keys, v.methods = keys, append(v.methods, asymmetric...)
	}
	if len(v.methods) == 0 {
		return nil, errors.New("token: neither a secret nor a JWKS")
	}
	// The algorithm is checked by keyFor, which says it better.
	v.parser = jwt.NewParser(jwt.WithExpirationRequired())
	return v, nil
}

// Run keeps the keys new until ctx ends. Then it returns nil.
func (v *Verifier) Run(ctx context.Context) error {
	if v.keys == nil {
		<-ctx.Done()
		return nil
	}
	return v.keys.run(ctx)
}

// Verify returns whose token stands in an Authorization header. The error is ErrNone, ErrNoKeys or
// a *RefusedError.
func (v *Verifier) Verify(ctx context.Context, authorization string) (Caller, error) {
	scheme, text, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || text == "" {
		return Caller{}, ErrNone
	}
	var c claims
	_, err := v.parser.ParseWithClaims(text, &c, func(t *jwt.Token) (any, error) { return v.keyFor(ctx, t) })
	if err != nil {
		return Caller{}, reason(err)
	}
	return c.caller()
}

// keyFor chooses the key by the algorithm, so that a public key is never taken for a secret.
func (v *Verifier) keyFor(ctx context.Context, t *jwt.Token) (any, error) {
	alg := t.Method.Alg()
	switch {
	case !slices.Contains(v.methods, alg):
		return nil, refused("algorithm %s is not accepted; expected %s", alg, strings.Join(v.methods, ", "))
	case alg == hs256:
		var set jwt.VerificationKeySet
		for _, secret := range v.secrets() {
			set.Keys = append(set.Keys, []byte(secret))
		}
		return set, nil
	}
	return v.keys.find(ctx, t)
}

// reason says why a token was refused. What the library says may repeat parts of the token.
func reason(err error) error {
	if errors.Is(err, ErrNoKeys) {
		return ErrNoKeys
	}
	if said, ok := errors.AsType[*RefusedError](err); ok {
		return said
	}
	for _, known := range []struct {
		is   error
		text string
	}{
		{jwt.ErrTokenSignatureInvalid, "the signature is wrong"},
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenRequiredClaimMissing, "exp is missing"},
		{jwt.ErrTokenUnverifiable, "the algorithm is not known, or no key fits"},
	} {
		if errors.Is(err, known.is) {
			return refused("%s", known.text)
		}
	}
	return refused("this is no JSON Web Token")
}

// caller checks what is our own among the claims.
func (c *claims) caller() (Caller, error) {
	if !slices.Contains(UserTypes, c.UserType) {
		return Caller{}, refused("userType is none of mitra, customer, service, admin")
	}
	if c.Subject == "" {
		return Caller{}, refused("sub is missing")
	}
	if c.UserType != Mitra {
		return Caller{c.Subject, c.UserType}, nil
	}
	id, ok := UUID(c.Subject)
	if !ok {
		return Caller{}, refused("sub of a mitra is no UUID")
	}
	return Caller{id, Mitra}, nil
}

// UUID returns a UUID in lower case, if text is one in its usual form of 36 characters.
func UUID(text string) (string, bool) {
	if len(text) != 36 {
		return "", false
	}
	for i, r := range []byte(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (r == '-') || !dash && !strings.ContainsRune("0123456789abcdefABCDEF", rune(r)) {
			return "", false
		}
	}
	return strings.ToLower(text), true
}

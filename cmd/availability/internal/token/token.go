// Package token verifies the JSON Web Tokens of an HTTP API's callers.
//
//	v, err := token.New(ctx, token.Config{Secrets: secrets, JWKS: "https://auth.example/jwks.json"})
//	go v.Run(ctx)                                    // refreshes keys
//	caller, err := v.Verify(ctx, r.Header.Get("Authorization"))
//
// A token needs a signature by one of the configured algorithms: HS256 with a secret, or RS256,
// ES256 or EdDSA with a key of the JWKS. It needs `exp`, `sub` and `userType`, and `aud` and
// `iss` if they are configured. A mitra's subject is a UUID.
//
// Names of claims and header parameters are case-sensitive and must not be repeated (RFC 7519,
// section 4). A header with `crit` is refused.
package token

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/exact"
)

// A UserType is the kind of a caller.
type UserType string

// The user types.
const (
	Mitra    UserType = "mitra"
	Customer UserType = "customer"
	Service  UserType = "service"
	Admin    UserType = "admin"
)

// UserTypes lists all user types.
var UserTypes = []UserType{Mitra, Customer, Service, Admin}

// A Caller is the holder of a token.
type Caller struct {
	Subject string // for a mitra its UUID, in lower case
	Type    UserType
}

// Errors of Verify beside *RefusedError.
var (
	ErrNone = errors.New("token: no bearer token")
	// the keys could never be read, so the token cannot be checked
	ErrNoKeys = errors.New("token: keys of JWT_JWKS cannot be had")
)

// A RefusedError is why a token is not accepted, for the caller.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "token: " + e.Reason }

func refused(format string, args ...any) error {
	return &RefusedError{fmt.Sprintf(format, args...)}
}

const hs256 = "HS256"

var asymmetric = []string{"RS256", "ES256", "EdDSA"}

// LeastSecret is in bytes: RFC 7518, section 3.2.
const LeastSecret = 32

// A Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	secrets func() []string
	methods []string
	keys    *keySet // nil without a JWKS
	parser  *jwt.Parser

	required []string // claims that the parser requires
}

type claims = jwt.MapClaims // a struct would ignore the case of names

// New fails on a wrong configuration and an unreadable file, but not if a URL does not answer.
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
	// keyFor checks the algorithm, with a better error.
	opts := []jwt.ParserOption{jwt.WithExpirationRequired()}
	v.required = []string{"exp"}
	if c.Audience != "" {
		opts, v.required = append(opts, jwt.WithAudience(c.Audience)), append(v.required, "aud")
	}
	if c.Issuer != "" {
		opts, v.required = append(opts, jwt.WithIssuer(c.Issuer)), append(v.required, "iss")
	}
	v.parser = jwt.NewParser(opts...)
	return v, nil
}

// Run refreshes the keys until ctx ends.
func (v *Verifier) Run(ctx context.Context) error {
	if v.keys == nil {
		<-ctx.Done()
		return nil
	}
	return v.keys.run(ctx)
}

// Verify takes an Authorization header. The error is ErrNone, ErrNoKeys or a *RefusedError.
func (v *Verifier) Verify(ctx context.Context, authorization string) (Caller, error) {
	scheme, text, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || text == "" {
		return Caller{}, ErrNone
	}
	c := claims{}
	_, err := v.parser.ParseWithClaims(text, c, func(t *jwt.Token) (any, error) {
		if err := v.exact(t); err != nil {
			return nil, err
		}
		return v.keyFor(ctx, t)
	})
	if err != nil {
		return Caller{}, v.reason(err, c)
	}
	return caller(c)
}

// exact refuses repeated names in header or claims, and required extensions.
func (v *Verifier) exact(t *jwt.Token) error {
	for part := range strings.SplitSeq(t.Raw[:strings.LastIndexByte(t.Raw, '.')], ".") {
		raw, err := v.parser.DecodeSegment(part)
		if err == nil {
			_, err = exact.Object(raw)
		}
		if err != nil {
			return refused("its header or its claims are not one JSON object each, with every name once")
		}
	}
	if _, ok := t.Header["crit"]; ok {
		return refused("crit is in its header, and no extension is understood here")
	}
	return nil
}

// keyFor chooses the key by the algorithm, so that a public key is never used as a secret.
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

// reason omits the library's text, which may repeat parts of the token.
func (v *Verifier) reason(err error, c claims) error {
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
		{jwt.ErrTokenInvalidAudience, "aud does not have the audience that is expected here"},
		{jwt.ErrTokenInvalidIssuer, "iss is not the issuer that is expected here"},
		{jwt.ErrTokenRequiredClaimMissing, v.missing(c)},
		{jwt.ErrTokenUnverifiable, "the algorithm is not known, or no key fits"},
	} {
		if errors.Is(err, known.is) {
			return refused("%s", known.text)
		}
	}
	return refused("this is no JSON Web Token")
}

func (v *Verifier) missing(c claims) string {
	for _, name := range v.required {
		if c[name] == nil {
			return name + " is missing"
		}
	}
	return "a claim that is required here is empty"
}

// mostDate is the last second of the year 9999.
const mostDate = 253402300799

// caller checks our own claims, and dates: the library turns larger numbers into arbitrary times.
func caller(c claims) (Caller, error) {
	for _, name := range []string{"exp", "nbf"} {
		if at, ok := c[name].(float64); ok && (at < 0 || at > mostDate) {
			return Caller{}, refused("%s is no date", name)
		}
	}
	userType, _ := c["userType"].(string)
	if !slices.Contains(UserTypes, UserType(userType)) {
		return Caller{}, refused("userType is none of mitra, customer, service, admin")
	}
	subject, ok := c["sub"].(string)
	if !ok || subject == "" {
		return Caller{}, refused("sub is missing, or no text")
	}
	if UserType(userType) != Mitra {
		return Caller{subject, UserType(userType)}, nil
	}
	id, ok := UUID(subject)
	if !ok {
		return Caller{}, refused("sub of a mitra is no UUID")
	}
	return Caller{id, Mitra}, nil
}

// UUID returns text in lower case if it is a UUID of 36 characters.
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

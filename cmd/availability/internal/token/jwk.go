package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"slices"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/exact"
)

// leastRSA is in bits: RFC 7518, section 3.3.
const leastRSA = 2048

type keys struct {
	all    int // keys in the set, whatever their use
	verify []verifyKey
}

// verifyKey is a key with its one algorithm.
type verifyKey struct {
	kid, alg string
	key      jwt.VerificationKey
}

// errNoKey: another set may have one that fits.
var errNoKey = &RefusedError{"no key fits: JWT_JWKS has none with this kid and algorithm"}

// parseKeys accepts a set without keys: an issuer revokes all keys that way. As RFC 7517, section 5
// requires, it skips keys that it does not understand.
func parseKeys(raw []byte) (*keys, error) {
	set, err := exact.Object(raw)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(set["keys"], &list); err != nil || list == nil {
		return nil, errors.New(`it is no JWK Set: expected an array of "keys"`)
	}
	read := &keys{all: len(list)}
	for _, one := range list {
		if key, ok := parseKey(one); ok {
			read.verify = append(read.verify, key)
		}
	}
	return read, nil
}

// parseKey accepts a key only if its use, key_ops and alg allow verifying.
func parseKey(raw []byte) (verifyKey, bool) {
	all, err := exact.Object(raw)
	if err != nil {
		return verifyKey{}, false
	}
	// The library ignores the case of names. Do not read private parts.
	public := map[string]json.RawMessage{}
	for _, name := range []string{"kty", "use", "key_ops", "alg", "kid", "crv", "x", "y", "n", "e"} {
		if value, ok := all[name]; ok {
			public[name] = value
		}
	}
	text, err := json.Marshal(public)
	if err != nil {
		return verifyKey{}, false
	}
	jwk, err := jwkset.NewJWKFromRawJSON(text, jwkset.JWKMarshalOptions{},
		jwkset.JWKValidateOptions{SkipUse: true, SkipKeyOps: true})
	if err != nil {
		return verifyKey{}, false
	}
	says, alg := jwk.Marshal(), algorithm(jwk.Key())
	_, limited := public["key_ops"]
	switch {
	case alg == "",
		says.USE != "" && says.USE != jwkset.UseSig,
		limited && !slices.Contains(says.KEYOPS, jwkset.KeyOpsVerify),
		says.ALG != "" && says.ALG.String() != alg:
		return verifyKey{}, false
	}
	return verifyKey{says.KID, alg, jwk.Key()}, true
}

func algorithm(key any) string {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() >= leastRSA {
			return "RS256"
		}
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return "ES256"
		}
	case ed25519.PublicKey:
		return "EdDSA"
	}
	return ""
}

func (k *keys) usable() error {
	if len(k.verify) == 0 {
		return errors.New("no key in it is for RS256, ES256 or EdDSA, and for verifying")
	}
	return nil
}

// of requires that a token names its key, unless the set has only one.
func (k *keys) of(t *jwt.Token) (any, error) {
	given, ok := t.Header["kid"]
	kid, isText := given.(string)
	switch {
	case ok && (!isText || kid == ""):
		return nil, refused("kid is no text")
	case !ok && k.all > 1:
		return nil, refused("kid is missing, and JWT_JWKS has more than one key")
	}
	var fit jwt.VerificationKeySet
	for _, key := range k.verify {
		if key.alg == t.Method.Alg() && (!ok || key.kid == kid) {
			fit.Keys = append(fit.Keys, key.key)
		}
	}
	if len(fit.Keys) == 0 {
		return nil, errNoKey
	}
	return fit, nil
}

package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Config says which tokens are good. At least one of Secrets and JWKS is needed.
type Config struct {
	// Secrets are those for HS256 as they are now, each of at least LeastSecret bytes: a token may be
	// signed with any of them. nil: HS256 is refused.
	Secrets func() []string
	JWKS    string // a file or an http(s) URL with public keys; empty: there are none

	Refresh time.Duration // from one look at the JWKS to the next; default 5 m
	Again   time.Duration // after a failure, and the least between two looks; default 5 s
	Logger  *slog.Logger  // default slog.Default()
}

const (
	defaultRefresh = 5 * time.Minute
	defaultAgain   = 5 * time.Second
	fetchTimeout   = 5 * time.Second
	mostKeys       = 1 << 20 // bytes
)

// keySet are the keys of a JWKS, as last read.
type keySet struct {
	from           string
	refresh, again time.Duration
	reading        *streak.Streak
	client         *http.Client

	keys atomic.Pointer[keyfunc.Keyfunc] // nil: they were never read

	reads singleflight.Group // who asks while they are read gets what comes of that
	last  time.Time          // when the last one ended
	life  context.Context    // of the reads: who has asked may leave
	end   context.CancelFunc
}

func openKeys(ctx context.Context, c Config) (*keySet, error) {
	k := &keySet{
		from:    c.JWKS,
		refresh: cmp.Or(c.Refresh, defaultRefresh),
		again:   cmp.Or(c.Again, defaultAgain),
		reading: streak.New(cmp.Or(c.Logger, slog.Default()),
			"keys of JWT_JWKS cannot be read: the last known ones apply", "keys of JWT_JWKS are read again"),
		// A transport of its own: connections of others are not closed with it.
		client: &http.Client{Timeout: fetchTimeout, Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		}},
	}
	k.life, k.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := k.read(ctx); err != nil && !k.isURL() {
		k.end()
		return nil, err
	}
	return k, nil
}

func (k *keySet) isURL() bool { return IsURL(k.from) }

// IsURL tells whether a JWKS is named by a URL, and not by a file.
func IsURL(jwks string) bool {
	return strings.HasPrefix(jwks, "https://") || strings.HasPrefix(jwks, "http://")
}

// run reads the keys again and again until ctx ends.
func (k *keySet) run(ctx context.Context) error {
	defer k.end()
	for {
		pause := k.refresh
		if k.reading.Failing() {
			pause = k.again
		}
		if !wait.For(ctx, pause) {
			return nil
		}
		_ = k.read(ctx) // says so itself
	}
}

// read reads the keys, unless somebody has just tried. However many ask, one reads.
func (k *keySet) read(ctx context.Context) error {
	done := k.reads.DoChan("", func() (any, error) {
		if time.Since(k.last) < k.again {
			return nil, nil
		}
		keys, err := k.load(k.life)
		k.last = time.Now() // its end: a server that hangs takes as long as the pause
		if k.life.Err() == nil {
			k.reading.Note(err)
		}
		if err != nil {
			return nil, fmt.Errorf("token: JWKS: %w", err)
		}
		k.keys.Store(&keys)
		return nil, nil
	})
	select {
	case read := <-done:
		return read.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (k *keySet) load(ctx context.Context) (keyfunc.Keyfunc, error) {
	raw, err := k.bytes(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := keyfunc.NewJWKSetJSON(raw)
	if err != nil {
		return nil, err
	}
	all, err := keys.Storage().KeyReadAll(ctx)
	if err == nil && len(all) == 0 {
		err = errors.New("there is no key in it")
	}
	return keys, err
}

func (k *keySet) bytes(ctx context.Context) ([]byte, error) {
	if !k.isURL() {
		return os.ReadFile(k.from)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.from, nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, mostKeys))
}

// find returns the key of a token. One that is not known is looked for in a new set, but no more
// often than again.
func (k *keySet) find(ctx context.Context, t *jwt.Token) (any, error) {
	key, err := k.known(ctx, t)
	if err != nil {
		if err := k.read(ctx); err == nil {
			return k.known(ctx, t)
		}
	}
	return key, err
}

func (k *keySet) known(ctx context.Context, t *jwt.Token) (any, error) {
	keys := k.keys.Load()
	if keys == nil {
		return nil, ErrNoKeys
	}
	return (*keys).KeyfuncCtx(ctx)(t)
}

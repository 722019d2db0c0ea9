package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Config requires at least one of Secrets and JWKS.
type Config struct {
	// Secrets returns the current secrets for HS256, each of at least LeastSecret bytes; any of them
	// may sign. nil: HS256 is refused.
	Secrets func() []string
	JWKS    string // file or http(s) URL; empty: none

	Audience string // required in aud, if set
	Issuer   string // required as iss, if set

	Refresh time.Duration // between two reads of the JWKS; default 5 m
	Again   time.Duration // after a failure, and least pause between any two reads; default 5 s
	Logger  *slog.Logger  // default slog.Default()
}

const (
	defaultRefresh = 5 * time.Minute
	defaultAgain   = 5 * time.Second
	fetchTimeout   = 5 * time.Second
	mostKeys       = 1 << 20 // bytes
)

type keySet struct {
	from           string
	refresh, again time.Duration
	reading, using *streak.Streak
	client         *http.Client

	keys atomic.Pointer[keys] // nil: never read

	reads singleflight.Group
	last  time.Time       // end of the last one
	life  context.Context // of reads, which outlive their callers
	end   context.CancelFunc
}

func openKeys(ctx context.Context, c Config) (*keySet, error) {
	log := cmp.Or(c.Logger, slog.Default())
	k := &keySet{
		from:    c.JWKS,
		refresh: cmp.Or(c.Refresh, defaultRefresh),
		again:   cmp.Or(c.Again, defaultAgain),
		reading: streak.New(log,
			"keys of JWT_JWKS cannot be read: the last known ones apply", "keys of JWT_JWKS are read again"),
		using: streak.New(log,
			"JWT_JWKS has no usable key: tokens that need one are refused", "JWT_JWKS has a usable key again"),
		// Closing a transport of its own closes no other connections.
		client: &http.Client{Timeout: fetchTimeout, CheckRedirect: sameServer, Transport: &http.Transport{
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

// IsURL reports whether a JWKS is a URL; else it is a file.
func IsURL(jwks string) bool {
	return strings.HasPrefix(jwks, "https://") || strings.HasPrefix(jwks, "http://")
}

// Shown returns a JWKS for logs: a URL without user, password and query.
func Shown(jwks string) string {
	if !IsURL(jwks) {
		return jwks
	}
	u, err := url.Parse(jwks)
	if err != nil {
		return "(set)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

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
		_ = k.read(ctx) // logs its own errors
	}
}

// read is shared by concurrent callers, and does nothing right after another.
func (k *keySet) read(ctx context.Context) error {
	done := k.reads.DoChan("", func() (any, error) {
		if time.Since(k.last) < k.again {
			return nil, nil
		}
		read, err := k.load(k.life)
		k.last = time.Now() // its end, because a hanging server takes as long as the pause
		if k.life.Err() == nil {
			k.reading.Note(err)
		}
		if err != nil {
			return nil, fmt.Errorf("token: JWKS: %w", err)
		}
		k.keys.Store(read)
		k.using.Note(read.usable())
		return nil, nil
	})
	select {
	case read := <-done:
		return read.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (k *keySet) load(ctx context.Context) (*keys, error) {
	raw, err := k.bytes(ctx)
	if err != nil {
		return nil, withoutURL(err)
	}
	return parseKeys(raw)
}

// withoutURL drops the URL, which may contain a password, or a key in its query.
func withoutURL(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return withoutURL(of.Err)
	}
	return err
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
		return nil, fmt.Errorf("the server answers with status %d", resp.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, mostKeys+1))
	if len(raw) > mostKeys {
		err = fmt.Errorf("it has more than %d bytes", mostKeys)
	}
	return raw, err
}

// sameServer follows no redirect to another server, because the Referer would reveal the query.
func sameServer(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > 3 || req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// find reads the set again if no key fits, at most every k.again.
func (k *keySet) find(ctx context.Context, t *jwt.Token) (any, error) {
	found, err := k.known(t)
	if errors.Is(err, errNoKey) || errors.Is(err, ErrNoKeys) {
		if err := k.read(ctx); err == nil {
			return k.known(t)
		}
	}
	return found, err
}

func (k *keySet) known(t *jwt.Token) (any, error) {
	set := k.keys.Load()
	if set == nil {
		return nil, ErrNoKeys
	}
	return set.of(t)
}

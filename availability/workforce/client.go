package workforce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	tokenLasts = time.Hour
	// bytes kept of a refusal's text
	mostProblem = 2000
	// per replica: each app has about one open request
	idleConns = 200
)

type identity struct{ sub, userType string }

// A refusal is a negative answer: nothing was changed.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("workforce: HTTP %d: %s", r.status, r.text) }

func refused(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status
	}
	return 0
}

type answer struct {
	sent, got time.Time
	source    string // Availability-Source
	again     bool   // an earlier try got no answer and may have been carried out
}

// client sends requests to each replica in turn. It is safe for concurrent use.
type client struct {
	http    http.Client
	secret  []byte
	targets atomic.Pointer[[]string]
	next    atomic.Uint64
}

func newClient(c Config) *client {
	transport := c.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, idleConns
		transport = t
	}
	return &client{http: http.Client{Transport: transport, Timeout: c.Timeout}, secret: c.Secret}
}

func (c *client) token(who identity) (string, error) {
	now := time.Now()
	claims := jwt.MapClaims{
		"sub": who.sub, "userType": who.userType, "iat": now.Unix(), "exp": now.Add(tokenLasts).Unix(),
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(c.secret)
}

// do tries one replica after the other until one answers. Its error is a refusal, or means that the
// outcome is unknown.
func (c *client) do(
	ctx context.Context, who identity, method, path string, body, into any,
) (a answer, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return a, fmt.Errorf("workforce: %w", err)
		}
	}
	targets := *c.targets.Load()
	first := c.next.Add(1)
	for i := range targets {
		target := targets[(first+uint64(i))%uint64(len(targets))]
		a, err = c.try(ctx, who, method, target+path, text, into)
		a.again = i > 0
		if err == nil || refused(err) != 0 || ctx.Err() != nil {
			break
		}
	}
	return a, err
}

func (c *client) try(
	ctx context.Context, who identity, method, url string, body []byte, into any,
) (a answer, err error) {
	token, err := c.token(who)
	if err != nil {
		return a, fmt.Errorf("workforce: sign: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return a, fmt.Errorf("workforce: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	a.sent = time.Now()
	reply, err := c.http.Do(req)
	if err != nil {
		return a, fmt.Errorf("workforce: %w", err)
	}
	defer reply.Body.Close()
	a.got, a.source = time.Now(), reply.Header.Get("Availability-Source")
	switch {
	case reply.StatusCode >= 300:
		text, _ := io.ReadAll(io.LimitReader(reply.Body, mostProblem))
		said := &refusal{reply.StatusCode, strings.TrimSpace(string(text))}
		if reply.StatusCode >= 500 {
			return a, errors.New(said.Error()) // the outcome is unknown
		}
		return a, said
	case into != nil:
		if err := json.NewDecoder(reply.Body).Decode(into); err != nil {
			return a, fmt.Errorf("workforce: the answer of %s: %w", url, err)
		}
	}
	_, _ = io.Copy(io.Discard, reply.Body) // allows the connection to be reused
	return a, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// mitra sends heartbeat, online or offline.
func (c *client) mitra(ctx context.Context, id, what string) (answer, error) {
	return c.do(ctx, identity{id, "mitra"}, http.MethodPost, "/api/v1/mitra/"+what, nil, nil)
}

func (c *client) poll(ctx context.Context, customer string) (answer, error) {
	var snapshot struct {
		Available *bool `json:"available"`
		Count     *int  `json:"count"`
	}
	a, err := c.do(ctx, identity{customer, "customer"}, http.MethodGet, "/api/v1/availability", nil, &snapshot)
	if err == nil && (snapshot.Available == nil || snapshot.Count == nil) {
		err = errors.New("workforce: a snapshot without available and count")
	}
	return a, err
}

func (c *client) available(ctx context.Context, service string, limit int) ([]string, answer, error) {
	var found []struct {
		ID string `json:"id"`
	}
	path := fmt.Sprintf("/api/v1/available?limit=%d", limit)
	a, err := c.do(ctx, identity{service, "service"}, http.MethodGet, path, nil, &found)
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
	return ids, a, err
}

func (c *client) session(
	ctx context.Context, service, id, what string, body map[string]string,
) (answer, error) {
	path := "/api/v1/sessions/" + id + "/" + what
	return c.do(ctx, identity{service, "service"}, http.MethodPost, path, body, nil)
}

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
	// mostProblem is how much of an answer that says no is kept.
	mostProblem = 2000
	// idleConns a replica: each app has about one request under way.
	idleConns = 200
)

// identity is who sends a request, as a token says it.
type identity struct{ sub, userType string }

// A refusal is an answer that says no: nothing was changed.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("workforce: HTTP %d: %s", r.status, r.text) }

// refused returns the status of a refusal, 0 for any other error.
func refused(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status
	}
	return 0
}

// An answer is when a request was sent and answered, and who answered.
type answer struct {
	sent, got time.Time
	source    string // Availability-Source
	again     bool   // a try before got no answer, and may have been carried out
}

// client speaks to replicas, to each in turn. Safe for concurrent use.
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

// token is one that says who asks, in the form that the program takes.
func (c *client) token(who identity) (string, error) {
	now := time.Now()
	claims := jwt.MapClaims{
		"sub": who.sub, "userType": who.userType, "iat": now.Unix(), "exp": now.Add(tokenLasts).Unix(),
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(c.secret)
}

// do sends a request to one replica after the other until one has answered. Its error is a refusal,
// or means that the fate of the request is not known. into, if not nil, takes the answer's body.
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

// try sends a request once.
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
		text, _ := io.ReadAll(io.LimitReader(reply.Body, mostProblem)) // what came of it says enough
		said := &refusal{reply.StatusCode, strings.TrimSpace(string(text))}
		if reply.StatusCode >= 500 {
			return a, errors.New(said.Error()) // its fate is not known
		}
		return a, said
	case into != nil:
		if err := json.NewDecoder(reply.Body).Decode(into); err != nil {
			return a, fmt.Errorf("workforce: the answer of %s: %w", url, err)
		}
	}
	_, _ = io.Copy(io.Discard, reply.Body) // so that the connection can be used again
	return a, nil
}

// close ends connections that are not used.
func (c *client) close() { c.http.CloseIdleConnections() }

// mitra sends a request of an app: heartbeat, online, offline.
func (c *client) mitra(ctx context.Context, id, what string) (answer, error) {
	return c.do(ctx, identity{id, "mitra"}, http.MethodPost, "/api/v1/mitra/"+what, nil, nil)
}

// poll asks what customers ask.
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

// available returns some mitras who can take a session.
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

// session changes a session: accept, reroute, end.
func (c *client) session(
	ctx context.Context, service, id, what string, body map[string]string,
) (answer, error) {
	path := "/api/v1/sessions/" + id + "/" + what
	return c.do(ctx, identity{service, "service"}, http.MethodPost, path, body, nil)
}

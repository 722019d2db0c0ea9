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
	within      = 5 * time.Second // a request
	mostProblem = 2000            // bytes kept of a refusal's text
	idleConns   = 200             // per replica: each app has about one open request
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
}

// client sends requests to each replica in turn. It is safe for concurrent use.
type client struct {
	http    http.Client
	secret  []byte
	targets atomic.Pointer[[]string]
	next    atomic.Uint64
}

func newClient(secret []byte) *client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, idleConns
	return &client{http: http.Client{Transport: t, Timeout: within}, secret: secret}
}

// do asks one replica. Its error is a refusal, or means that the outcome is unknown.
func (c *client) do(
	ctx context.Context, who identity, method, path string, body, into any,
) (a answer, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return a, fmt.Errorf("workforce: %w", err)
	}
	a.sent = time.Now()
	claims := jwt.MapClaims{"sub": who.sub, "userType": who.userType, "exp": a.sent.Add(time.Hour).Unix()}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(c.secret)
	if err != nil {
		return a, fmt.Errorf("workforce: sign: %w", err)
	}
	targets := *c.targets.Load()
	url := targets[c.next.Add(1)%uint64(len(targets))] + "/api/v1/" + path
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return a, fmt.Errorf("workforce: %w", err)
	}
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+token)
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

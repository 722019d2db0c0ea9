package availability

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const secret = "a secret of these tests, long enough for HS256"

// service is all replicas as a client sees them: each call goes to any of them. Safe for concurrent
// use.
type service struct {
	t      *testing.T
	client *http.Client

	mu        sync.Mutex
	replicas  []string          // addresses
	tokens    map[string]string // by user
	signs     map[string][]sign // acknowledged signs of life, by mitra
	completed int
}

func newService(t *testing.T) *service {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &service{
		t: t, client: &http.Client{Transport: transport, Timeout: 5 * time.Second},
		tokens: map[string]string{}, signs: map[string][]sign{},
	}
}

// token is that of a user of a type; a mitra's names it.
func (s *service) token(userType, sub string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := userType + " " + sub
	if s.tokens[name] == "" {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"sub": sub, "userType": userType, "exp": time.Now().Add(24 * time.Hour).Unix(),
		}).SignedString([]byte(secret))
		if err != nil {
			s.t.Error(err)
		}
		s.tokens[name] = text
	}
	return s.tokens[name]
}

func (s *service) serve(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = addresses
}

// call calls a replica with a JSON body, and returns the status; 0 if there was no answer, so that
// it is not known what became of it.
func (s *service) call(ctx context.Context, who, method, path, body string) (status int) {
	s.mu.Lock()
	to := s.replicas[rand.IntN(len(s.replicas))]
	s.mu.Unlock()
	status, _, _ = s.callOne(ctx, to, who, method, path, body)
	return status
}

func (s *service) callOne(
	ctx context.Context, to, token, method, path, body string,
) (status int, answer []byte, header http.Header) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+to+"/api/v1/"+path, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return 0, nil, nil
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	if err != nil {
		return 0, nil, nil
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, nil
	}
	return response.StatusCode, answer, response.Header
}

// count counts what was answered.
func (s *service) count(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status >= 200 && status < 300 {
		s.completed++
	}
}

// alive sends a sign of life of a mitra: heartbeat or online.
func (s *service) alive(ctx context.Context, mitra, how string) (status int) {
	began := time.Now()
	status = s.call(ctx, s.token("mitra", mitra), http.MethodPost, "mitra/"+how, "")
	s.count(status)
	if status == http.StatusNoContent {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.signs[mitra] = append(s.signs[mitra], sign{began, time.Now()})
	}
	return status
}

// offline has a mitra say that it takes no more work.
func (s *service) offline(ctx context.Context, mitra string) {
	s.count(s.call(ctx, s.token("mitra", mitra), http.MethodPost, "mitra/offline", ""))
}

// activate changes whether a mitra is active.
func (s *service) activate(ctx context.Context, mitra string, active bool) {
	s.count(s.call(ctx, s.token("admin", "chaos"), http.MethodPut, "mitras/"+mitra, fmt.Sprintf(`{"is_active": %t}`, active)))
}

// session does something with a session: accept, end or reroute.
func (s *service) session(ctx context.Context, id, what, body string) {
	s.count(s.call(ctx, s.token("service", "chaos"), http.MethodPost, "sessions/"+id+"/"+what, body))
}

// available asks one replica who can take work, and who answered.
func (s *service) available(ctx context.Context, to string) (ids map[string]int, from string, err error) {
	status, answer, header := s.callOne(ctx, to, s.token("service", "chaos"), http.MethodGet, "available?limit=1000", "")
	if status != http.StatusOK {
		return nil, "", fmt.Errorf("available: status %d: %s", status, answer)
	}
	var found []struct {
		ID       string `json:"id"`
		Sessions int    `json:"active_session_count"`
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return nil, "", err
	}
	ids = map[string]int{}
	for _, f := range found {
		ids[f.ID] = f.Sessions
	}
	return ids, header.Get("Availability-Source"), nil
}

// acknowledged are all signs of life so far.
func (s *service) acknowledged() map[string][]sign {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.signs)
}

// done is how many calls have succeeded so far.
func (s *service) done() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.completed
}

package workforce

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

var secret = []byte("a secret of the tests")

// program is the HTTP contract in memory, and the Backend beside it. It is a transport: there are
// no sockets, so that it can be used within a bubble of synctest.
type program struct {
	mu       sync.Mutex
	most     int
	mitras   []string
	online   map[string]bool
	beats    map[string][]time.Time
	sessions map[string]Session
	busy     map[string]int // sessions that a mitra has now
	asked    map[string]int // requests by path's last word
	seen     []string       // hosts
	// fault returns the fate of a request: down, lost (carried out, no answer), 503 or "".
	fault func(r *http.Request) string
	hangs bool // a session is not made before the end
}

func newProgram() *program {
	return &program{
		most: 3, online: map[string]bool{}, beats: map[string][]time.Time{}, sessions: map[string]Session{},
		busy: map[string]int{}, asked: map[string]int{}, fault: func(*http.Request) string { return "" },
	}
}

var errDown = errors.New("connection refused")

func (p *program) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r.URL.Host)
	fault := p.fault(r)
	if fault == "down" {
		return nil, errDown
	}
	w := httptest.NewRecorder()
	if fault == "503" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return w.Result(), nil
	}
	p.serve(w, r)
	if fault == "lost" {
		return nil, errDown
	}
	return w.Result(), nil
}

func (p *program) serve(w *httptest.ResponseRecorder, r *http.Request) {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")[2:]
	last := words[len(words)-1]
	p.asked[last]++
	kinds := map[string]string{"mitra": "mitra", "availability": "customer", "available": "service", "sessions": "service"}
	sub, err := who(r, kinds[words[0]])
	if err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch words[0] {
	case "mitra":
		w.WriteHeader(p.mitra(sub, last))
	case "availability":
		w.Header().Set("Availability-Source", "valkey")
		_ = json.NewEncoder(w).Encode(map[string]any{"available": true, "count": len(p.free())})
	case "available":
		w.Header().Set("Availability-Source", "postgres")
		var all []map[string]any
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		for _, id := range p.free()[:min(limit, len(p.free()))] {
			all = append(all, map[string]any{"id": id, "active_session_count": p.busy[id]})
		}
		_ = json.NewEncoder(w).Encode(all)
	case "sessions":
		var body struct {
			Mitra  string `json:"mitra_id"`
			Status string `json:"status"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		w.WriteHeader(p.change(words[1], last, body.Mitra, body.Status))
	}
}

// who checks the token as the program does.
func who(r *http.Request, userType string) (sub string, err error) {
	claims := jwt.MapClaims{}
	text := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	_, err = jwt.ParseWithClaims(text, claims, func(*jwt.Token) (any, error) { return secret, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	if err == nil && claims["userType"] != userType {
		err = errors.New("another user type")
	}
	if err != nil {
		return "", err
	}
	return claims.GetSubject()
}

func (p *program) mitra(id, what string) int {
	switch {
	case what == "heartbeat" && !p.online[id]:
		return http.StatusConflict
	case what == "heartbeat":
		p.beats[id] = append(p.beats[id], time.Now())
	default:
		p.online[id] = what == "online"
	}
	return http.StatusNoContent
}

func (p *program) free() []string {
	return slices.DeleteFunc(slices.Clone(p.mitras), func(id string) bool { return !p.online[id] || p.busy[id] >= p.most })
}

// set changes a session, and how many its mitras have: counted along, since thousands come and go.
func (p *program) set(id string, s Session) {
	if was := p.sessions[id]; was.busy() {
		p.busy[was.Mitra]--
	}
	if s.busy() {
		p.busy[s.Mitra]++
	}
	p.sessions[id] = s
}

func (p *program) change(id, what, mitra, status string) int {
	s, there := p.sessions[id]
	switch {
	case !there:
		return http.StatusNotFound
	case what == "accept" && s == Session{mitra, "active"} || what == "end" && s.Status == status:
	case what == "end" && s.busy():
		p.set(id, Session{s.Mitra, status})
	case what == "accept" && s.Status != "searching", what == "reroute" && !s.busy(), what == "end", p.busy[mitra] >= p.most:
		return http.StatusConflict
	default:
		p.set(id, Session{mitra, "active"})
	}
	return http.StatusOK
}

func (p *program) AddMitras(_ context.Context, ids []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mitras = ids
	return nil
}

func (p *program) Search(ctx context.Context, session string) error {
	if p.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.sessions[session]; !there {
		p.sessions[session] = Session{Status: "searching"}
	}
	return nil
}

func (p *program) Session(_ context.Context, session string) (mitra, status string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[session]
	return s.Mitra, s.Status, nil
}

// sides returns the program's state, as if both stores had it.
func (p *program) sides() *sides {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &sides{postgres: map[string]place{}, redis: map[string]place{}, sessions: map[string]Session{}, most: p.most}
	for _, id := range p.mitras {
		s.postgres[id] = place{online: p.online[id], sessions: p.busy[id], version: 1}
		s.redis[id] = s.postgres[id]
		if p.online[id] {
			s.onlinePostgres++
			s.onlineRedis++
		}
	}
	for id, has := range p.sessions {
		s.sessions[id] = has
	}
	return s
}

// inBubble runs a workforce against a program in memory.
func inBubble(t *testing.T, change func(*Config, *program), test func(t *testing.T, f *Force, p *program)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		cfg := Config{
			Mitras: 20, Targets: []string{"http://one", "http://two"}, Secret: secret, Backend: p, Transport: p,
			Interval: 10 * time.Second, Seed: 1,
		}
		change(&cfg, p)
		f, err := New(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		test(t, f, p)
		cancel()
		require.NoError(t, <-ended)
	})
}

package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A frozen server accepts connections and answers nobody until it is resumed. Each request must
// get an answer meanwhile: one that hangs fails by the test's patience.
func TestWhileAServerIsFrozenEachRequestIsAnswered(t *testing.T) {
	for name, frozen := range map[string]struct {
		postgres, redis bool
		beat            int
	}{
		"PostgreSQL": {postgres: true, beat: 204},
		"Redis":      {redis: true, beat: 204},
		"both":       {postgres: true, redis: true, beat: 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, postgres := redistest.Start(t), pgtest.Start(t)
			db := postgres.Database()
			p := serving(t, on(server, db.URL)...)
			id, as := newMitra(t, db)
			p.is(204, as, "POST", "/api/v1/mitra/online", "")
			p.is(200, asService, "GET", "/api/v1/available", "")
			sessions := []string{newSession(t, db), newSession(t, db), newSession(t, db)}
			if frozen.postgres {
				postgres.Stop()
				defer postgres.Cont()
			}
			if frozen.redis {
				server.Stop()
				defer server.Cont()
			}
			mitra := `{"mitra_id": "` + id + `"}`
			var mu sync.Mutex
			codes := map[string]int{}
			var asked sync.WaitGroup
			for _, c := range []struct{ as, method, path, body string }{
				{as, "POST", "/api/v1/mitra/heartbeat", ""},
				{as, "POST", "/api/v1/mitra/online", ""},
				{as, "GET", "/api/v1/mitra/status", ""},
				{asCustomer, "GET", "/api/v1/availability", ""},
				{asService, "GET", "/api/v1/available", ""},
				{asService, "POST", "/api/v1/sessions/" + sessions[0] + "/accept", mitra},
				{asService, "POST", "/api/v1/sessions/" + sessions[1] + "/reroute", mitra},
				{asService, "POST", "/api/v1/sessions/" + sessions[2] + "/end", `{"status": "completed"}`},
				{asAdmin, "GET", "/api/v1/mitras", ""},
				{asAdmin, "PUT", "/api/v1/mitras/" + id, `{"is_active": true}`},
				{asAdmin, "GET", "/api/v1/config", ""},
				{asAdmin, "PUT", "/api/v1/config/require_ping", `{"value": true}`},
			} {
				asked.Go(func() {
					req, err := http.NewRequest(c.method, "http://"+p.HTTP+c.path, strings.NewReader(c.body))
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Authorization", "Bearer "+c.as)
					req.Header.Set("Content-Type", "application/json")
					resp, err := (&http.Client{Transport: programtest.Client.Transport, Timeout: patience}).Do(req)
					if err != nil {
						t.Error(err) // there is no answer
						return
					}
					_ = resp.Body.Close()
					mu.Lock()
					defer mu.Unlock()
					codes[c.method+" "+c.path] = resp.StatusCode
				})
			}
			begun := time.Now()
			asked.Wait()
			t.Log("the last answer came after", time.Since(begun), fmt.Sprint(codes))
			require.Len(t, codes, 12)
			require.Equal(t, frozen.beat, codes["POST /api/v1/mitra/heartbeat"])
			if frozen.postgres {
				require.Equal(t, 503, codes["POST /api/v1/mitra/online"])
				require.Equal(t, 503, codes["GET /api/v1/mitras"])
			}
			if frozen.postgres != frozen.redis {
				require.Equal(t, 200, codes["GET /api/v1/available"])
				require.Equal(t, 200, codes["GET /api/v1/availability"])
			}
			for _, code := range codes {
				require.Contains(t, []int{200, 204, 409, 503}, code)
			}
		})
	}
}

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
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// requests are one a line: who asks, the method, the path below /api/v1, a body.
const requests = `{a} POST /mitra/heartbeat
{a} POST /mitra/online
{a} GET /mitra/status
customer GET /availability
service GET /available
service POST /sessions/{s}/accept {"mitra_id": "{a}"}
service POST /sessions/{t}/reroute {"mitra_id": "{a}"}
service POST /sessions/{u}/end {"status": "completed"}
admin GET /mitras
admin PUT /mitras/{a} {"is_active": true}
admin GET /config
admin PUT /config/require_ping {"value": true}`

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
			postgres := pgtest.Start(t)
			s := stores{t, redistest.Start(t), postgres.Database()}
			p := s.serving()
			for name, make := range map[string]func(string) string{"a": p.mitra, "s": p.session, "t": p.session, "u": p.session} {
				make(name)
			}
			p.plays(`
				204 {a} POST /mitra/online
				200 service GET /available`)
			if frozen.postgres {
				postgres.Stop()
				defer postgres.Cont()
			}
			if frozen.redis {
				s.server.Stop()
				defer s.server.Cont()
			}
			var mu sync.Mutex
			codes := map[string]int{}
			var asked sync.WaitGroup
			tokens := map[string]string{"service": asService, "admin": asAdmin, "customer": asCustomer}
			for line := range strings.SplitSeq(strings.NewReplacer(p.names...).Replace(requests), "\n") {
				words := append(strings.SplitN(line, " ", 4), "")
				as, known := tokens[words[0]]
				if !known {
					as = bearer(token.Mitra, words[0])
				}
				asked.Go(func() {
					req, err := http.NewRequest(words[1], "http://"+p.HTTP+"/api/v1"+words[2], strings.NewReader(words[3]))
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Authorization", "Bearer "+as)
					req.Header.Set("Content-Type", "application/json")
					resp, err := (&http.Client{Transport: programtest.Client.Transport, Timeout: patience}).Do(req)
					if err != nil {
						t.Error(err) // there is no answer
						return
					}
					_ = resp.Body.Close()
					mu.Lock()
					defer mu.Unlock()
					codes[words[1]+" "+words[2]] = resp.StatusCode
				})
			}
			begun := time.Now()
			asked.Wait()
			t.Log("the last answer came after", time.Since(begun), fmt.Sprint(codes))
			require.Len(t, codes, 12)
			require.Equal(t, frozen.beat, codes["POST /mitra/heartbeat"])
			if frozen.postgres {
				require.Equal(t, 503, codes["POST /mitra/online"])
				require.Equal(t, 503, codes["GET /mitras"])
			}
			if frozen.postgres != frozen.redis {
				require.Equal(t, 200, codes["GET /available"])
				require.Equal(t, 200, codes["GET /availability"])
			}
			for _, code := range codes {
				require.Contains(t, []int{200, 204, 409, 503}, code)
			}
		})
	}
}

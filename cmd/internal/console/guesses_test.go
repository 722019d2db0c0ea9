package console

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// attempts asks an administrator's request of it.
type attempts struct {
	t   *testing.T
	b   *bench
	log bytes.Buffer
}

func newAttempts(t *testing.T) *attempts {
	t.Helper()
	a := &attempts{t: t}
	a.b = setup(t, func(c *HTTPConfig) { c.Logger = slog.New(slog.NewTextHandler(&a.log, nil)) })
	return a
}

func (a *attempts) from(peer string, header ...string) int {
	a.t.Helper()
	r := httptest.NewRequestWithContext(a.t.Context(), http.MethodPost, "/api/v1/resume", nil)
	r.RemoteAddr = peer
	if len(header) > 0 {
		r.Header["Authorization"] = header
	}
	w := httptest.NewRecorder()
	a.b.operator.ServeHTTP(w, r)
	require.Equal(a.t, w.Code == http.StatusTooManyRequests, w.Header().Get("Retry-After") != "")
	return w.Code
}

const goodToken = "Bearer " + adminToken

func TestOneWrongTokenASecondIsLookedAtAndLoggedOnceAnAttack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts(t)
		codes := map[int]int{}
		for i := range 1000 { // ten seconds
			codes[a.from("192.0.2.66:4711", fmt.Sprintf("Bearer guess-%d", i))]++
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, map[int]int{401: 10, 429: 990}, codes)
		require.Equal(t, 1, strings.Count(a.log.String(), "admin request refused"), "%s", &a.log)
		require.Equal(t, 200, a.from("192.0.2.1:1", goodToken), "somebody else is not kept out")
		require.Zero(t, a.b.janitor.resigns)

		require.Equal(t, 401, a.from("192.0.2.66:4711", "Bearer wrong"))
		require.Equal(t, 429, a.from("192.0.2.66:4711", goodToken), "not looked at, so not right either")
		time.Sleep(guessPause)
		require.Equal(t, 200, a.from("192.0.2.66:4711", goodToken))
		require.Equal(t, 200, a.from("192.0.2.66:4711", goodToken))

		time.Sleep(guessQuiet)
		a.from("192.0.2.66:4711", "Bearer wrong")
		require.Equal(t, 2, strings.Count(a.log.String(), "admin request refused"), "another attack")
	})
}

func TestWrongTokensOfManyAddressesAreBoundedInAllAndKeepNoKnownAdministratorOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts(t)
		require.Equal(t, 200, a.from("[2001:db8:1::1]:1", goodToken))
		codes := map[int]int{}
		for i := range 200 {
			codes[a.from(fmt.Sprintf("192.0.2.%d:1", i), "Bearer wrong")]++
			codes[a.from(fmt.Sprintf("[2001:db8:2::%x]:1", i), "Bearer wrong")]++ // one network
		}
		require.Equal(t, map[int]int{401: guessesInAll, 429: 400 - guessesInAll}, codes)
		require.Equal(t, 429, a.from("198.51.100.1:1", goodToken), "another one waits")
		require.Equal(t, 200, a.from("[2001:db8:1::2]:1", goodToken))
		require.Equal(t, 401, a.from("[2001:db8:1::2]:1", "Bearer wrong"))
		require.Equal(t, 429, a.from("[2001:db8:1::2]:1", "Bearer wrong"), "who was right once may not guess either")
		time.Sleep(guessPause)
		require.Equal(t, 200, a.from("198.51.100.1:1", goodToken))
		require.LessOrEqual(t, len(a.b.guesses.refused), guessesInAll+mostTrusted)
		for i := range 3 * mostTrusted {
			require.Equal(t, 200, a.from(fmt.Sprintf("10.0.%d.%d:1", i/200, i%200), goodToken))
		}
		require.Len(t, a.b.guesses.trusted, mostTrusted)
	})
}

func TestARequestWithoutATokenIsNoGuess(t *testing.T) {
	t.Parallel()
	a := newAttempts(t)
	for range 100 {
		require.Equal(t, 401, a.from("192.0.2.1:1"))
	}
	require.Empty(t, a.log.String())
	require.Equal(t, 200, a.from("192.0.2.1:1", goodToken))
	require.Equal(t, 401, a.from("192.0.2.1:1", goodToken, goodToken), "two tokens")
	require.Equal(t, 429, a.from("192.0.2.1:1", "Basic "+adminToken))
	require.Equal(t, 401, a.from("@", "Basic "+adminToken), "a peer without an address")
	require.Equal(t, 429, a.from("@", goodToken))
}

package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

// evicted writes a record of the eviction log.
func (s *served) evicted(t *testing.T, owner, imei string) {
	t.Helper()
	now := time.Now()
	require.NoError(t, s.client.XAdd(t.Context(), &redis.XAddArgs{
		Stream: s.keys.Log(), ID: fmt.Sprintf("%d-1", now.Add(-time.Minute).UnixMicro()), Values: []any{
			"at", now.UnixMilli(), "leader", "one", "owner", owner, "sweep", "owners", "count", 1, "reowned",
			0,
			"imeis", `["` + imei + `"]`,
		},
	}).Err())
}

func TestADeviceIsFoundAndWhyItIsThereOrGone(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		s := serving(t, w.Client, guard.Layout{Prefix: w.Prefix}, "one")
		s.lives(t, "two")
		require.NoError(t, w.Client.HSet(t.Context(), s.keys.Registry(), "356307042441013", "two").Err())
		s.evicted(t, "seven", "356307042441014")

		long := strings.Repeat("1", 1024)
		require.NoError(t, w.Client.HSet(t.Context(), s.keys.Registry(), long, "two").Err())
		s.tells(t, `
			200 /api/v1/devices/356307042441013 ~ "owner": "two".*"alive": true
			404 /api/v1/devices/356307042441099 ~ nobody holds 356307042441099
			400 /api/v1/devices/%00 ~ "error": "
			400 /api/v1/devices/1$LONG ~ "error": "
			400 /api/v1/why ~ "error": "
			400 /api/v1/why?key= ~ "error": "
			400 /api/v1/why?key=%0a ~ "error": "
			400 /api/v1/why?imei=1 ~ "error": "
			400 /api/v1/why?key=1&key=2 ~ "error": "
			200 /api/v1/why?key=356307042441013 ~ "verdict": "kept"
			200 /api/v1/why?key=356307042441014 ~ "verdict": "evicted".* "owner": "seven"
			200 /api/v1/why?key=356307042441014 ~ "records": \[ \{
			200 /api/v1/why?key=1 ~ "verdict": "unknown"
			200 /api/v1/devices/$LONG
			200 /api/v1/why?key=$LONG ~ "verdict": "kept"`, "$LONG", long)
	})
}

func TestARedisThatIsAwayIsSaidAndComesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: time.Second,
		ReadTimeout: time.Second,
	})
	defer func() { _ = client.Close() }()
	s := serving(t, client, guard.Layout{}, "one")
	require.Equal(t, 200, s.get(t, "/api/v1/fleet", &fleetStatus{}))
	server.Kill()
	time.Sleep(fleetEvery) // what was read within a second is given
	s.tells(t, `
		503 /api/v1/fleet ~ "error": "
		503 /api/v1/devices/1 ~ "error": "
		503 /api/v1/why?key=1 ~ "error": "`)
	server.Restart()
	until(t, func() bool { return s.get(t, "/api/v1/fleet", &fleetStatus{}) == 200 })
}

func TestWhileRedisHangsThePageShowsAtOnceWhatWasReadBefore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := serving(t, server.Client(), guard.Layout{}, "one")
	s.lives(t, "one")
	page := func() string {
		res, err := http.Get(s.base + "/")
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return text(string(body))
	}
	require.Equal(t, 200, s.get(t, "/api/v1/fleet", &fleetStatus{}))
	require.Contains(t, page(), "1 live")
	server.Stop()
	defer server.Cont()
	until(t, func() bool { return strings.Contains(page(), "Redis cannot be asked. This is ") })
	shown := page()
	require.Contains(t, shown, "1 live", "the last known state")
	require.Contains(t, shown, "Redis cannot be asked: ")
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	require.NotNil(t, s.fleet.under, "nobody has waited for the end of the reading")
}

// counted counts the commands that reach Redis: those of a name, or all.
func counted(client *redis.Client, name string) *atomic.Int64 {
	n := new(atomic.Int64)
	client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		for _, cmd := range cmds {
			if name == "" || cmd.Name() == name {
				n.Add(1)
			}
		}
		return send()
	}))
	return n
}

func TestRedisIsAskedOnceASecondHoweverManyWatchAndNeverWhenNobodyDoes(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		readings := counted(w.Client, "time") // each begins with one
		s := serving(t, w.Client, guard.Layout{Prefix: w.Prefix}, "one")
		s.lives(t, "one")
		until(t, func() bool { return w.Client.Exists(t.Context(), s.keys.About("one")).Val() == 1 })
		require.LessOrEqual(t, readings.Load(), int64(1), "a look who else is there")

		before, begun := readings.Load(), time.Now()
		for range 3 {
			var viewers conc.WaitGroup
			for range 20 {
				viewers.Go(func() { require.Equal(t, 200, s.get(t, "/api/v1/fleet", &fleetStatus{})) })
			}
			viewers.Wait()
		}
		require.LessOrEqual(t, readings.Load()-before, 1+int64(time.Since(begun)/fleetEvery))
		require.Positive(t, readings.Load())
	})
}

// What the documents say that a replica's user needs is enough to show the fleet.
func TestTheRightsOfTheDocumentsAreEnough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ page, user, prefix string }{
		{"redis.md", "rollcall", ""}, {"redis.md", "availability", ""}, {"orphans.md", "cleanup", "{cleanup}:"},
	} {
		server := redistest.Start(t)
		page, prefix := c.page+": "+c.user, c.prefix
		args := append([]any{"ACL", "SETUSER", c.user}, redistest.User(t, "../../../docs/"+c.page, c.user)...)
		require.NoError(t, server.Client().Do(t.Context(), args...).Err())
		client := redis.NewClient(&redis.Options{
			Addr: server.Addr(), Username: c.user, Password: "PASSWORD", MaxRetries: -1, DisableIdentity: true,
		})
		defer func() { _ = client.Close() }()
		keys := guard.Layout{Prefix: prefix} // what is of the registry is read at the start, and then rarely
		require.NoError(t, server.Client().HSet(t.Context(), keys.Registry(), "1", "gone").Err())
		s := serving(t, client, keys, "one")
		admin := *s
		admin.client = server.Client()
		admin.lives(t, "one")
		require.NoError(t, admin.client.Set(t.Context(), s.keys.Lease(), "one/x", time.Minute).Err())
		require.NoError(t, timeline.Add(t.Context(), client, s.keys.Timeline(), timeline.Event{Kind: timeline.Resume}))
		until(t, func() bool { return admin.client.Exists(t.Context(), s.keys.About("one")).Val() == 1 }, page)
		var got fleetStatus
		require.Equal(t, 200, s.get(t, "/api/v1/fleet", &got), page)
		require.Equal(t, "v1.2.3", got.Instances[1].Version, page)
		require.Len(t, got.Events, 1, page)
		for _, f := range got.Problems {
			require.NotContains(t, f.Name, "rights", "%s: %s", page, f.Sentence)
		}
		s.tells(t, `
			200 /api/v1/devices/1
			200 /api/v1/why?key=1 ~ "verdict": "$VERDICT"`, "$VERDICT", string(inspect.WillGo))
	}
}

// endless is a body in JSON that counts what is read of it.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	if e.read == 0 {
		copy(p, `{"key":"`)
	}
	e.read += len(p)
	if e.read > 100*mostParams {
		return 0, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

func TestABodyWithoutAnEndFillsNoMemory(t *testing.T) {
	t.Parallel()
	var body endless
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/why", &body)
	req.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	new(questions).why(answer, req)
	require.Equal(t, 400, answer.Code)
	require.Less(t, body.read, 3*mostParams)
}

func TestManyMayAskWhyAtOnce(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		s := serving(t, w.Client, guard.Layout{Prefix: w.Prefix}, "one")
		s.evicted(t, "seven", "356307042441014")
		p := pool.New().WithErrors()
		for i := range 30 {
			p.Go(func() error {
				res, err := http.Get(fmt.Sprintf("%s/api/v1/why?key=35630704244101%d", s.base, i%10))
				if err != nil {
					return err
				}
				defer func() { _ = res.Body.Close() }()
				if res.StatusCode != 200 {
					return fmt.Errorf("status %d", res.StatusCode)
				}
				return nil
			})
		}
		require.NoError(t, p.Wait())
	})
}

func TestWhoAsksOfManyKeysAndLeavesFillsNoMemory(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		stands := make(chan struct{}) // no command goes through before it is closed
		w.Client.AddHook(redistest.Intercept(func(ctx context.Context, _ []redis.Cmder, send func() error) error {
			select {
			case <-stands:
				return send()
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
		reader := inspect.New(w.Client, guard.Layout{Prefix: w.Prefix})
		q := newQuestions(reader, newFleet(reader))
		var stop context.CancelFunc
		q.ctx, stop = context.WithCancel(t.Context())
		defer q.end()
		defer stop()
		gone, leave := context.WithCancel(t.Context())
		leave()
		for i := range 10 * mostAsked {
			_, _ = q.tellWhy(gone, fmt.Sprintf("192.0.%d.1:1", i), fmt.Sprint("key-", i))
		}
		more := 0
		waittest.Until(t, time.Millisecond, func() bool {
			more++
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := q.tellWhy(soon, "198.51.100.1:1", fmt.Sprint("more-", more))
			return errors.Is(err, errBusy)
		})
		close(stands)
		waittest.Until(t, time.Millisecond, func() bool {
			_, err := q.tellWhy(t.Context(), "203.0.113.1:1", "later")
			return err == nil
		})
	})
}

func TestALookCostsTheSameHoweverManyLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(redistest.Fake(t))
		defer client.Close()
		commands := counted(client, "")
		reader := inspect.New(client, guard.Layout{})
		q := newQuestions(reader, newFleet(reader))
		get := func(remote, path string) int {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /devices/{imei}", q.find)
			mux.HandleFunc("GET /why", q.why)
			mux.HandleFunc("GET /doctor", q.doctor)
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			req.RemoteAddr = remote + ":1"
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, req)
			return answer.Code
		}
		for range 1000 { // the same question
			require.Equal(t, 404, get("192.0.2.1", "/devices/1"))
		}
		one := commands.Load()
		require.Less(t, one, int64(50), "with a look at the fleet")
		codes := map[int]int{}
		for i := range 1000 { // always another one, from one network
			codes[get("192.0.2."+strconv.Itoa(i%250), "/devices/9"+strconv.Itoa(i))]++
			codes[get("192.0.2.7", "/why?key="+strconv.Itoa(i))]++
		}
		require.Equal(t, map[int]int{404: 10, 200: 9, 429: 1981}, codes)
		require.Equal(t, 404, get("198.51.100.1", "/devices/2"), "other networks are answered")
		for i := range 200 { // from everywhere
			get(fmt.Sprintf("203.0.%d.1", i), "/devices/8"+strconv.Itoa(i))
		}
		require.Less(t, commands.Load(), int64(asksInAll*15*5))
		<-time.After(fresh)
		require.Equal(t, 404, get("192.0.2.1", "/devices/3"))
		before, began := commands.Load(), time.Now()
		require.Equal(t, 200, get("192.0.2.1", "/doctor"))
		cost := commands.Load() - before
		for i := range 10 {
			get("192.0.2.1", "/doctor?expect="+strconv.Itoa(i+1))
		}
		require.Less(t, commands.Load()-before, 11*(cost+20))
		require.Equal(t, 10*fresh, time.Since(began), "one doctor a second")
		<-time.After(fresh) // its turn ends
	})
}

func TestDoctorAnswersOverHTTPAsTheToolDoes(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		s := serving(t, w.Client, guard.Layout{Prefix: w.Prefix}, "one")
		s.lives(t, "two")
		names := func(d inspect.Diagnosis) (all []string) {
			for _, c := range d.Checks {
				all = append(all, string(c.Level)+" "+c.Name)
			}
			return all
		}
		var got inspect.Diagnosis
		require.Equal(t, 200, s.get(t, "/api/v1/doctor?expect=2", &got))
		want, err := inspect.New(w.Client, s.keys).Doctor(t.Context(), 2)
		require.NoError(t, err)
		require.Equal(t, names(want), names(got))
		require.False(t, got.OK)
		require.Contains(t, names(got), "wrong replicas")
		s.tells(t, `
			400 /api/v1/doctor?expect=x ~ "error": "
			400 /api/v1/doctor?expect=-1 ~ "error": "
			400 /api/v1/doctor?n=1 ~ "error": "`)
	})
}

package console

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// boot is a token of one life.
const boot = "17953652788356520000000007"

// served is an HTTP that serves, beside a Redis.
type served struct {
	*HTTP
	client *redis.Client
	keys   guard.Layout
	status *stated
	base   string
}

// serving starts an HTTP of an instance with this id.
func serving(
	t *testing.T, client *redis.Client, keys guard.Layout, id string, change ...func(*stated),
) *served {
	t.Helper()
	s := &served{client: client, keys: keys, status: &stated{Status: Status{
		Instance: id, Version: "v1.2.3", Ready: true,
		Registry: registry.Status{Instance: id, Boot: boot, Interval: "2s", TTL: "6s"},
		Janitor:  janitor.Status{Instance: id},
	}}}
	for _, f := range change {
		f(s.status)
	}
	s.HTTP, _ = listening(t, HTTPConfig{
		Addr: "127.0.0.1:0", Program: "bench", Client: client, Layout: keys,
		Status: func() Stated { return *s.status }, Page: ownPage, Janitor: &fake{},
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	s.base = "http://" + s.Addr()
	return s
}

// listening serves until stop, or until the test ends.
func listening(t *testing.T, cfg HTTPConfig) (s *HTTP, stop func()) {
	t.Helper()
	s, err := ListenHTTP(t.Context(), cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
		http.DefaultClient.CloseIdleConnections()
	})
	t.Cleanup(stop)
	return s, stop
}

// lives writes what an instance that lives has in Redis.
func (s *served) lives(t *testing.T, id string) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.client.SAdd(ctx, s.keys.Roster(), id).Err())
	require.NoError(t, s.client.Set(ctx, s.keys.Heartbeat(id), strconv.FormatInt(time.Now().UnixMilli(), 10)+"/"+boot, time.Minute).Err())
}

func (s *served) get(t *testing.T, path string, to any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+path, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.NoError(t, json.NewDecoder(res.Body).Decode(to))
	return res.StatusCode
}

// tells asks for the paths of a script.
func (s *served) tells(t *testing.T, script string, words ...string) {
	t.Helper()
	calltest.Tells(t, func(args ...string) (int, string) {
		res, err := http.Get(s.base + args[0])
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, text(string(body))
	}, script, words...)
}

// until waits for a condition.
func until(t *testing.T, ok func() bool, what ...any) {
	t.Helper()
	waittest.Until(t, 10*time.Millisecond, ok, what...)
}

func TestEachReplicaShowsWhatAllOfThemKnowOfThemselves(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		keys, now := guard.Layout{Prefix: w.Prefix}, time.Now()
		one := serving(t, w.Client, keys, "one", func(s *stated) {
			s.Janitor.Leading = true
			s.Janitor.Sweeps = []janitor.Report{{Sweep: "registry", Outcome: janitor.Done, Scanned: 7}}
			s.Janitor.Passes = []janitor.Progress{
				{Sweep: "registry", Started: now.Add(-time.Minute), Scanned: 10, Total: 40},
				{Sweep: "owners", Started: now.Add(time.Minute)}, // has just begun
			}
		})
		two := serving(t, w.Client, keys, "two", func(s *stated) {
			s.Registry.Failing = map[string]string{"heartbeat": "NOPERM this user has no permissions"}
			s.Files = []reload.Status{{Setting: "REDIS_PASSWORD_FILE", Error: "the file is empty"}}
		})
		for _, id := range []string{"one", "two", "three"} { // three says nothing of itself
			one.lives(t, id)
		}
		require.NoError(t, w.Client.Set(t.Context(), keys.Lease(), "one/x", time.Minute).Err())
		for _, s := range []*served{one, two} {
			var got fleetStatus
			until(t, func() bool {
				got = fleetStatus{}
				require.Equal(t, 200, s.get(t, "/api/v1/fleet", &got))
				return len(got.UnderWay) == 1 && got.Instances[2].Version != ""
			})
			require.Equal(t, self{Instance: s.status.Instance, Program: "bench", Version: "v1.2.3",
				Address: s.Addr()}, got.Replica)
			require.Equal(t, 40, got.UnderWay[0].Total)
			require.Len(t, got.Passes, 1)
			require.Equal(t, one.Addr(), got.Leader.Address)
			require.Len(t, got.Instances, 3)
			for i, want := range []struct{ id, version, address string }{
				{"one", "v1.2.3", one.Addr()}, {"three", "", ""}, {"two", "v1.2.3", two.Addr()},
			} {
				in := got.Instances[i]
				require.True(t, in.Alive)
				require.Equal(t, want.id, in.ID)
				require.Equal(t, want.version, in.Version)
				require.Equal(t, want.address, in.Address)
			}
			require.Equal(t, "2s", got.Instances[0].Interval)
			require.Equal(t, "6s", got.Instances[0].TTL)
			shown := ""
			for _, f := range got.Problems {
				shown += f.Text() + "\n"
			}
			require.Contains(t, shown, "two: heartbeat fails: Redis' user lacks a right (NOPERM this user has no permissions). "+
				"rollcall doctor, with that user, names each that is missing.")
			require.Contains(t, shown, "two: the file of REDIS_PASSWORD_FILE cannot be used: the file is empty. ")
		}
		one.tells(t, `200 /page/instance?id=two ~ Now alive .*What it holds No entry names it\.`)
	})
}

func TestTwoProgramsInOneFleetAreRefused(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		keys := guard.Layout{Prefix: w.Prefix}
		one := serving(t, w.Client, keys, "one")
		one.lives(t, "one")
		until(t, func() bool { return w.Client.Exists(t.Context(), keys.About("one")).Val() == 1 })
		for program, refused := range map[string]bool{"another": true, "janitor": false} {
			h, err := ListenHTTP(t.Context(), HTTPConfig{
				Addr: "127.0.0.1:0", Program: program, Client: w.Client, Layout: keys, Page: ownPage, Janitor: &fake{},
				Status:  func() Stated { return stated{Status: Status{Instance: program}} },
				Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			if !refused {
				time.AfterFunc(time.Second, stop)
			}
			err = h.Run(ctx)
			stop()
			require.Equal(t, refused, err != nil)
			if refused {
				require.ErrorContains(t, err, "one, which runs bench, is in this fleet")
			}
		}
	})
}

func TestTheLeaderWritesHowLargeTheFleetIsAndThatItShrankIsFound(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		keys := guard.Layout{Prefix: w.Prefix}
		serving(t, w.Client, keys, "idle")
		s := serving(t, w.Client, keys, "one", func(s *stated) { s.Janitor.Leading = true })
		for _, id := range []string{"one", "two"} {
			s.lives(t, id)
		}
		var entries []any
		for i := range 60 {
			entries = append(entries, strconv.Itoa(i), "one")
		}
		require.NoError(t, w.Client.HSet(t.Context(), keys.Registry(), entries...).Err())
		until(t, func() bool { return w.Client.XLen(t.Context(), keys.Minutes()).Val() > 0 })
		require.EqualValues(t, 1, w.Client.XLen(t.Context(), keys.Minutes()).Val(), "only the leader counts")
		require.NoError(t, w.Client.Del(t.Context(), keys.Registry(), keys.Heartbeat("two")).Err())
		require.NoError(t, w.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: keys.Minutes(),
			Values: []any{"entries", 0, "living", 1}}).Err())
		require.NoError(t, w.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: keys.Minutes(),
			Values: []any{"entries", 0, "living", 1}}).Err())
		fresh := serving(t, w.Client, keys, "fresh")
		var got fleetStatus
		require.Equal(t, 200, fresh.get(t, "/api/v1/fleet", &got))
		says := map[string]string{}
		for _, f := range got.Problems {
			says[f.Name] = f.Sentence
		}
		require.Contains(t, says["entries:fell"], "The registry fell from 60 to 0 entries within the last 10m")
		require.Equal(t, "1 of the 2 replicas of the last hour live.", says["replicas"])
	})
}

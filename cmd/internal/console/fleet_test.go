package console

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
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
	var err error
	s.HTTP, err = ListenHTTP(t.Context(), HTTPConfig{
		Addr: "127.0.0.1:0", Program: "bench", Client: client, Layout: keys,
		Status: func() Stated { return *s.status }, Page: ownPage, Janitor: &fake{},
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	s.base = "http://" + s.Addr()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		http.DefaultClient.CloseIdleConnections()
	})
	return s
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

// stream reads the server-sent events of a replica.
type stream struct {
	t    *testing.T
	text *bufio.Scanner
	stop context.CancelFunc
}

func (s *served) watch(t *testing.T) *stream {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/api/v1/events", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { stop(); _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	text := bufio.NewScanner(res.Body)
	text.Buffer(nil, 16<<20)
	return &stream{t: t, text: text, stop: stop}
}

// next decodes the next event of this name into to.
func (s *stream) next(name string, to any) {
	s.t.Helper()
	met := ""
	for s.text.Scan() {
		line := s.text.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			met = n
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && met == name {
			require.NoError(s.t, json.Unmarshal([]byte(data), to), data)
			return
		}
	}
	require.Fail(s.t, "the stream has ended", "%v", s.text.Err())
}

func TestEveryReplicaShowsTheWholeFleetWithVersionsAndAddresses(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		keys := guard.Layout{Prefix: w.Prefix}
		one, two := serving(t, w.Client, keys, "one"), serving(t, w.Client, keys, "two")
		one.lives(t, "one")
		one.lives(t, "two")
		one.lives(t, "three") // says nothing of itself
		require.Eventually(t, func() bool {
			n, err := w.Client.Exists(t.Context(), keys.About("one"), keys.About("two")).Result()
			return err == nil && n == 2
		}, 30*time.Second, 10*time.Millisecond)
		for _, s := range []*served{one, two} {
			var got fleetStatus
			require.Equal(t, 200, s.get(t, "/api/v1/fleet", &got))
			require.True(t, got.Whole)
			require.Equal(t, self{Instance: s.status.Instance, Program: "bench", Version: "v1.2.3",
				Address: s.Addr()}, got.Replica)
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
		}
	})
}

func TestAViewerIsToldTheWholeFleetAndThenWhatChanges(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		s := serving(t, w.Client, guard.Layout{Prefix: w.Prefix}, "one")
		s.lives(t, "two")
		s.lives(t, "three")
		v := s.watch(t)
		var first, then fleetStatus
		v.next("fleet", &first)
		require.True(t, first.Whole)
		require.Len(t, first.Instances, 2)

		require.NoError(t, s.client.SRem(t.Context(), s.keys.Roster(), "two").Err())
		v.next("fleet", &then)
		require.False(t, then.Whole)
		require.Empty(t, then.Instances)
		require.Equal(t, []string{"two"}, then.Gone)

		require.NoError(t, s.client.XAdd(t.Context(), &redis.XAddArgs{
			Stream: s.keys.Log(), ID: "1795365278835652-0", Values: []any{"leader", "one", "term", "one/x"},
		}).Err())
		require.NoError(t, s.client.Del(t.Context(), s.keys.Heartbeat("three")).Err())
		then = fleetStatus{}
		v.next("fleet", &then)
		require.Len(t, then.Instances, 1)
		require.False(t, then.Instances[0].Alive)
	})
}

func TestAStreamEndsWithTheServer(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		var v *stream
		t.Run("served", func(t *testing.T) {
			s := serving(t, w.Client, guard.Layout{Prefix: w.Prefix}, "one")
			ctx := context.WithoutCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/api/v1/events", nil)
			require.NoError(t, err)
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			v = &stream{t: t, text: bufio.NewScanner(res.Body), stop: func() { _ = res.Body.Close() }}
			v.next("fleet", &fleetStatus{})
		})
		defer v.stop()
		for v.text.Scan() {
		}
		require.ErrorIs(t, orEOF(v.text.Err()), io.EOF)
	})
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

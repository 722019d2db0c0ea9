package registry_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

const patience = 30 * time.Second

// runsWith runs a registry with these two clients until it or the test ends.
func runsWith(t *testing.T, data, control *redis.Options) (*registry.Registry, <-chan error) {
	t.Helper()
	return runsAndLogs(t, slog.New(slog.DiscardHandler), data, control)
}

func runsAndLogs(
	t *testing.T, log *slog.Logger, data, control *redis.Options,
) (*registry.Registry, <-chan error) {
	t.Helper()
	client, ctl := redis.NewClient(data), redis.NewClient(lease.Options(control))
	r, err := registry.New(registry.Config{
		Client: client, Control: ctl, Logger: log,
		HeartbeatInterval: time.Second, HeartbeatTTL: 3 * time.Second, Drain: time.Millisecond,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(gone)
		ended <- r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
		require.NoError(t, client.Close())
		require.NoError(t, ctl.Close())
	})
	return r, ended
}

func TestClientsAtDifferentPlacesAreNamedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	here, elsewhere := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+here.Addr()[len("127.0.0.1:"):])
	database := here.Options()
	database.DB = 1
	for name, data := range map[string]*redis.Options{
		"two servers": elsewhere.Options(), "two databases": database, "a replica": replica.Options(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log process.Buffer
			r, ended := runsAndLogs(t, slog.New(slog.NewTextHandler(&log, nil)), data, here.Options())
			r.Register("imei-1", nobody)
			<-r.Started()
			require.Eventually(t, func() bool {
				st := r.Status()
				return strings.Contains(st.Failing["heartbeat"], "READONLY") && strings.Contains(st.Refused, "READONLY")
			}, patience, time.Millisecond, "it is not ready, and says why")
			require.Empty(t, ended)
			refuses := func() int { return strings.Count(log.String(), "Redis refuses this replica") }
			require.Eventually(t, func() bool { return refuses() > 0 }, patience, time.Millisecond)
			require.Equal(t, 1, refuses())
			if name != "a replica" { // which may say READONLY itself
				require.Contains(t, log.String(), "Client and Control are not at the same primary and database")
			}
			other := redis.NewClient(data)
			defer other.Close()
			require.Zero(t, other.Exists(t.Context(), r.Layout().Registry()).Val(), "nothing was written at the wrong place")
			require.True(t, r.Status().LastBeat.IsZero())
		})
	}
}

type proto string

func (p proto) Error() string { return string(p) }

// RedisError implements redis.Error.
func (p proto) RedisError() {}

// A former primary that nobody demoted still takes writes. Some connections stayed there.
func TestConnectionsThatStayedAtAFormerPrimaryAreDialedAnew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ demoted, client bool }{
		"Client's, and it takes writes": {client: true}, "Control's, and it takes writes": {},
		"Client's, and it takes none": {client: true, demoted: true}, "Control's, and it takes none": {demoted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, was := t.Context(), redistest.Start(t, "--repl-diskless-sync-delay", "0")
			next := redistest.Start(t, "--replicaof", "127.0.0.1 "+was.Addr()[len("127.0.0.1:"):])
			var primary atomic.Pointer[string]
			at, there := was.Addr(), next.Addr()
			primary.Store(&at)
			var data, control links
			dials := func(kept *links) *redis.Options {
				o := was.Options()
				o.Dialer = kept.dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, *primary.Load())
				})
				return o
			}
			r, _ := runsWith(t, dials(&data), dials(&control))
			for i := range 200 {
				require.NoError(t, r.Register(fmt.Sprint("imei-", i), nobody).Wait(ctx))
			}
			k, a, b := r.Layout(), was.Client(), next.Client()
			seen := r.Newest()
			require.Eventually(t, func() bool { return r.Newest() > seen }, patience, time.Millisecond)
			require.Eventually(t, func() bool { return b.HLen(ctx, k.Registry()).Val() == 200 }, patience, time.Millisecond)
			require.NoError(t, b.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
			if c.demoted {
				require.NoError(t, a.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err()) // it does not reach the new one yet
			}
			require.NoError(t, b.HDel(ctx, k.Registry(), "imei-7", "imei-77").Err()) // had not been replicated
			primary.Store(&there)
			if c.client {
				control.cut(true)
				control.cut(false)
			} else {
				data.cut(true)
				data.cut(false)
			}
			back := func() bool {
				return b.HExists(ctx, k.Registry(), "imei-7").Val() && b.HExists(ctx, k.Registry(), "imei-77").Val()
			}
			for !back() { // writes at the former primary do not hide what it lacks
				busy := r.Register("busy", nobody)
				require.NoError(t, busy.Wait(ctx))
				busy.Release()
			}
			require.NoError(t, r.Register("new", nobody).Wait(ctx))
			require.Eventually(t, func() bool {
				return b.HGet(ctx, k.Registry(), "new").Val() == r.Instance() && len(r.Status().Failing) == 0
			}, patience, time.Millisecond)
			listens(t, b, k.Heartbeat(r.Instance()))
		})
	}
}

// listens waits until somebody hears what is published at a server.
func listens(t *testing.T, at *redis.Client, channel string) {
	t.Helper()
	require.Eventually(t, func() bool { return at.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 },
		patience, time.Millisecond, "it listens there")
}

// An owner that does not hear its own beats hears no questions either. It says so, and subscribes
// anew, although its connection lives and answers pings.
func TestAnOwnerThatDoesNotHearItselfSubscribesAnew(t *testing.T) {
	t.Parallel()
	ctx, srv := t.Context(), redistest.Start(t)
	admin := srv.Client()
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "o", "on", "nopass", "~*", "+@all", "&*").Err())
	opt := srv.Options()
	opt.Username, opt.Password = "o", "x"
	var listener atomic.Pointer[conn]
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &conn{Conn: dialed, listener: &listener}, err
	}
	r, _ := runsWith(t, opt, opt)
	channel := r.Layout().Heartbeat(r.Instance())
	eventually := func(cond func() bool, what string) {
		t.Helper()
		require.Eventually(t, cond, patience, time.Millisecond, what)
	}
	do := func(args ...any) { t.Helper(); require.NoError(t, admin.Do(ctx, args...).Err()) }
	for name, fail := range map[string]func(){
		"the server ends the connection": func() { do("CLIENT", "KILL", "TYPE", "pubsub") },
		"the server pauses":              func() { do("CLIENT", "PAUSE", "1500", "ALL") },
		"messages do not arrive": func() {
			listener.Load().deaf.Store(true)
			eventually(func() bool { return r.Status().Failing["listen"] != "" }, "it notices")
		},
		"the user may not subscribe": func() {
			do("ACL", "SETUSER", "o", "-subscribe")
			do("CLIENT", "KILL", "TYPE", "pubsub")
			eventually(func() bool { return r.Status().Failing["listen"] != "" }, "it notices")
			do("ACL", "SETUSER", "o", "+subscribe")
		},
		"the user may not use the channel": func() {
			do("ACL", "SETUSER", "o", "resetchannels", "&other")
			eventually(func() bool { return admin.PubSubNumSub(ctx, channel).Val()[channel] == 0 }, "it may not")
			do("ACL", "SETUSER", "o", "&*")
		},
	} {
		listens(t, admin, channel)
		fail()
		listens(t, admin, channel)
		eventually(func() bool { return len(r.Status().Failing) == 0 }, name)
	}
}

// conn is a connection on which messages may not arrive.
type conn struct {
	net.Conn
	listener *atomic.Pointer[conn]
	deaf     atomic.Bool
}

func (c *conn) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "\r\nsubscribe\r\n") {
		c.listener.Store(c)
	}
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.deaf.Load() || !strings.Contains(string(p[:n]), "\r\nmessage\r\n") {
			return n, err
		}
	}
}

// Channels have no database. Two fleets in two databases have the same instances and ids.
func TestFleetsInTwoDatabasesDoNotHearEachOther(t *testing.T) {
	t.Parallel()
	srv, ctx := redistest.Start(t), t.Context()
	second := srv.Options()
	second.DB = 2
	r, _ := runsWith(t, second, second)
	require.NoError(t, r.Register("x", nobody).Wait(ctx))
	k := r.Layout()
	sub := srv.Client().PSubscribe(ctx, "*")
	defer sub.Close()
	_, err := sub.Receive(ctx)
	require.NoError(t, err)
	admin := redis.NewClient(second)
	defer admin.Close()
	require.NoError(t, admin.HSet(ctx, k.Registry(), "y", "r2", "z", "r3").Err())
	require.NoError(t, r.Register("y", nobody).Wait(ctx)) // r2 is told
	require.NoError(t, admin.HSet(ctx, k.Registry(), "x", "r2").Err())
	for want := map[string]bool{"db2:" + k.Heartbeat("r2"): true}; len(want) > 0; {
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(m.Channel, "db2:"), m.Channel)
		if strings.HasPrefix(m.Payload, "/") || len(want) > 0 && m.Payload == "y" {
			delete(want, m.Channel)
		}
	}
}

package registry_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// runsWith runs a registry with these two clients until it or the test ends.
func runsWith(t *testing.T, data, control *redis.Options, change ...func(*redis.Client)) (*registry.Registry, <-chan error) {
	t.Helper()
	return runsAndLogs(t, slog.New(slog.DiscardHandler), data, control, change...)
}

func runsAndLogs(
	t *testing.T, log *slog.Logger, data, control *redis.Options, change ...func(*redis.Client),
) (*registry.Registry, <-chan error) {
	t.Helper()
	client, ctl := redis.NewClient(data), redis.NewClient(lease.Options(control))
	for _, c := range change {
		c(client)
	}
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

func TestClientsAtDifferentPlacesEndRun(t *testing.T) {
	t.Parallel()
	here, elsewhere := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	host, port := "127.0.0.1", here.Addr()[len("127.0.0.1:"):]
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	require.NoError(t, here.Client().Set(t.Context(), "replicated", 1, 0).Err())
	require.Eventually(t, func() bool { return replica.Client().Exists(t.Context(), "replicated").Val() == 1 }, 30*time.Second, 5*time.Millisecond)
	database := here.Options()
	database.DB = 1

	for name, c := range map[string]struct {
		data *redis.Options
		says string
	}{
		"two servers":   {elsewhere.Options(), "does not see the heartbeat"},
		"two databases": {database, "does not see the heartbeat"},
		"a replica":     {replica.Options(), "at a replica"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer // read after Run has ended
			r, ended := runsAndLogs(t, slog.New(slog.NewTextHandler(&log, nil)), c.data, here.Options())
			r.Register("imei-1")
			select {
			case err := <-ended:
				require.ErrorIs(t, err, registry.ErrClientsDiffer)
				require.ErrorContains(t, err, c.says)
			case <-time.After(30 * time.Second):
				require.FailNow(t, "Run goes on")
			}
			require.Contains(t, log.String(), "fix the options of one of them")
			require.NotContains(t, log.String(), "Redis refuses this replica")
			other := redis.NewClient(c.data)
			defer other.Close()
			require.Zero(t, other.Exists(t.Context(), r.Layout().Registry()).Val(), "nothing was written at the wrong place")
			require.True(t, r.Status().LastBeat.IsZero())
		})
	}
}

type levels struct {
	slog.Handler
	mu    sync.Mutex
	count map[slog.Level]int
}

func (l *levels) Enabled(context.Context, slog.Level) bool { return true }
func (l *levels) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[r.Level]++
	return nil
}

var noRights = proto("NOPERM this user has no permissions")

func TestWhatEveryOperationFailsOfIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		errs        []error // in sequence
		warn, error int
	}{
		"no answer":                {[]error{errLost}, 1, 0},
		"a refusal":                {[]error{noRights}, 0, 1},
		"for a time":               {[]error{proto("NOREPLICAS Not enough good replicas to write.")}, 1, 0},
		"no answer, and a refusal": {[]error{errLost, noRights}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				told := &levels{count: map[slog.Level]int{}}
				r := w.start("r1", func(c *registry.Config) { c.Logger = slog.New(told) })
				released := r.register(t, "imei-1")
				for i, err := range c.errs {
					refuse := func(redis.Cmder) error { return err }
					r.data.set(refuse, nil)
					r.control.set(refuse, nil)
					if i == 0 {
						r.Register("imei-2")
						released.Release()
					}
					time.Sleep(time.Minute / time.Duration(len(c.errs))) // in total less than the heartbeat has left
				}
				require.Greater(t, len(r.Status().Failing), 1)
				require.Equal(t, c.error == 1, r.Status().Refused != "")
				r.data.set(nil, nil)
				r.control.set(nil, nil)
				time.Sleep(10 * time.Minute)
				require.Empty(t, r.Status().Failing)
				require.Empty(t, r.Status().Refused)
				told.mu.Lock()
				defer told.mu.Unlock()
				require.Equal(t, c.warn, told.count[slog.LevelWarn])
				require.Equal(t, c.error, told.count[slog.LevelError])
			})
		})
	}
}

type proto string

func (p proto) Error() string { return string(p) }

// RedisError implements redis.Error.
func (p proto) RedisError() {}

// calls is a hook that is called before each script.
type calls struct {
	faults
	before func(ctx context.Context, script string) error
}

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			if err := c.before(ctx, fmt.Sprint(cmd.Args()[3])); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

// A change of the heartbeat between write and check must not end Run, nor must a Client that
// catches up.
func TestAHeartbeatThatIsLostBetweenTheTwoClientsIsWrittenAgain(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		own := redistest.Start(t)
		o := own.Options()
		if !w.Real {
			o = w.Options
		}
		admin := redis.NewClient(o)
		defer admin.Close()
		lost := 0
		hook := &calls{before: func(ctx context.Context, key string) error {
			if lost++; lost > 15 {
				return nil
			}
			return admin.Del(ctx, key).Err()
		}}
		r, ended := runsWith(t, o, o, func(c *redis.Client) { c.AddHook(hook) })
		require.NoError(t, r.Register("imei-1").Wait(t.Context()))
		require.Equal(t, r.Instance(), admin.HGet(t.Context(), r.Layout().Registry(), "imei-1").Val())
		require.Greater(t, lost, 15)
		require.Empty(t, ended)
	})
}

func TestTheNewerOfTwoBootsIsNoOtherPlace(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	hook := &calls{before: func(ctx context.Context, key string) error {
		later := fmt.Sprintf("1/%d0000000000", time.Now().Add(time.Hour).UnixMicro())
		return admin.Set(ctx, key, later, time.Minute).Err()
	}}
	_, ended := runsWith(t, server.Options(), server.Options(), func(c *redis.Client) { c.AddHook(hook) })
	select {
	case err := <-ended:
		require.ErrorIs(t, err, registry.ErrSuperseded)
	case <-time.After(30 * time.Second):
		require.FailNow(t, "Run goes on")
	}
}

// If Control cannot read it, either Client is at the wrong place or the heartbeat was lost: nobody
// knows which.
func TestNothingIsConcludedFromAHeartbeatThatControlCannotRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		database := *w.options
		database.DB = 1
		other := redis.NewClient(lease.Options(&database))
		defer other.Close()
		var control faults
		control.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "get" {
				return errLost
			}
			return nil
		}, nil)
		r := w.start("r1", func(c *registry.Config) {
			c.Client = other
			c.Control.(*redis.Client).AddHook(&control)
		})
		r.Register("imei-1")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Empty(t, r.ended, "it may be the heartbeat that was lost")
		require.Empty(t, r.Status().Boot, "it may be Client that is at the wrong place")
		require.Zero(t, other.DBSize(t.Context()).Val())

		control.set(nil, nil)
		require.ErrorIs(t, r.wait(), registry.ErrClientsDiffer)
	})
}

// The name of the primary leads to the new one now. The connections for beats met READONLY and were
// replaced, and one for reads was not.
func TestWhatAFormerPrimaryRemembersIsNoEvidence(t *testing.T) {
	t.Parallel()
	ctx, was := t.Context(), redistest.Start(t, "--repl-diskless-sync-delay", "0")
	next := redistest.Start(t, "--replicaof", "127.0.0.1 "+was.Addr()[len("127.0.0.1:"):])
	var primary atomic.Pointer[string]
	at := was.Addr()
	primary.Store(&at)
	byName := was.Options()
	byName.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, *primary.Load())
	}
	r, _ := runsWith(t, byName, byName)
	var claims []*registry.Claim
	for i := range 200 {
		claims = append(claims, r.Register(fmt.Sprint("imei-", i)))
	}
	for _, c := range claims {
		require.NoError(t, c.Wait(ctx))
	}
	k, a, b := r.Layout(), was.Client(), next.Client()
	require.Eventually(t, func() bool { return b.HLen(ctx, k.Registry()).Val() == 200 }, 30*time.Second, time.Millisecond)
	require.NoError(t, b.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	require.NoError(t, a.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err()) // it does not reach the new one yet
	id := r.Status().Instance
	require.NoError(t, b.HDel(ctx, k.Registry(), "imei-7", "imei-77").Err()) // had not been replicated
	require.NoError(t, b.Del(ctx, k.Heartbeat(id)).Err())
	there := next.Addr()
	primary.Store(&there)
	require.Eventually(t, func() bool { return b.HLen(ctx, k.Registry()).Val() == 200 }, 30*time.Second, 5*time.Millisecond)
}

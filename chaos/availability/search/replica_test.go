package search

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/internal/replies"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	tick  = 50 * time.Millisecond
	never = 1000 * time.Hour
	// beatsMirrored is both: how often heartbeats are copied to the source, which is more seldom than
	// an episode lasts, and how old the source's heartbeats may get.
	beatsMirrored = time.Minute
	// sweptEvery is longer than an episode lasts as well.
	sweptEvery = 10 * time.Minute
	leaseTTL   = time.Second
	beatEvery  = 200 * time.Millisecond // of the janitors: one whose beat is lost does not sweep
	// mostReply bounds replies (bytes), as in the program: a larger one ends the connection.
	mostReply = 1 << 20
	// roomy is a pool that nobody waits for, and that never thinks that the server is gone for good.
	roomy = 200
)

// replica is one process that serves: a mirror, and a janitor that may lead.
type replica struct {
	*availability.Mirror
	name string
	line *line
	jan  *janitor.Janitor
	stop func()
}

// source is a replica's PostgreSQL, whose commit of an auto-offline may take its time.
type source struct {
	*postgres.Source
	w *world
}

func (s source) AutoOffline(
	ctx context.Context, those []availability.Versioned, cutoff time.Time, confirm func() error,
) ([]availability.State, []string, error) {
	return s.Source.AutoOffline(ctx, those, cutoff, func() error {
		err := confirm()
		if during := s.w.during.Swap(nil); during != nil && err == nil {
			(*during)()
		}
		return err
	})
}

// start starts a replica, which joins the others.
func (w *world) start(name string) *replica {
	r := &replica{name: name, line: &line{skew: w.redisAhead, shas: map[string]string{}}}
	url := fmt.Sprintf("%s&pool_max_conns=6&search_path=public,pg_catalog&search.skew=%dms",
		w.pg.URL(present), w.sourceAhead.Milliseconds())
	opened, err := postgres.Open(context.Background(), url, postgres.Timeout(time.Second/2))
	require.NoError(w.t, err)
	data, control := w.client(r.line, false), w.client(r.line, true)
	log := slog.New(slog.DiscardHandler)
	r.Mirror, err = availability.New(availability.Config{
		Source: source{opened, w}, Client: data, Control: control, Logger: log, Tick: tick,
		ReconcileInterval: never, OfflineInterval: sweptEvery, HeartbeatInterval: beatsMirrored,
	})
	require.NoError(w.t, err)
	w.lives++
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: fmt.Sprint(name, w.lives), Logger: log,
		HeartbeatInterval: beatEvery, HeartbeatTTL: 30 * beatEvery,
	})
	require.NoError(w.t, err)
	r.jan, err = janitor.New(janitor.Config{
		Client: data, Control: control, Registry: reg, Sweeps: r.Sweeps(), Logger: log, RedisShare: 1,
		LeaseTTL: leaseTTL,
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	work := pool.New().WithContext(ctx)
	for what, run := range map[string]func(context.Context) error{"registry": reg.Run, "mirror": r.Run, "janitor": r.jan.Run} {
		work.Go(func(ctx context.Context) error {
			if err := run(ctx); ctx.Err() == nil {
				w.say("    the %s of %s ended by itself: %v", what, name, err)
			}
			return nil
		})
	}
	r.stop = sync.OnceFunc(func() {
		cancel()
		_ = work.Wait()
		_, _ = data.Close(), control.Close()
		opened.Close()
	})
	return r
}

func (w *world) client(l *line, control bool) *redis.Client {
	o := w.redis.Options()
	o.Protocol, o.DisableIdentity, o.ConnMaxIdleTime = 2, true, -1
	if control {
		const most = beatEvery * 3 / 4
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = most, most, most, most
		o = lease.Options(o)
	}
	o.Dialer, o.DialerRetries, o.PoolSize, o.PipelinePoolSize = replies.Bounding(l.dial, mostReply), 1, roomy, -1
	c := redis.NewClient(o)
	c.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		for _, cmd := range cmds {
			l.rewrite(cmd)
		}
		return send()
	}))
	return c
}

// pass asks the leader for one pass of a sweep; no report: nobody leads, or it did not end in time.
func (w *world) pass(sweep string) (janitor.Report, bool) {
	for _, r := range w.replicas {
		if !r.jan.Leading() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		reports, err := r.jan.Sweep(ctx, janitor.Request{Sweep: sweep})
		cancel()
		if err == nil && len(reports) == 1 {
			w.say("  %s at %s: %s %s %s, %d evicted", sweep, r.name, reports[0].Outcome, reports[0].Reason,
				reports[0].Error, reports[0].Evicted)
			return reports[0], true
		}
		w.say("  %s at %s: %v", sweep, r.name, err)
	}
	return janitor.Report{}, false
}

var errCut = errors.New("search: the way to Redis is cut")

// line is the way from one replica to Redis. It may be cut. Scripts that go along it see a clock
// that is ahead of the server's.
type line struct {
	skew time.Duration
	cut  atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
	shas  map[string]string // of scripts, and of those that are sent in their place
}

// shim is put before each script.
const shim = `
local real = redis
local function ahead(call)
  return function(name, ...)
    local reply = call(name, ...)
    if string.upper(name) == 'TIME' and type(reply) == 'table' and not reply.err then
      local ms = tonumber(reply[1]) * 1000 + math.floor(tonumber(reply[2]) / 1000) + (%d)
      return { string.format('%%.0f', math.floor(ms / 1000)), string.format('%%.0f', ms %% 1000 * 1000) }
    end
    return reply
  end
end
local redis = setmetatable({ call = ahead(redis.call), pcall = ahead(redis.pcall) }, { __index = real })
`

// sever cuts the line, and ends its connections.
func (l *line) sever() {
	l.cut.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if l.cut.Load() {
		return nil, errCut
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut.Load() {
		_ = c.Close()
		return nil, errCut
	}
	l.conns = append(l.conns, c)
	return c, nil
}

// rewrite puts the shim before a script.
func (l *line) rewrite(cmd redis.Cmder) {
	if l.skew == 0 {
		return
	}
	args := cmd.Args()
	sum := func(text string) string { s := sha1.Sum([]byte(text)); return hex.EncodeToString(s[:]) }
	l.mu.Lock()
	defer l.mu.Unlock()
	switch strings.ToLower(cmd.Name()) {
	case "eval", "eval_ro":
		text, own := args[1].(string), fmt.Sprintf(shim, l.skew.Milliseconds())
		if !strings.HasPrefix(text, own) {
			l.shas[sum(text)] = sum(own + text)
			args[1] = own + text
		}
	case "evalsha", "evalsha_ro":
		if is, known := l.shas[args[1].(string)]; known {
			args[1] = is
		}
	}
}

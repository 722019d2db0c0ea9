package availability

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/replies"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestMain(m *testing.M) {
	logging.Disable() // what go-redis would print while a server is away
	pgtest.Main(m)
}

// rig is a mirror of a fake source on a test's own keys.
type rig struct {
	*require.Assertions
	t *testing.T
	*Mirror
	source *fake
	client *redis.Client   // of the test
	ctx    context.Context // of the test
	world  redistest.World
}

// another is a mirror of the same keys.
func (r *rig) another(source *fake) *rig {
	r.t.Helper()
	return newRig(r.t, r.world, source)
}

// onEmpty runs a test of a mirror that nobody has seeded, on the shared server.
func onEmpty(t *testing.T, source *fake, test func(r *rig), change ...func(*Config)) {
	t.Helper()
	redistest.OnReal(t, func(t *testing.T, w redistest.World) { test(newRig(t, w, source, change...)) })
}

// onWhole runs a test of a mirror that is whole.
func onWhole(t *testing.T, source *fake, test func(r *rig), change ...func(*Config)) {
	t.Helper()
	onEmpty(t, source, func(r *rig) {
		r.seeded()
		test(r)
	}, change...)
}

// did requires that a call went well.
func (r *rig) did(_ any, err error) {
	r.t.Helper()
	r.NoError(err)
}

// fine returns an answer that no error came with.
func fine[A any](r *rig, answer func(context.Context) (A, error)) A {
	r.t.Helper()
	a, err := answer(r.ctx)
	r.NoError(err)
	return a
}

func (r *rig) counted() Answer[int]        { return fine(r, r.CountOnline) }
func (r *rig) snapshots() Answer[Snapshot] { return fine(r, r.Snapshot) }

func (r *rig) found(limit int) Answer[[]Available] {
	r.t.Helper()
	return fine(r, func(ctx context.Context) (Answer[[]Available], error) { return r.FindAvailable(ctx, limit) })
}

func (r *rig) states(id string) Answer[MitraStatus] {
	r.t.Helper()
	return fine(r, func(ctx context.Context) (Answer[MitraStatus], error) { return r.Status(ctx, id) })
}

// beats sends a heartbeat, which gets this answer.
func (r *rig) beats(id string, want Beat) {
	r.t.Helper()
	before := r.client.Get(r.ctx, r.keys.heartbeat(id)).Val()
	beat, err := r.Heartbeat(r.ctx, id)
	r.NoError(err)
	r.Equal(want, beat)
	if beat == BeatDeactivated || beat == BeatNotOnline {
		r.Equal(before, r.client.Get(r.ctx, r.keys.heartbeat(id)).Val(), "nothing is written")
	}
}

// mostReply is less than what some tests put into Redis, as programs take less than others may put
// there.
const mostReply = 1 << 20

func newRig(t *testing.T, w redistest.World, source *fake, change ...func(*Config)) *rig {
	t.Helper()
	open := func(o *redis.Options) *redis.Client {
		patient := *o // miniredis with the race detector takes its time
		patient.ReadTimeout = time.Minute
		dial := replies.Bounding((&net.Dialer{Timeout: time.Minute}).DialContext, mostReply)
		if patient.Dialer != nil {
			dial = replies.Bounding(patient.Dialer, mostReply)
		}
		patient.Dialer = dial
		c := redis.NewClient(&patient)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := Config{
		Source: source, Client: open(w.Options), Control: open(controlOptions(w.Options)),
		Layout: guard.Layout{Prefix: w.Prefix}, Tick: 10 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	for _, f := range change {
		f(&c)
	}
	m, err := New(c)
	require.NoError(t, err)
	m.patience, m.clocks.compared = time.Minute, true // for parts that run without the feed
	return &rig{require.New(t), t, m, source, w.Client, t.Context(), w}
}

// controlOptions are those of lease, with as many connections as a test asks for.
func controlOptions(o *redis.Options) *redis.Options {
	c := lease.Options(o)
	c.PoolSize = max(c.PoolSize, o.PoolSize)
	return c
}

// redis runs a command of the test's own.
func (r *rig) redis(command ...any) {
	r.t.Helper()
	r.NoError(r.client.Do(r.ctx, command...).Err())
}

// before has each command of the mirror meet a function, whose error answers it.
func (r *rig) before(f func(cmd redis.Cmder) error) {
	r.rdb.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		for _, cmd := range cmds {
			if err := f(cmd); err != nil {
				return redistest.Fail(cmds, err)
			}
		}
		return send()
	}))
}

// run runs the mirror until the test ends, or stop is called, and returns when it is whole.
func (r *rig) run() (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	work := pool.New().WithContext(ctx)
	work.Go(r.Run)
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			r.NoError(work.Wait())
		}
	}
	r.t.Cleanup(stop)
	select {
	case <-r.Ready():
	case <-time.After(time.Minute):
		r.Fail("the mirror does not become whole", r.Health().FeedError)
	}
	return stop
}

// seeded seeds once, without anything that runs.
func (r *rig) seeded() {
	r.t.Helper()
	r.NoError(r.seed(r.ctx))
}

func (r *rig) seed(ctx context.Context) error { return seed(ctx, r.Mirror) }

// seed feeds once, as soon as nobody else does.
func seed(ctx context.Context, m *Mirror) error {
	f := newFeed(m)
	for !f.feeding {
		if err := f.tell(ctx, take, time.Time{}); err != nil {
			return err
		}
	}
	defer f.leave(ctx)
	return f.seed(ctx)
}

func (r *rig) mended() { r.source.mended() }

func (r *rig) eventually(f func() bool, what string) {
	r.t.Helper()
	waittest.Until(r.t, 5*time.Millisecond, f, what)
}

// looked returns when the feed has brought all that the source has now, and knows that Redis has a
// newer mark. One read may be under way, and answers of before may be: neither counts.
func (r *rig) looked() {
	r.t.Helper()
	before := r.source.asked("Feed")
	r.eventually(func() bool { return r.source.asked("Feed") >= before+2 }, "the feed looks")
}

// later returns when the server's clock, as heartbeats have it, has gone on from a moment.
func (r *rig) later(at time.Time) {
	r.t.Helper()
	r.eventually(func() bool { return formatSeen(r.client.Time(r.ctx).Val()) > formatSeen(at) }, "time goes on")
}

// mirrored is what Redis has of a mitra, as a State.
func (r *rig) mirrored(id string) State {
	r.t.Helper()
	ctx, k := r.ctx, r.keys
	var (
		on, off *redis.BoolCmd
		n, at   *redis.StringCmd
		version *redis.StringCmd
	)
	_, err := r.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		on, off = p.SIsMember(ctx, k.online(), id), p.SIsMember(ctx, k.deactivated(), id)
		n, at, version = p.Get(ctx, k.capacity(id)), p.Get(ctx, k.heartbeat(id)), p.HGet(ctx, k.version(), id)
		return nil
	})
	if err != redis.Nil { //nolint:errorlint // of a pipeline
		r.NoError(err)
	}
	v, _ := version.Int64()
	sessions, _ := n.Int()
	return State{ID: id, Version: v, Online: on.Val(), Active: !off.Val(), Sessions: sessions, Seen: parseSeen(at.Val())}
}

// same requires that Redis has exactly what the source has, and nothing of anybody else.
func (r *rig) same() {
	r.t.Helper()
	r.Empty(r.differences())
}

func (r *rig) differences() (found []string) {
	r.source.mu.Lock()
	rows := map[string]State{}
	for id, row := range r.source.rows {
		rows[id] = row.State
	}
	r.source.mu.Unlock()
	ctx := context.Background()
	for id, want := range rows {
		got := r.mirrored(id)
		if want.Online && got.Seen.Before(want.Seen.Truncate(time.Millisecond)) {
			found = append(found, fmt.Sprintf("%s: heartbeat %s, source has %s", id, got.Seen, want.Seen))
		}
		if !want.Online && !got.Seen.IsZero() {
			found = append(found, id+": is offline, and has a heartbeat")
		}
		got.Seen, want.Seen, want.Judged, want.Online = time.Time{}, time.Time{}, time.Time{}, want.working()
		if got != want {
			found = append(found, fmt.Sprintf("%+v, source has %+v", got, want))
		}
	}
	for _, members := range [][]string{
		r.client.SMembers(ctx, r.keys.online()).Val(), r.client.SMembers(ctx, r.keys.deactivated()).Val(),
		r.client.HKeys(ctx, r.keys.version()).Val(),
	} {
		for _, id := range members {
			if _, known := rows[id]; !known {
				found = append(found, id+": unknown")
			}
		}
	}
	return found
}

func (r *rig) drift(kind string) int {
	return int(testutil.ToFloat64(r.metrics.drift.WithLabelValues(kind)))
}

func (r *rig) badKeys(key, became string) int {
	return int(testutil.ToFloat64(r.metrics.badKeys.WithLabelValues(key, became)))
}

// online is a state of somebody who is online and was just seen.
func online(id string) State {
	return State{ID: id, Version: 1, Online: true, Active: true, Seen: time.Now()}
}

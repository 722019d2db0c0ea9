package commands

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// queues adds a command to the queue. Further fields follow, and win.
func (b *bench) queues(id, imei, text string, more ...string) string {
	b.t.Helper()
	return b.addsTo(Queue(b.layout), id, imei, text, more...)
}

// settled waits until nothing waits or is being sent, and returns the outcomes by id. None has two.
func (b *bench) settled(n int) map[string]Outcome {
	b.t.Helper()
	of := make(map[string]Outcome)
	for _, o := range b.awaits(n) {
		require.NotContains(b.t, of, o.ID)
		of[o.ID] = o
	}
	pending, err := b.rdb.XPending(b.t.Context(), Queue(b.layout), group).Result()
	if !redis.HasErrorPrefix(err, "NOGROUP") { // nothing was sent
		require.NoError(b.t, err)
		require.Zero(b.t, pending.Count, "marks of commands that are gone")
	}
	return of
}

// on every make of server: they differ in what pending entries allow.
func eachMake(t *testing.T, f func(b *bench)) {
	for name, start := range redistest.Makes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(setup(t, start(t)))
		})
	}
}

func TestAQueuedCommandIsSentOnceWhereverItsDeviceConnects(t *testing.T) {
	t.Parallel()
	eachMake(t, func(b *bench) {
		a, two := b.instance("a"), b.instance("b")
		for i := range 3 {
			b.queues(fmt.Sprint("c", i), imei, fmt.Sprint(i), "codec", fmt.Sprint(12+i%2*2), "expires", in(time.Hour))
		}
		b.await(func() bool { return a.reader.Waiting() == 3 && two.reader.Waiting() == 3 })
		require.Empty(b.t, b.outcomes())
		d := two.connects(imei)
		d.obeys()
		for i, o := range b.awaits(3, "a", "b") {
			require.Equal(b.t, Outcome{fmt.Sprint("c", i), imei, "b", Answered, fmt.Sprint("did ", i)}, o)
		}
		require.Equal(b.t, []string{"0", "1", "2"}, d.heard())
		b.settled(3)
		b.await(func() bool { return two.counted("answered") == 3 && two.reader.Waiting() == 0 })

		b.queues("c3", imei, "3") // the device is connected already
		require.Equal(b.t, "did 3", b.settled(4)["c3"].Text)
	})
}

func TestADeviceThatLeavesBeforeACommandIsWrittenGetsItElsewhere(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(b *bench){
		"from the queue":    func(b *bench) { b.queues("c1", imei, "getver") },
		"from its instance": func(b *bench) { b.adds("x", "c1", imei, "getver", "queue", "true") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leavesBeforeItIsWritten(t, add)
		})
	}
}

func leavesBeforeItIsWritten(t *testing.T, add func(b *bench)) {
	b := setup(t, redistest.Shared(t))
	// Redis permits it, and the socket ends before the session writes it.
	left, permitted := make(chan struct{}), 0
	leaves := stub(func(ctx context.Context, c gateway.Command) ([]byte, error) {
		select {
		case <-left:
			return nil, fmt.Errorf("%w: no socket", gateway.ErrNotConnected)
		default:
		}
		if _, err := c.Permit(ctx); err == nil {
			permitted++
			close(left)
		}
		return nil, fmt.Errorf("%w: the socket ended before it could be sent", gateway.ErrNotConnected)
	})
	require.NoError(t, b.rdb.HSet(t.Context(), b.layout.Registry(), imei, "x").Err())
	x := &instance{bench: b, id: "x"}
	x.reads(func(c *Config) { c.Devices = ready{leaves} })
	add(b)
	<-left
	a := b.instance("a")
	d := a.connects(imei)
	d.obeys()
	require.Equal(t, Outcome{"c1", imei, "a", Answered, "did getver"}, b.settled(1)["c1"])
	require.Equal(t, []string{"getver"}, d.heard())
}

// ready is a stub whose devices take commands.
type ready struct{ stub }

func (ready) Ready(string) bool { return true }

func TestAHalfOpenSocketGetsNoQueuedCommand(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a, two := b.instance("a"), b.instance("b")
	stale := a.connects(imei)
	stale.obeys()
	d := two.connects(imei)
	d.obeys()
	for i := range 3 {
		b.queues(fmt.Sprint("c", i), imei, fmt.Sprint(i))
	}
	for _, o := range b.settled(3) {
		require.Equal(t, "b", o.Instance)
	}
	require.Empty(t, stale.heard())

	// Nor does one here, whose device has a newer one.
	newer := two.connects(imei)
	newer.obeys()
	b.queues("c3", imei, "3")
	require.Equal(t, Answered, b.settled(4)["c3"].Status)
	require.Equal(t, []string{"3"}, newer.heard())
}

// Commands are in the first partition, and most devices' entries in others.
func TestInPartitionsTooAHalfOpenSocketGetsNoCommand(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	const partitions = 4
	whole := registry.Layout{Prefix: "{" + b.layout.Prefix + "}:"}
	k := guard.PartitionOf(imei, partitions)
	require.NotZero(t, k)
	entries := whole.Partition(k, partitions).Registry()
	b.layout = whole.Partition(0, partitions)
	a := b.gate("a")
	a.reads(func(c *Config) {
		c.Lookup = func(ctx context.Context, imei string) (registry.Owner, error) {
			owner, err := b.rdb.HGet(ctx, entries, imei).Result()
			if errors.Is(err, redis.Nil) {
				return registry.Owner{}, registry.ErrNotRegistered
			}
			return registry.Owner{Instance: owner, Live: true}, err
		}
	})
	stale := a.connects(imei)
	stale.obeys()
	require.NoError(t, b.rdb.Del(t.Context(), b.layout.Registry()).Err()) // only this bench registers there
	require.NoError(t, b.rdb.HSet(t.Context(), entries, imei, "b").Err())
	b.adds("a", "c1", imei, "1")
	require.Equal(t, []Outcome{{"c1", imei, "a", NotConnected, "the registry names another instance: b"}}, b.awaits(1, "a"))
	require.Empty(t, stale.heard())

	require.NoError(t, b.rdb.HSet(t.Context(), entries, imei, "a").Err())
	b.adds("a", "c2", imei, "2")
	require.Equal(t, Answered, b.awaits(2, "a")[1].Status)
	require.NoError(t, b.rdb.Del(t.Context(), entries).Err()) // an absence condemns nothing
	b.adds("a", "c3", imei, "3")
	require.Equal(t, Answered, b.awaits(3, "a")[2].Status)
}

func TestACommandForADeviceThatIsNotAtItsInstanceMovesToTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a, two := b.instance("a"), b.instance("b")
	d := two.connects(imei)
	d.obeys()
	b.adds("b", "here", imei, "here", "queue", "true")
	b.adds("a", "moved", imei, "moved", "queue", "true", "codec", "14", "expires", in(time.Hour))
	b.adds("a", "not", imei, "not", "queue", "false")
	b.adds("a", "odd", imei, "odd", "queue", "1")
	b.awaits(4, "a", "b")
	got := b.settled(4)
	require.Equal(t, Outcome{"here", imei, "b", Answered, "did here"}, got["here"])
	require.Equal(t, Outcome{"moved", imei, "b", Answered, "did moved"}, got["moved"])
	require.Equal(t, NotConnected, got["not"].Status)
	require.Equal(t, Outcome{"odd", imei, "a", Invalid, "queue: want true or false"}, got["odd"])
	require.Equal(t, 1, a.counted("queued"))

	// One that the queue can never take has an outcome.
	queue := Queue(b.layout)
	require.NoError(t, b.rdb.Rename(t.Context(), queue, queue+"-aside").Err())
	require.NoError(t, b.rdb.Set(t.Context(), queue, "no stream", 0).Err())
	b.adds("a", "never", imei, "never", "queue", "true")
	b.await(func() bool { return len(b.outcomes()) == 5 })
	require.Equal(t, NotConnected, b.outcomes()[4].Status)
	require.Contains(t, b.outcomes()[4].Text, "no socket of the device is here; it cannot wait: WRONGTYPE")
	require.NoError(t, b.rdb.Rename(t.Context(), queue+"-aside", queue).Err())

	// An instance that stops moves what it has not sent.
	quiet := &tracker{Device: sim.New(other, patience), t: t}
	t.Cleanup(quiet.Close)
	quiet.joins(a) // without a frame
	b.adds("a", "stopped", other, "stopped", "queue", "true")
	b.await(func() bool { return a.reader.Outstanding() == 1 })
	quiet.joins(two)
	a.ends()
	quiet.reports()
	quiet.obeys()
	require.Equal(t, Outcome{"stopped", other, "b", Answered, "did stopped"}, b.settled(6)["stopped"])
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a, two := b.instance("a"), b.instance("b")
	pipe := b.rdb.Pipeline()
	add := func(n int, imei string) {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: Queue(b.layout), Values: []any{
			"id", fmt.Sprint("c", n), "imei", imei, "text", "x", "expires", in(time.Hour)}})
	}
	for n := range deviceMost + 1 {
		add(n, imei)
	}
	for n := range waitingMost - deviceMost + 10 {
		add(100+n, fmt.Sprintf("%015d", n))
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	b.await(func() bool { return a.reader.Waiting() == waitingMost && two.reader.Waiting() == waitingMost })
	b.await(func() bool { return len(b.outcomes()) >= 11 })
	require.Equal(t, int64(waitingMost), b.rdb.XLen(t.Context(), Queue(b.layout)).Val())
	for _, o := range b.outcomes() {
		require.Equal(t, Busy, o.Status)
		if o.IMEI == imei {
			require.Equal(t, "16 commands wait for the device already", o.Text)
			continue
		}
		require.Equal(t, "10000 commands wait for their devices already", o.Text)
	}
	require.Len(t, b.outcomes(), 11)
}

// A copy of the queue that is not up to date refuses nothing.
func TestNothingIsRefusedForWhatNoLongerWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.instance("a")
	for n := range deviceMost {
		b.queues(fmt.Sprint("c", n), imei, "x")
	}
	b.await(func() bool { return a.reader.Waiting() == deviceMost })
	require.NoError(t, b.rdb.XTrimMaxLen(t.Context(), Queue(b.layout), 1).Err())
	at := b.queues("new", imei, "x")
	e := entry{stream: Queue(b.layout), at: at, Command: Command{ID: "new", IMEI: imei}}
	added, err := a.reader.add(t.Context(), e, Busy, "busy")
	require.NoError(t, err)
	require.Equal(t, verdictWaits, added)
	require.Empty(t, b.outcomes())
}

package commands

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAStopLetsAnAnswerComeAndSendsNothingMore(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.gate("a")
	a.reads(func(c *Config) { c.Drain = patience })
	asked, reply := make(chan struct{}), make(chan struct{})
	d := a.connects(imei)
	d.answers(func(c sim.Command) []teltonika.Message {
		close(asked)
		<-reply
		return []teltonika.Message{d.Executes(c, "done")}
	})
	b.adds("a", "c1", imei, "first")
	b.adds("a", "c2", imei, "second")
	<-asked
	b.await(func() bool { return a.reader.Outstanding() == 2 })
	a.stop()
	close(reply)
	a.ends()
	got := b.awaits(2)
	require.Equal(t, Outcome{"c1", imei, "a", Answered, "done"}, got[0])
	require.Equal(t, Outcome{"c2", imei, "a", InstanceLost, "the instance stopped before it was sent"}, got[1])
	require.Zero(t, b.rdb.XLen(t.Context(), Outbound(b.layout, "a")).Val(), "nothing is left")
}

func TestAStopWaitsNoLongerThanItsDrain(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.instance("a")
	asked := make(chan struct{})
	a.connects(imei).answers(func(c sim.Command) []teltonika.Message { close(asked); return nil })
	b.adds("a", "c1", imei, "first")
	<-asked
	a.ends()
	got := b.awaits(1)
	require.Equal(t, Outcome{"c1", imei, "a", InstanceLost, "the instance stopped before an answer; the device may have executed it"}, got[0])
}

func TestCommandsGoOnAfterRedisWasAwayOrLostThem(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	b := setup(t, server)
	a := b.instance("a")
	d := a.connects(imei)
	stop := d.obeys()
	b.adds("a", "c1", imei, "before")
	b.awaits(1, "a")
	server.Kill()
	server.Restart()
	b.await(func() bool { return b.rdb.Ping(t.Context()).Err() == nil })
	b.adds("a", "c2", imei, "after")
	b.awaits(2, "a")
	stop()
	asked, reply := make(chan struct{}), make(chan struct{})
	stop = d.answers(func(c sim.Command) []teltonika.Message {
		close(asked)
		<-reply
		return []teltonika.Message{d.Executes(c, "done")}
	})
	b.queues("sent", imei, "sent")
	b.queues("waits", imei, "waits")
	b.queues("away", other, "away")
	<-asked
	require.NoError(t, b.rdb.FlushAll(t.Context()).Err()) // also during the blocking read
	close(reply)
	b.await(func() bool { return a.reader.Outstanding() == 0 })
	stop()
	require.Empty(t, b.outcomes(), "Redis knows of none")

	require.NoError(t, b.rdb.HSet(t.Context(), b.layout.Registry(), imei, "a").Err()) // as the owner does
	d.obeys()
	b.queues("new", imei, "new", "codec", "14")
	require.Equal(t, "did new", b.settled(1)["new"].Text)
	b.adds("a", "c3", imei, "anew")
	require.Equal(t, Outcome{"c3", imei, "a", Answered, "did anew"}, b.awaits(2, "a")[1])
	require.Equal(t, []string{"before", "after", "sent", "new", "anew"}, d.heard())
}

// loses returns a hook that loses the replies to a command's first successful calls, and how many
// it has yet to lose: below zero, all are lost and one came through.
func loses(command string, replies int32) (redistest.Intercept, *atomic.Int32) {
	left := new(atomic.Int32)
	left.Store(replies)
	return func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		if err == nil && cmds[0].Name() == command && left.Add(-1) >= 0 {
			return redistest.Fail(cmds, io.EOF)
		}
		return err
	}, left
}

func TestALostReplyLosesNoCommandAndSendsNoneTwice(t *testing.T) {
	t.Parallel()
	stream := func(b *bench, id, text string) string { return b.adds("a", id, imei, text) }
	queue := func(b *bench, id, text string) string { return b.queues(id, imei, text) }
	for name, c := range map[string]struct {
		command string
		replies int32
		add     func(b *bench, id, text string) string
	}{
		"reads":       {"xread", 3, stream},
		"scripts":     {"evalsha", 3, stream},
		"the queue's": {"evalsha", 8, queue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, redistest.Shared(t))
			a := b.gate("a")
			d := a.connects(imei)
			d.obeys()
			l, left := loses(c.command, c.replies)
			a.reads(func(c *Config) {
				c.Client.AddHook(l)
				c.Blocking.AddHook(l)
			})
			var want []string
			for i := range 5 {
				c.add(b, fmt.Sprint("c", i), fmt.Sprint(i))
				want = append(want, fmt.Sprint(i))
			}
			for _, o := range b.awaits(5, "a") {
				require.Equal(t, Answered, o.Status)
			}
			require.Negative(t, left.Load(), "replies were lost")
			require.Equal(t, want, d.heard())
			b.await(func() bool { return a.counted("answered") == 5 })
			require.Zero(t, a.counted("duplicate"))
		})
	}
}

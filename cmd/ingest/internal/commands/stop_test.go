package commands

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestAStopLetsAnAnswerComeAndSendsNothingMore(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.gate("a")
	a.reads(func(c *Config) { c.Drain = patience })
	asked, reply := make(chan struct{}), make(chan struct{})
	d := a.connects(imei)
	d.answers(func(c device.Command) []teltonika.Message {
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
	require.Zero(t, b.rdb.Exists(t.Context(), Outbound(b.layout, "a")).Val(), "nothing is left")
}

func TestAStopWaitsNoLongerThanItsDrain(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	a := b.instance("a")
	asked := make(chan struct{})
	a.connects(imei).answers(func(c device.Command) []teltonika.Message { close(asked); return nil })
	b.adds("a", "c1", imei, "first")
	<-asked
	a.ends()
	got := b.awaits(1)
	require.Equal(t, Outcome{"c1", imei, "a", InstanceLost, "the instance stopped before an answer; the device may have executed it"}, got[0])
}

func TestCommandsGoOnAfterRedisWasAwayOrLostTheStream(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	b := setup(t, server)
	a := b.instance("a")
	d := a.connects(imei)
	d.obeys()
	b.adds("a", "c1", imei, "before")
	b.awaits(1, "a")
	server.Kill()
	server.Restart()
	b.await(func() bool { return b.rdb.Ping(t.Context()).Err() == nil })
	b.adds("a", "c2", imei, "after")
	b.awaits(2, "a")
	// during the blocking read
	require.NoError(t, b.rdb.Del(t.Context(), Outbound(b.layout, "a")).Err())
	b.adds("a", "c3", imei, "anew")
	got := b.awaits(3, "a")
	require.Equal(t, Outcome{"c3", imei, "a", Answered, "did anew"}, got[2])
	require.Equal(t, []string{"before", "after", "anew"}, d.heard())
}

// lossy loses the replies to a command's first successful calls.
type lossy struct {
	command string
	left    atomic.Int32
}

func (*lossy) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(strings.TrimSpace(fmt.Sprint(cmd.Args()...)), l.command) && l.left.Add(-1) >= 0 {
			err = io.EOF
			cmd.SetErr(err)
		}
		return err
	}
}

func TestALostReplyLosesNoCommandAndSendsNoneTwice(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"xreadgroup", "evalsha"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			b := setup(t, redistest.Shared(t))
			a := b.gate("a")
			d := a.connects(imei)
			d.obeys()
			l := &lossy{command: command}
			l.left.Store(3)
			a.reads(func(c *Config) {
				for _, client := range []redis.UniversalClient{c.Client, c.Blocking} {
					client.AddHook(l)
				}
			})
			var want []string
			for i := range 5 {
				b.adds("a", fmt.Sprint("c", i), imei, fmt.Sprint(i))
				want = append(want, fmt.Sprint(i))
			}
			for _, o := range b.awaits(5, "a") {
				require.Equal(t, Answered, o.Status)
			}
			require.Negative(t, l.left.Load(), "replies were lost")
			require.Equal(t, want, d.heard())
			b.await(func() bool { return a.counted("answered") == 5 })
			require.Zero(t, a.counted("duplicate"))
		})
	}
}

// A read of a connection that only this side knows to be dead may get an entry: it is pending, and
// nobody has it.
func TestACommandThatWentToADeadConnectionIsReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Start(t))
	stream := Outbound(b.layout, "a")
	require.NoError(t, b.rdb.XGroupCreateMkStream(t.Context(), stream, group, "0").Err())
	dead := b.client()
	got := make(chan error, 1)
	go func() {
		got <- dead.XReadGroup(t.Context(), &redis.XReadGroupArgs{
			Group: group, Consumer: consumer, Streams: []string{stream, newEntries}, Block: time.Minute,
		}).Err()
	}()
	waiting := func(n int) {
		b.await(func() bool {
			return strings.Contains(b.rdb.Info(t.Context(), "clients").Val(), fmt.Sprintf("blocked_clients:%d\r\n", n))
		})
	}
	waiting(1)
	a := b.gate("a")
	a.connects(imei).obeys()
	a.reads(func(c *Config) { c.Answer = 100 * time.Millisecond })
	waiting(2)
	b.adds("a", "c1", imei, "getver")
	require.NoError(t, <-got)
	require.Equal(t, Outcome{"c1", imei, "a", Answered, "did getver"}, b.awaits(1, "a")[0])
}

package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
)

// delayed gives up the first call of a script that has such an argument, before it is sent.
type delayed struct {
	script, argument string

	mu   sync.Mutex
	call []any
}

func (*delayed) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*delayed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d *delayed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		d.mu.Lock()
		args := cmd.Args()
		hold := d.call == nil && slices.Contains(args, any(d.script)) && slices.Contains(args, any(d.argument))
		if hold {
			d.call = slices.Clone(args)
		}
		d.mu.Unlock()
		if !hold {
			return next(ctx, cmd)
		}
		cmd.SetErr(io.EOF)
		return io.EOF
	}
}

// lands sends the call that was given up.
func (d *delayed) lands(b *bench) {
	b.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	require.NotNil(b.t, d.call)
	require.NoError(b.t, b.rdb.Do(b.t.Context(), d.call...).Err())
}

// What an instance gave up before it sent a command does not undo the mark: others would send it.
func TestACallThatLandsLateFreesNoCommandThatWasSentSince(t *testing.T) {
	t.Parallel()
	eachMake(t, func(b *bench) {
		late := &delayed{script: settleScript.Hash(), argument: verdictWaits}
		tries, sent, answer := 0, make(chan struct{}), make(chan struct{})
		device := stub(func(ctx context.Context, c gateway.Command) ([]byte, error) {
			if _, err := c.Permit(ctx); err != nil {
				return nil, err
			}
			if tries++; tries == 1 {
				return nil, fmt.Errorf("%w: the socket ended before it could be sent", gateway.ErrNotConnected)
			}
			close(sent)
			select {
			case <-answer:
				return []byte("did getver"), nil
			case <-ctx.Done():
				return nil, gateway.ErrUnanswered
			}
		})
		require.NoError(b.t, b.rdb.HSet(b.t.Context(), b.layout.Registry(), imei, "x").Err())
		require.NoError(b.t, settleScript.Load(b.t.Context(), b.rdb).Err())
		x := &instance{bench: b, id: "x"}
		x.reads(func(c *Config) {
			c.Devices = ready{device}
			c.Client.AddHook(late)
		})
		b.queues("c1", imei, "getver", "expires", in(time.Hour))
		<-sent

		late.lands(b)
		y := b.claimer("y")
		verdict, _, _, err := y.take(b.t.Context(), y.waiting.devices[imei][0])
		require.NoError(b.t, err)
		require.Equal(b.t, verdictTaken, verdict)
		close(answer)
		require.Equal(b.t, Outcome{"c1", imei, "x", Answered, "did getver"}, b.settled(1)["c1"])
	})
}

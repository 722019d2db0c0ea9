package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// What an instance gave up before it sent a command does not undo the mark: others would send it.
func TestACallThatLandsLateFreesNoCommandThatWasSentSince(t *testing.T) {
	t.Parallel()
	eachMake(t, func(b *bench) {
		var given atomic.Pointer[[]any] // the first call to let it wait on, given up before it is sent
		late := redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			args := slices.Clone(cmds[0].Args())
			settles := slices.Contains(args, any(settleScript.Hash())) && slices.Contains(args, any(verdictWaits))
			if settles && given.CompareAndSwap(nil, &args) {
				return redistest.Fail(cmds, io.EOF)
			}
			return send()
		})
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

		require.NoError(b.t, b.rdb.Do(b.t.Context(), *given.Load()...).Err())
		y := b.claimer("y")
		verdict, _, _, err := y.take(b.t.Context(), y.waiting.devices[imei][0])
		require.NoError(b.t, err)
		require.Equal(b.t, verdictTaken, verdict)
		close(answer)
		require.Equal(b.t, Outcome{"c1", imei, "x", Answered, "did getver"}, b.settled(1)["c1"])
	})
}

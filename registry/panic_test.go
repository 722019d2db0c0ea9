package registry_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// A replica must not go on beating without its writer, or hold sockets without beating.
func TestACallbackThatPanicsEndsRunWithIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		data, control := redis.NewClient(lease.Options(w.options)), redis.NewClient(lease.Options(w.options))
		defer data.Close()
		defer control.Close()
		cfg := registry.Config{Client: data, Control: control, Instance: "r1", Logger: slog.New(slog.DiscardHandler), OnReconciled: func() { panic("a mistake") }}
		r, err := registry.New(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_ = r.Run(ctx)
		}()
		claim := r.Register("alice|phone", nobody)
		require.NoError(t, claim.Wait(ctx))
		time.Sleep(time.Second)

		require.NoError(t, w.HDel(ctx, w.Registry(), "alice|phone").Err())
		claim.Touch()
		select {
		case panicked := <-ended:
			require.Contains(t, fmt.Sprint(panicked), "a mistake")
		case <-time.After(10 * time.Minute):
			require.Fail(t, "Run goes on", "last beat %s ago", time.Since(r.Status().LastBeat))
		}
		<-r.Started()
		require.ErrorIs(t, r.Register("bob|phone", nobody).Wait(ctx), registry.ErrStopping)
	})
}

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
	inBubble(t, func(w *bubble) {
		data, control := redis.NewClient(lease.Options(w.options)), redis.NewClient(lease.Options(w.options))
		defer data.Close()
		defer control.Close()
		cfg := registry.Config{Client: data, Control: control, Instance: "r1", Logger: slog.New(slog.DiscardHandler), OnReconciled: func() { panic("a mistake") }}
		r, err := registry.New(cfg)
		require.NoError(w, err)
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_ = r.Run(ctx)
		}()
		claim := r.Register("alice|phone", nobody)
		require.NoError(w, claim.Wait(ctx))
		time.Sleep(time.Second)

		w.drop("alice|phone")
		claim.Touch()
		select {
		case panicked := <-ended:
			require.Contains(w, fmt.Sprint(panicked), "a mistake")
		case <-time.After(10 * time.Minute):
			require.Fail(w, "Run goes on", "last beat %s ago", time.Since(r.Status().LastBeat))
		}
		<-r.Started()
		require.ErrorIs(w, r.Register("bob|phone", nobody).Wait(ctx), registry.ErrStopping)
	})
}

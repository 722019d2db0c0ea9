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
	for name, set := range map[string]func(*registry.Config){
		"OnReconciled": func(c *registry.Config) { c.OnReconciled = func() { panic("a mistake") } },
		"OnDisplaced":  func(c *registry.Config) { c.OnDisplaced = func(string, string) { panic("a mistake") } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				data, control := redis.NewClient(lease.Options(w.options)), redis.NewClient(lease.Options(w.options))
				defer data.Close()
				defer control.Close()
				cfg := registry.Config{Client: data, Control: control, Instance: "r1", Logger: slog.New(slog.DiscardHandler)}
				set(&cfg)
				r, err := registry.New(cfg)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan any, 1)
				go func() {
					defer func() { ended <- recover() }()
					_ = r.Run(ctx)
				}()
				claim := r.Register("alice|phone")
				require.NoError(t, claim.Wait(ctx))
				time.Sleep(time.Second)

				if cfg.OnReconciled != nil {
					require.NoError(t, w.HDel(ctx, w.Registry(), "alice|phone").Err())
				} else {
					require.NoError(t, w.HSet(ctx, w.Registry(), "alice|phone", "r2").Err())
					require.NoError(t, w.Set(ctx, w.Heartbeat("r2"), "1", 0).Err())
				}
				claim.FrameReceived()
				select {
				case panicked := <-ended:
					require.Contains(t, fmt.Sprint(panicked), "a mistake")
				case <-time.After(10 * time.Minute):
					require.Fail(t, "Run goes on", "last beat %s ago", time.Since(r.Status().LastBeat))
				}
				<-r.Started()
				require.ErrorIs(t, r.Register("bob|phone").Wait(ctx), registry.ErrReleased)
			})
		})
	}
}

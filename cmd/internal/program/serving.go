package program

import (
	"context"
	"io"
	"log/slog"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/registry"
)

// Serving logs how the program begins and ends.
func Serving(c *cli.Command, b *Base, serve func(context.Context, *slog.Logger) error) cli.Run {
	return func(ctx context.Context, _, stderr io.Writer) error {
		options := &slog.HandlerOptions{Level: b.LogLevel, ReplaceAttr: printable.Attr}
		log := slog.New(slog.NewTextHandler(stderr, options))
		if b.LogFormat == "json" {
			log = slog.New(slog.NewJSONHandler(printable.Writer(stderr), options))
		}
		// Here and not by the registry, so that the first line has it, too.
		if b.InstanceID == "" {
			b.InstanceID, b.Unique = registry.UniqueInstance(), true
		}
		log = log.With("instance", b.InstanceID)
		log.Info("starting", "version", cli.Version(), slog.Any("settings", slog.GroupValue(c.Shown()...)))
		if exposed := c.Exposed(); len(exposed) > 0 {
			log.Warn("a secret is on the command line, where every user of this machine can read it: "+
				"set it in the environment or in a file", "flags", exposed)
		}
		if err := serve(ctx, log); err != nil {
			log.Error(c.Name+" failed", "error", err)
			return cli.ErrSaid
		}
		log.Info("stopped")
		return nil
	}
}

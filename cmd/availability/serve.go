package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/janitor"
)

type replica struct {
	*program.Core
	settings *settings
	database *database.Database
	tokens   *token.Verifier
	mirror   *availability.Mirror
	api      *api.API
}

// mostConns limits connections to HTTP_ADDR, of about 20 kB each.
const mostConns = 4096

// seedWait is how long requests wait for the first seeding before reads fall back.
const seedWait = 5 * time.Second

// serve stops HTTP early, because requests need all the other parts.
func serve(ctx context.Context, s *settings, log *slog.Logger) error {
	r := &replica{settings: s}
	return program.Program{
		Name: "availability", Base: &s.Base, Fleet: &s.Fleet, NoRegistry: true, Page: pageText,
		Before: r.before, After: r.close,
		Sweeps: func(*program.Core) []janitor.Sweeper { return r.mirror.Sweeps() },
		Around: map[string]func(program.Run) program.Run{
			"janitor": func(run program.Run) program.Run { return r.database.WhenTried(run) },
			"http":    r.seeded,
		},
		Parts: func() []program.Part {
			return []program.Part{
				{Name: "counts", Run: r.database.WhenTried(r.api.Run), Tenths: 4},
				{Name: "tokens", Run: r.tokens.Run, Tenths: 6},
				{Name: "database", Run: r.database.Run, Tenths: 6},
				{Name: "mirror", Run: r.database.WhenTried(r.mirror.Run), Tenths: 6},
			}
		},
		Status: func(st console.Status) console.Stated { return r.status(st) },
		HTTP: func(c *console.HTTPConfig) {
			c.OperatorAddr, c.MaxConns, c.Routes = s.operatorAddr, mostConns, map[string]http.Handler{}
			for _, pattern := range r.api.Patterns() {
				c.Routes[pattern] = r.Traces.Handler(r.api)
			}
		},
		HTTPStops: 5,
	}.Serve(ctx, log)
}

func (r *replica) before(ctx context.Context, c *program.Core) (err error) {
	s := r.settings
	r.Core = c
	password, files, err := s.databasePassword()
	if err != nil {
		return err
	}
	r.database, err = database.Open(ctx, database.Config{
		URL: string(s.databaseURL), Password: password, Migrate: s.migrate == "on", Logger: c.Log,
		Registerer: c.Metrics,
	})
	if err != nil {
		return err
	}
	secrets, secretFiles, err := s.secrets()
	if err != nil {
		return err
	}
	c.Files = append(files, secretFiles...)
	r.tokens, err = token.New(ctx, token.Config{
		Secrets: secrets, JWKS: string(s.jwks), Audience: s.jwtAudience, Issuer: s.jwtIssuer, Logger: c.Log,
	})
	if err != nil {
		return err
	}
	r.mirror, err = availability.New(availability.Config{
		Source: r.database, Client: c.Clients.Data, Control: c.Clients.Control, Layout: s.Layout(),
		ReconcileInterval: s.reconcileInterval, OfflineInterval: s.offlineInterval,
		HeartbeatInterval: s.mirrorInterval, Logger: c.Log, Registerer: c.Metrics,
	})
	if err != nil {
		return err
	}
	r.api, err = api.New(api.Config{
		Mirror: r.mirror, Source: r.database, Endings: s.endings, Tokens: r.tokens, Logger: c.Log,
		Registerer: c.Metrics,
	})
	return err
}

func (r *replica) close(context.Context) error {
	if r.database != nil {
		r.database.Close()
	}
	return nil
}

func (r *replica) seeded(run program.Run) program.Run {
	return func(ctx context.Context) error {
		r.awaitSeeding(ctx)
		return run(ctx)
	}
}

func (r *replica) awaitSeeding(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, seedWait)
	defer cancel()
	select {
	case <-r.mirror.Ready():
	case <-wait.Done():
		if ctx.Err() == nil {
			h := r.mirror.Health()
			r.Log.Warn("serving before the mirror is whole: reads fall back to PostgreSQL",
				"waited", seedWait, "mirror_whole", h.Whole, "feed", h.FeedError)
		}
	}
}

package main

import (
	"context"
	_ "embed"
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

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

// replicaStatus is the body of GET /api/v1/status, and the page's data.
type replicaStatus struct {
	console.Status
	Postgres database.Status `json:"postgres"`
	Mirror   mirrorStatus    `json:"mirror"`
	Counts   api.Counts      `json:"counts"`
}

// mirrorStatus is Whole only while Redis answers.
type mirrorStatus struct {
	availability.Health
	// FeedBehind is how long (s) Redis may have missed commits, so that reads ask Postgres as well.
	FeedBehind float64 `json:"feed_behind_seconds"`
}

// answeredFor is how long a read proves that reads work. There is one every two seconds; a failing
// one takes a few.
const answeredFor = 15 * time.Second

// status asks nobody.
func (r *replica) status(base console.Status) replicaStatus {
	st := replicaStatus{
		Status: base, Postgres: r.database.Status(), Mirror: mirrorStatus{Health: r.mirror.Health()},
		Counts: r.api.Counts(),
	}
	st.Mirror.Whole = st.Mirror.Whole && st.Redis.Reachable
	st.Mirror.FeedBehind = st.Mirror.Behind.Seconds()
	if !st.Janitor.Leading {
		st.Mirror.Offline = "" // of a former term
	}
	st.NotReady = r.notReady(&st)
	st.Ready = st.NotReady == ""
	return st
}

// notReady returns why this replica cannot answer, or "". The evidence is a periodic read of its
// own, which either Redis or PostgreSQL may answer.
func (r *replica) notReady(st *replicaStatus) string {
	switch {
	case r.Draining():
		return "draining: this replica stops"
	case st.Registry.Refused != "":
		return "refused: Redis does not accept this replica: " + st.Registry.Refused
	case st.Counts.At.IsZero() && st.Counts.Error == "":
		return "starting: neither Redis nor PostgreSQL has answered yet"
	case st.Counts.Error != "":
		return "nobody can answer: " + st.Counts.Error
	case time.Since(st.Counts.At) > answeredFor:
		return "nobody can answer: the last read was answered at " + st.Counts.At.UTC().Format(time.RFC3339)
	}
	return ""
}

package main

import (
	"context"
	_ "embed"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/cleanup/internal/cycles"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

type worker struct {
	settings *settings
	log      *slog.Logger
	source   *source
	set      *orphan.Set
	cycles   *cycles.Cycles
	contends atomic.Bool // the janitor runs: it contends for the lease, or leads
}

// workerStatus is the body of GET /api/v1/status, and the page's data.
type workerStatus struct {
	console.Status
	MongoDB mongoStatus         `json:"mongodb"`
	Rules   []cycles.RuleStatus `json:"rules"`
	Stats   cycles.Stats        `json:"stats"`
}

// mostMemory makes the runtime collect garbage more often above it: a pass over large values leaves
// much.
const mostMemory = 96 << 20

func serve(ctx context.Context, s *settings, log *slog.Logger) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(mostMemory)
	}
	w := &worker{settings: s, log: log}
	stats := func() any { return w.cycles.Stats(w.contends.Load()) }
	return program.Program{
		Name: "cleanup", Base: &s.Base, Fleet: &s.Fleet, NoRegistry: true, Page: pageText,
		Before: w.before, After: func(ctx context.Context) error { return w.source.close(ctx) },
		Sweeps: func(*program.Core) []janitor.Sweeper { return w.set.Sweeps() },
		Around: map[string]func(program.Run) program.Run{"janitor": w.contending},
		// Readiness does not depend on MongoDB: rules that do not need it keep working.
		Status: func(st console.Status) console.Stated {
			if st.Janitor.Leading {
				st.Untold = w.cycles.Untold()
			}
			return workerStatus{st, w.source.status(), w.cycles.Rules(), w.cycles.Stats(w.contends.Load())}
		},
		HTTP: func(c *console.HTTPConfig) {
			c.Answers, c.Swept = map[string]func() any{"/api/v1/stats": stats}, w.swept
		},
	}.Serve(ctx, log)
}

func (w *worker) contending(run program.Run) program.Run {
	return func(ctx context.Context) error {
		w.contends.Store(true)
		defer w.contends.Store(false)
		return run(ctx)
	}
}

func (w *worker) before(_ context.Context, c *program.Core) (err error) {
	s := w.settings
	if w.source, err = openSource(s); err != nil {
		return err
	}
	for _, text := range rules.Warnings(s.rules) {
		w.log.Warn("a rule could be safer", "warning", text)
	}
	w.set, err = orphan.New(orphan.Config{
		Rules: s.rules, Client: c.Clients.Data, Source: w.source.orNil(), Layout: s.Layout(),
		Interval: s.Every, Logger: w.log, Registerer: c.Metrics,
		// w.cycles is set before the first pass.
		Passed: func(r orphan.Result) { w.cycles.Passed(r) },
	})
	if err != nil {
		return err
	}
	w.cycles, err = cycles.New(cycles.Config{
		Rules: s.rules, Removed: w.set.Stats, Logger: w.log, Registerer: c.Metrics,
	})
	return err
}

// swept adds to the answer of a requested sweep what it has removed, and what will follow.
func (w *worker) swept() func() map[string]any {
	before, began := w.set.Stats(), time.Now()
	w.log.Info("requested cleanup starts")
	return func() map[string]any {
		answer := cycles.Answer(w.set.Asked(began))
		removed, keys := w.cycles.Since(before)
		answer["removed"], answer["keysRemoved"], answer["totalKeysRemoved"] = removed, keys, keys
		return answer
	}
}

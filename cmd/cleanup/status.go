package main

import (
	_ "embed"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/cleanup/internal/cycles"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
)

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

// workerStatus is the body of GET /api/v1/status, and the page's data.
type workerStatus struct {
	console.Status
	MongoDB mongoStatus         `json:"mongodb"`
	Rules   []cycles.RuleStatus `json:"rules"`
	Stats   cycles.Stats        `json:"stats"`
}

// status asks nobody.
func (w *worker) status() workerStatus {
	st := workerStatus{
		Status: console.Status{
			Instance: w.registry.Instance(),
			Version:  cli.Version(),
			Time:     time.Now(),
			Started:  w.began,
			HTTPAddr: w.http.Addr(),
			Admin:    w.settings.AdminToken != "",
			Files:    w.files.Status(),
			Registry: w.registry.Status(),
			Janitor:  w.janitor.Status(),
		},
		MongoDB: w.source.status(),
		Rules:   w.cycles.Rules(),
		Stats:   w.cycles.Stats(w.contends.Load()),
	}
	// Readiness does not depend on MongoDB: rules that do not need it keep working.
	st.Judge("worker", w.inspector, w.draining.Load())
	return st
}

package main

import (
	_ "embed"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/cleanup/internal/cycles"
	"github.com/rollcall-redis/rollcall/cmd/internal/service"
	"github.com/rollcall-redis/rollcall/registry"
)

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

// workerStatus is the body of GET /api/v1/status, and the page's data.
type workerStatus struct {
	service.Status
	MongoDB mongoStatus         `json:"mongodb"`
	Rules   []cycles.RuleStatus `json:"rules"`
	Stats   cycles.Stats        `json:"stats"`
}

// status returns what this worker knows without asking anybody.
func (w *worker) status() workerStatus {
	st := workerStatus{
		Status: service.Status{
			Instance: w.registry.Instance(),
			Version:  service.Version(),
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
	_, failing := st.Registry.Failing["heartbeat"]
	st.Redis = w.inspector.Status(!failing && !st.Registry.LastBeat.IsZero())
	st.NotReady = w.notReady(st.Redis.Reachable, st.Registry)
	st.Ready = st.NotReady == ""
	return st
}

// notReady returns why this worker cannot work, or "" if it can. It does not depend on MongoDB,
// because rules that do not need MongoDB keep working.
func (w *worker) notReady(reachable bool, reg registry.Status) string {
	switch {
	case w.draining.Load():
		return "draining: this worker stops"
	case reg.Refused != "":
		return "refused: Redis does not accept this worker: " + reg.Refused
	case !reachable && reg.LastBeat.IsZero():
		return "starting: no heartbeat has landed yet"
	case !reachable:
		return "Redis does not answer: " + reg.Failing["heartbeat"]
	}
	return ""
}

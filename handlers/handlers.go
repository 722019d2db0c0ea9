// Package handlers has HTTP handlers for a service that embeds Rollcall, to mount where the service
// likes: readiness, the status as JSON, and a page for people.
//
//	mux.Handle("GET /readyz", handlers.Ready(reg))
//	mux.Handle("GET /rollcall/status", handlers.Status(reg, jan))
//	mux.Handle("GET /rollcall", handlers.Page(reg, jan))
//
// They change nothing. Status and page name instances and errors of Redis, so mount them where
// operators are. Metrics go to the Registerer of each Config, and the service serves them.
package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	// askTimeout bounds a reading of the instances, and is how long it is good for.
	askTimeout = time.Second
	mostOwners = 1000
)

// Registry is a *registry.Registry or a *partition.Registry.
type Registry interface {
	// Status is the replica's own state.
	Status() registry.Status
	// Timing is that of heartbeats.
	Timing() guard.Timing
	// Owners lists the instances.
	Owners(ctx context.Context) ([]registry.Owner, error)
}

// Janitor is a *janitor.Janitor or a *partition.Janitor.
type Janitor interface {
	// Status is the replica's own state.
	Status() janitor.Status
}

// Ready answers 200 if sockets may be sent to this replica, else 503 and why: it has not reached
// Redis yet, Redis refuses it, or it drains or has ended. Once a heartbeat has landed, or a TTL has
// passed, Redis no longer counts: taking every replica out of service would only make an outage
// worse. Call Ready when the registry starts, since that TTL begins then.
func Ready(r Registry) http.Handler {
	began := time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if why := notReady(r.Status(), time.Since(began), r.Timing().TTL); why != "" {
			write(w, http.StatusServiceUnavailable, "text/plain; charset=utf-8", []byte(why+"\n"))
			return
		}
		write(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ready\n"))
	})
}

func notReady(s registry.Status, age, ttl time.Duration) string {
	switch {
	case s.Draining:
		return "draining: this replica stops"
	case s.LastBeat.IsZero() && s.Refused != "":
		return "refused: Redis does not accept this replica: " + s.Refused
	case s.LastBeat.IsZero() && age < ttl:
		return "starting: no heartbeat has landed yet"
	}
	return ""
}

// Status answers in JSON: "registry" is a registry.Status, "janitor" a janitor.Status. It does not
// ask Redis.
func Status(r Registry, j Janitor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(struct {
			Registry registry.Status `json:"registry"`
			Janitor  janitor.Status  `json:"janitor"`
		}{r.Status(), j.Status()})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		write(w, http.StatusOK, "application/json", append(printable.JSON(body), '\n'))
	})
}

// Page is for people: this replica, the leader, whether sweeping is held, and the first thousand
// instances with their heartbeats, which it reads from Redis at most once a second.
func Page(r Registry, j Janitor) http.Handler {
	f := fleet{registry: r}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		owners, err := f.owners(req.Context())
		v := view{Registry: r.Status(), Janitor: j.Status(), Now: time.Now(), Owners: owners}
		if more := len(owners) - mostOwners; more > 0 {
			v.Owners, v.More = owners[:mostOwners], more
		}
		if err != nil {
			v.Error = err.Error()
		}
		var body bytes.Buffer
		if err := page.Execute(&body, v); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		write(w, http.StatusOK, "text/html; charset=utf-8", body.Bytes())
	})
}

// fleet reads once for all who ask within a second: they may be anybody, and each reading takes
// Redis longer the more instances there are.
type fleet struct {
	registry Registry

	mu   sync.Mutex
	read time.Time
	last []registry.Owner
	err  error
}

func (f *fleet) owners(ctx context.Context) ([]registry.Owner, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read.IsZero() || time.Since(f.read) >= askTimeout {
		// It is for others too, so it does not end with this request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		f.last, f.err = f.registry.Owners(ctx)
		f.read = time.Now()
	}
	return f.last, f.err
}

func write(w http.ResponseWriter, code int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client may have gone
}

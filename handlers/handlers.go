// Package handlers has HTTP handlers for a service that embeds Rollcall, to mount where the service
// likes: readiness, the status as JSON, and a page for people.
//
//	mux.Handle("GET /readyz", handlers.Ready(replica))
//	mux.Handle("GET /rollcall/status", handlers.Status(replica))
//	mux.Handle("GET /rollcall", handlers.Page(replica))
//
// They change nothing. Status and page name instances and errors of Redis, so mount them where
// operators are. Metrics go to rollcall.Config.Registerer, and the service serves them.
package handlers

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/janitor"
)

const (
	// askTimeout bounds a reading of the instances, and is how long it is good for.
	askTimeout = time.Second
	mostOwners = 1000
)

// Ready answers 200 if sockets may be sent to this replica, else 503 and why: see
// rollcall.Replica.Ready.
func Ready(r *rollcall.Replica) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := r.Ready(); err != nil {
			write(w, http.StatusServiceUnavailable, "text/plain; charset=utf-8", []byte(err.Error()+"\n"))
			return
		}
		write(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ready\n"))
	})
}

// Status answers with the rollcall.Status in JSON. It does not ask Redis.
func Status(r *rollcall.Replica) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.Marshal(r.Status())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		write(w, http.StatusOK, "application/json", append(printable.JSON(body), '\n'))
	})
}

// Page is for people: this replica, the leader, whether sweeping is held, and the first thousand
// instances with their heartbeats, which it reads from Redis at most once a second.
func Page(r *rollcall.Replica) http.Handler {
	f := fleet{ask: r.Owners}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		owners, err := f.owners(req.Context())
		v := view{Status: r.Status(), Now: time.Now(), Owners: owners}
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
	ask func(ctx context.Context) ([]rollcall.Owner, error)

	mu   sync.Mutex
	read time.Time
	last []rollcall.Owner
	err  error
}

func (f *fleet) owners(ctx context.Context) ([]rollcall.Owner, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read.IsZero() || time.Since(f.read) >= askTimeout {
		// It is for others too, so it does not end with this request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		f.last, f.err = f.ask(ctx)
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

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"text": printable.Text, "ago": ago, "sweeping": sweeping,
}).Parse(pageText))

type view struct {
	rollcall.Status
	Owners []rollcall.Owner
	More   int    // not shown
	Error  string // of reading owners
	Now    time.Time
}

// Leader is nobody where this replica does not know.
func (v view) Leader() string {
	switch {
	case v.Janitor == nil:
		return "not known here: this replica has no janitor"
	case v.Janitor.Leading:
		return "this replica"
	case v.Janitor.Leader == "":
		return "not known here"
	}
	return v.Janitor.Leader
}

func sweeping(j *janitor.Status) string {
	if j == nil {
		return "not known here: this replica has no janitor"
	}
	w := j.Witness
	switch {
	case j.Paused != nil:
		return "paused: " + j.Paused.Why
	case w.Error != "":
		return "held: Redis does not answer: " + w.Error
	case w.LastTick.IsZero():
		return "not known here: this replica has not listened to Redis yet"
	case w.HeldFor > 0:
		text := fmt.Sprintf("begins in %.0f s, when Redis has been listened to for long enough", w.HeldFor)
		if w.Reason != "" {
			text += " since hold " + w.Reason
		}
		return text
	case j.DryRun:
		return "dry run: judged and reported, nothing deleted"
	}
	return "allowed"
}

func ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return now.Sub(t).Round(100*time.Millisecond).String() + " ago"
}

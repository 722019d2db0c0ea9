package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/doors"
)

const (
	mostViewers = 100
	// slowViewer is how long a viewer may take to read a message.
	slowViewer = 5 * time.Second
	aliveEvery = 15 * time.Second
	// viewerRetry is how soon a viewer returns after its stream has ended.
	viewerRetry = 2 * time.Second
)

// teller makes a message from the viewer's last reading, or nil, and the present one; nil: no news.
type teller func(last, now *reading) []byte

// viewers serves server-sent events. docs/reference/http.md lists those of GET /api/v1/events, made
// by [tellFleet].
type viewers struct {
	fleet *fleet
	room  *doors.Room
}

func (v *viewers) serve(tells func(*http.Request) teller) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) { v.stream(w, req, tells(req)) }
}

func (v *viewers) stream(w http.ResponseWriter, req *http.Request, tell teller) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	control := http.NewResponseController(w)
	one := &doors.Guest{End: func() {
		cancel()
		_ = control.SetWriteDeadline(time.Now()) // it may not read
	}}
	if !v.room.Enter(one, doors.Addr(req.RemoteAddr)) {
		w.Header().Set("Retry-After", strconv.Itoa(int(aliveEvery.Seconds())))
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d watch this replica", mostViewers))
		return
	}
	defer one.Leave()
	one.Earn()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that holds answers back would hold all of it
	w.WriteHeader(http.StatusOK)
	send := func(text []byte) bool {
		if ctx.Err() != nil {
			return false
		}
		// A viewer that does not read is dropped. A writer without deadlines (in a test) still sends.
		_ = control.SetWriteDeadline(time.Now().Add(slowViewer))
		if _, err := w.Write(text); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	if !send(fmt.Appendf(nil, "retry: %d\n\n", viewerRetry.Milliseconds())) {
		return
	}
	var last *reading
	for told := time.Now(); ; {
		r, err := v.next(ctx, last)
		if err != nil {
			return
		}
		text := tell(last, r)
		if len(text) == 0 && time.Since(told) >= aliveEvery {
			text = event("alive", encoded(map[string]time.Time{"now": time.Now()}))
		}
		if len(text) > 0 {
			if !send(text) {
				return
			}
			told = time.Now()
		}
		last = r
	}
}

func (v *viewers) next(ctx context.Context, last *reading) (*reading, error) {
	if last == nil {
		return v.fleet.now(ctx)
	}
	return v.fleet.after(ctx, last.n)
}

func tellFleet(last, r *reading) []byte {
	switch {
	case r.err != nil && last != nil && last.err != nil:
		return nil
	case r.err != nil:
		return event("failed", encoded(problem{Error: r.away().Error()}))
	case last != nil && last.n == r.n-1 && last.err == nil:
		return r.next()
	}
	return r.first()
}

// event is nil without data.
func event(name string, data []byte) []byte {
	if data == nil {
		return nil
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, data)
	return b.Bytes()
}

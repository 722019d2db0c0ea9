package console

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/rollcall-redis/rollcall/cmd/internal/doors"
)

// connections bounds an HTTP server's open connections: those that are being answered have earned
// their place. So idle and slow clients can neither keep a probe out nor use up the program's
// descriptors.
type connections struct {
	room *doors.Room
	open sync.Map // of net.Conn to *doors.Guest
}

type connectionKey struct{}

func bound(server *http.Server, most int) {
	c := &connections{room: doors.New(doors.Config{Most: most, Rotate: true})}
	next := server.Handler
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	server.ConnState = c.changed
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guest, ok := c.open.Load(r.Context().Value(connectionKey{})); ok {
			guest.(*doors.Guest).Earn()
			defer guest.(*doors.Guest).Lose()
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		guest := &doors.Guest{End: func() { _ = conn.Close() }}
		c.open.Store(conn, guest)
		if !c.room.Enter(guest, doors.Addr(conn.RemoteAddr().String())) {
			_ = conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		if guest, ok := c.open.LoadAndDelete(conn); ok {
			guest.(*doors.Guest).Leave()
		}
	}
}

// Package embedded runs a Redis-compatible server inside this process, so that
// one command is enough to try the program out.
//
// It is not for production: everything is gone when the process ends, no other
// machine sees it, and it reports neither memory nor evictions nor a run id, so
// that the checks that rest on those are off. Its TTLs run in real time.
package embedded

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Notice is what log and status say wherever the embedded server is in use.
const Notice = "embedded Redis: for trying out only; nothing survives a restart, and no other machine can join"

// Server is a running server. It listens on the loopback interface only, on a
// port of its own choice, so that redis-cli can have a look.
type Server struct{ mini *miniredis.Miniredis }

// Start starts a server; the caller closes it.
func Start() (*Server, error) {
	mini := miniredis.NewMiniRedis()
	// Without this its TTLs stand still, no heartbeat ever expires, and nothing
	// dead is ever swept.
	mini.ClockTTL(true)
	if err := mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	return &Server{mini: mini}, nil
}

// Addr is where the server listens, host:port.
func (s *Server) Addr() string { return s.mini.Addr() }

// Close ends the server and every connection to it, and forgets its data.
func (s *Server) Close() { s.mini.Close() }

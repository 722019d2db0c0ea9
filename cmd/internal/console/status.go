package console

import (
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// Status is the common part of each program's status: what this replica knows of itself, and of
// the fleet from Redis' last answers. It does not need Redis to answer now. Times are of this
// process' clock unless noted otherwise. A program embeds it in its own status.
type Status struct {
	// Instance is this replica's id, as in entries of the registry.
	Instance string `json:"instance"`
	// Version is the program's.
	Version string `json:"version"`
	// Time is now, Started the start of the process.
	Time    time.Time `json:"time"`
	Started time.Time `json:"started"`
	// Ready is the answer of /readyz, NotReady the reason if it is no.
	Ready    bool   `json:"ready"`
	NotReady string `json:"not_ready,omitempty"`
	// HTTPAddr is the address that was asked, as bound.
	HTTPAddr string `json:"http_addr"`
	// Admin means that requests that change something are possible, with the token.
	Admin bool `json:"admin"`
	// Files are the settings kept in files, which are reread.
	Files []reload.Status `json:"files,omitempty"`

	Redis    connect.RedisStatus `json:"redis"`
	Registry registry.Status     `json:"registry"`
	Janitor  janitor.Status      `json:"janitor"`
}

// Stated is a program's status: Status, or a struct that embeds it.
type Stated interface{ common() Status }

func (s Status) common() Status { return s }

// Judge fills in Redis and the readiness of a program that only sweeps, which needs nothing else.
// The reason calls the program by its kind.
func (s *Status) Judge(kind string, i *connect.Inspector, draining bool) {
	failing, fails := s.Registry.Failing["heartbeat"]
	never := s.Registry.LastBeat.IsZero()
	s.Redis = i.Status(!fails && !never)
	switch {
	case draining:
		s.NotReady = "draining: this " + kind + " stops"
	case s.Registry.Refused != "":
		s.NotReady = "refused: Redis does not accept this " + kind + ": " + s.Registry.Refused
	case !s.Redis.Reachable && never:
		s.NotReady = "starting: no heartbeat has landed yet"
	case !s.Redis.Reachable:
		s.NotReady = "Redis does not answer: " + failing
	}
	s.Ready = s.NotReady == ""
}

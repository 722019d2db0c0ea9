package console

import (
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// Status is what this replica knows of itself, and of the fleet from Redis' last answers, by this
// process' clock: see docs/reference/http.md. A program embeds it in its own status.
type Status struct {
	Instance string    `json:"instance"`
	Version  string    `json:"version"`
	Time     time.Time `json:"time"`
	Started  time.Time `json:"started"`
	Ready    bool      `json:"ready"`
	NotReady string    `json:"not_ready,omitempty"`
	HTTPAddr string    `json:"http_addr"`
	Admin    bool      `json:"admin"`
	// Files are settings that are reread.
	Files []reload.Status `json:"files,omitempty"`

	// NobodyAllowed means that a set of allowed devices is asked for, and is empty.
	NobodyAllowed bool `json:"nobody_allowed,omitempty"`
	// Untold is of inspect.Knows.
	Untold map[string][2]int `json:"-"`

	Redis    connect.RedisStatus `json:"redis"`
	Registry registry.Status     `json:"registry"`
	Janitor  janitor.Status      `json:"janitor"`
}

// Stated is Status, or a struct that embeds it.
type Stated interface{ common() Status }

func (s Status) common() Status { return s }

// Knows is what of this replica no key of the fleet shows.
func (s Status) Knows() inspect.Knows {
	k := inspect.Knows{
		Refused: s.Registry.Refused, Sockets: s.Registry.Held, DryRun: s.Janitor.DryRun,
		Failing: s.Registry.Failing, Ends: map[string]time.Time{}, Files: map[string]string{},
		NobodyAllowed: s.NobodyAllowed, Untold: s.Untold,
	}
	if len(k.Failing) == 0 { // otherwise that is why
		k.NotReady = s.NotReady
	}
	for _, f := range s.Files {
		if f.Error != "" {
			k.Files[f.Setting] = f.Error
		}
		if !f.Ends.IsZero() {
			k.Ends[f.Setting] = f.Ends
		}
	}
	if ends := s.Redis.CertificateEnds; !ends.IsZero() {
		k.Ends["Redis"] = ends
	}
	for _, text := range s.Redis.Warnings {
		if text != connect.EmbeddedNotice { // chosen on purpose, and shown with this replica
			k.Warnings = append(k.Warnings, text)
		}
	}
	return k
}

// Judge fills in Redis and the readiness of a program that only sweeps, called kind in the reason.
func (s *Status) Judge(kind string, c *connect.Clients, draining bool) {
	failing, fails := s.Registry.Failing["heartbeat"]
	never := s.Registry.LastBeat.IsZero()
	s.Redis = c.Status(!fails && !never)
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

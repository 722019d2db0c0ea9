package service

import (
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// Status is what each program says of itself: what this replica knows of itself, and of the fleet,
// from its last answers of Redis. It needs no answer of Redis to be made. Times are of this
// process' clock unless they say otherwise. A program embeds it in its own status, beside what it
// alone has.
type Status struct {
	// Instance is this replica's id, as entries of the registry name it.
	Instance string `json:"instance"`
	// Version of the program.
	Version string `json:"version"`
	// Time is now, Started when the process was.
	Time    time.Time `json:"time"`
	Started time.Time `json:"started"`
	// Ready is what /readyz says; NotReady why it does not.
	Ready    bool   `json:"ready"`
	NotReady string `json:"not_ready,omitempty"`
	// HTTPAddr is the address that this was asked of, as bound.
	HTTPAddr string `json:"http_addr"`
	// Admin: requests that change something are possible, with the token.
	Admin bool `json:"admin"`
	// Files are the settings that stand in files, and are read again.
	Files []reload.Status `json:"files,omitempty"`

	Redis    RedisStatus     `json:"redis"`
	Registry registry.Status `json:"registry"`
	Janitor  janitor.Status  `json:"janitor"`
}

// Stated is a program's status: Status, or a struct in which it is embedded.
type Stated interface{ common() Status }

func (s Status) common() Status { return s }

// RedisStatus is about the server.
type RedisStatus struct {
	// Server names it, without credentials.
	Server string `json:"server"`
	// Embedded: it runs inside this process, for trying out.
	Embedded bool `json:"embedded"`
	// Reachable: the last heartbeat landed and no later one failed.
	Reachable bool `json:"reachable"`
	// Warnings say what about the server puts the registry at risk, or that it is the embedded one.
	Warnings []string `json:"warnings,omitempty"`
	// ChecksOff are the checks that cannot be made on this server, because it does not report what
	// they need.
	ChecksOff []string `json:"checks_off,omitempty"`
}

package service

import (
	"time"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// Status is what GET /api/v1/status answers and the page shows: what this replica knows of itself,
// and of the fleet, from its last answers of Redis. It needs no answer of Redis to be made. Times
// are of this process' clock unless they say otherwise.
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

	Devices  DevicesStatus   `json:"devices"`
	Redis    RedisStatus     `json:"redis"`
	Registry registry.Status `json:"registry"`
	Janitor  janitor.Status  `json:"janitor"`
}

// DevicesStatus is about device sockets.
type DevicesStatus struct {
	// Addr is where devices connect, as bound; empty while there is no listener, or for good if
	// INGEST_ADDR is off.
	Addr string `json:"addr"`
	// Connections are open sockets, greeted or not; at MaxConnections further ones wait in the
	// backlog.
	Connections    int `json:"connections"`
	MaxConnections int `json:"max_connections"`
}

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

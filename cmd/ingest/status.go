package main

import (
	_ "embed"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/registry"
)

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

// replicaStatus is also shown on the page.
type replicaStatus struct {
	console.Status
	Devices devicesStatus `json:"devices"`
	// Partitions is absent if the registry has only one.
	Partitions *partitionsStatus `json:"partitions,omitempty"`
}

type partitionsStatus struct {
	Count int `json:"count"`
	// Leads lists the partitions that this replica leads, numbered from 0.
	Leads []int `json:"leads"`
}

type devicesStatus struct {
	// Addr is empty while no listener is open, or for good if INGEST_ADDR is off.
	Addr string `json:"addr"`
	// Connections counts open sockets, greeted or not; MaxConnections bounds those of devices.
	Connections    int `json:"connections"`
	MaxConnections int `json:"max_connections"`
	// Messages counts the devices' messages in codecs 12 to 15 that answer no command.
	Messages gateway.MessageCounts `json:"messages"`
}

// status makes no query.
func (r *replica) status(base console.Status) replicaStatus {
	st := replicaStatus{Status: base, Devices: devicesStatus{
		Connections: r.gateway.Connections(), MaxConnections: r.maxConns, Messages: r.gateway.Messages(),
	}}
	if n := len(r.Registry.Partitions()); n > 1 {
		st.Partitions = &partitionsStatus{Count: n, Leads: r.Janitor.Leads()}
	}
	if addr := r.devices.Load(); addr != nil {
		st.Devices.Addr = addr.String()
	}
	st.NobodyAllowed = r.nobody.Load()
	st.NotReady = r.notReady(st.Time, st.Registry)
	st.Ready = st.NotReady == ""
	return st
}

// notReady returns why devices should not be sent here, or "". Once a heartbeat has landed, or a
// TTL has passed, Redis no longer affects readiness: taking every replica out of service would only
// add to its trouble. A replica that Redis refused from the start is never ready: its settings are
// wrong, and a rollout must not replace good replicas with it.
func (r *replica) notReady(now time.Time, reg registry.Status) string {
	switch {
	case r.Draining():
		return "draining: this replica stops"
	case r.settings.devices() && r.devices.Load() == nil:
		return "starting: the device listener is not open yet"
	case reg.LastBeat.IsZero() && reg.Refused != "":
		return "refused: Redis does not accept this replica: " + reg.Refused
	case reg.LastBeat.IsZero() && now.Sub(r.Began()) < r.settings.HeartbeatTTL:
		return "starting: no heartbeat has landed yet"
	}
	return ""
}

package main

import (
	_ "embed"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/service"
	"github.com/rollcall-redis/rollcall/registry"
)

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

// replicaStatus is what GET /api/v1/status answers and the page shows.
type replicaStatus struct {
	service.Status
	Devices devicesStatus `json:"devices"`
	// Partitions is about those of the registry; absent: there is one.
	Partitions *partitionsStatus `json:"partitions,omitempty"`
}

// partitionsStatus is about the partitions of the registry.
type partitionsStatus struct {
	Count int `json:"count"`
	// Leads are those that this replica leads, from 0 on.
	Leads []int `json:"leads"`
}

// devicesStatus is about device sockets.
type devicesStatus struct {
	// Addr is where devices connect, as bound; empty while there is no listener, or for good if
	// INGEST_ADDR is off.
	Addr string `json:"addr"`
	// Connections are open sockets, greeted or not; at MaxConnections further ones wait in the
	// backlog.
	Connections    int `json:"connections"`
	MaxConnections int `json:"max_connections"`
	// Messages are those that devices sent in codecs 12 to 15 and that answer no command.
	Messages gateway.MessageCounts `json:"messages"`
}

// status is what this replica knows, without asking anybody.
func (r *replica) status() replicaStatus {
	now := time.Now()
	st := replicaStatus{Status: service.Status{
		Instance: r.registry.Instance(),
		Version:  service.Version(),
		Time:     now,
		Started:  r.began,
		HTTPAddr: r.http.Addr(),
		Admin:    r.settings.AdminToken != "",
		Files:    r.files.Status(),
		Registry: r.registry.Status(),
		Janitor:  r.janitor.Status(),
	}}
	if n := len(r.registry.Partitions()); n > 1 {
		st.Partitions = &partitionsStatus{Count: n, Leads: r.janitor.Leads()}
	}
	st.Devices = devicesStatus{
		Connections: r.gateway.Connections(), MaxConnections: r.maxConns, Messages: r.gateway.Messages(),
	}
	if addr := r.devices.Load(); addr != nil {
		st.Devices.Addr = addr.String()
	}
	_, failing := st.Registry.Failing["heartbeat"]
	st.Redis = r.inspector.Status(!failing && !st.Registry.LastBeat.IsZero())
	st.NotReady = r.notReady(now, st.Registry)
	st.Ready = st.NotReady == ""
	return st
}

// notReady says why devices should not be sent here; empty: they may be. Redis has no say in it
// once a heartbeat has landed, or has had a TTL's time to: taking every replica out of service
// would only add to its trouble. A replica that Redis refused from the start is never ready: its
// settings are wrong, and a rollout must not replace good replicas by such.
func (r *replica) notReady(now time.Time, reg registry.Status) string {
	switch {
	case r.draining.Load():
		return "draining: this replica stops"
	case r.settings.devices() && r.devices.Load() == nil:
		return "starting: the device listener is not open yet"
	case reg.LastBeat.IsZero() && reg.Refused != "":
		return "refused: Redis does not accept this replica: " + reg.Refused
	case reg.LastBeat.IsZero() && now.Sub(r.began) < r.settings.heartbeatTTL:
		return "starting: no heartbeat has landed yet"
	}
	return ""
}

package main

import (
	"time"

	"github.com/rollcall-redis/rollcall/internal/embedded"
	"github.com/rollcall-redis/rollcall/internal/web"
	"github.com/rollcall-redis/rollcall/registry"
)

// status is what this replica knows, without asking anybody.
func (r *replica) status() web.Status {
	now := time.Now()
	st := web.Status{
		Instance: r.registry.Instance(),
		Version:  version(),
		Time:     now,
		Started:  r.began,
		HTTPAddr: r.page.Addr().String(),
		Admin:    r.settings.AdminToken != "",
		Devices:  web.Devices{Connections: r.gateway.Connections(), MaxConnections: r.maxConns},
		Redis:    web.Redis{Server: r.clients.server, Embedded: r.clients.embedded != nil},
		Registry: r.registry.Status(),
		Janitor:  r.janitor.Status(),
	}
	if addr := r.devices.Load(); addr != nil {
		st.Devices.Addr = addr.String()
	}
	_, failing := st.Registry.Failing["heartbeat"]
	st.Redis.Reachable = !failing && !st.Registry.LastBeat.IsZero()
	st.Redis.Warnings, st.Redis.ChecksOff = r.inspector.findings()
	if st.Redis.Embedded {
		st.Redis.Warnings = append([]string{embedded.Notice}, st.Redis.Warnings...)
	}
	st.NotReady = r.notReady(now, st.Registry)
	st.Ready = st.NotReady == ""
	return st
}

// notReady says why devices should not be sent here; empty: they may be.
// Redis has no say in it once a heartbeat has landed, or has had a TTL's time to:
// taking every replica out of service would only add to its trouble. A replica
// that Redis refused from the start is never ready: its settings are wrong, and a
// rollout must not replace good replicas by such.
func (r *replica) notReady(now time.Time, reg registry.Status) string {
	switch {
	case r.draining.Load():
		return "draining: this replica stops"
	case r.settings.Devices() && r.devices.Load() == nil:
		return "starting: the device listener is not open yet"
	case reg.LastBeat.IsZero() && reg.Refused != "":
		return "refused: Redis does not accept this replica: " + reg.Refused
	case reg.LastBeat.IsZero() && now.Sub(r.began) < r.settings.HeartbeatTTL:
		return "starting: no heartbeat has landed yet"
	}
	return ""
}

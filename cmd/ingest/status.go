package main

import (
	"time"

	"github.com/rollcall-redis/rollcall/internal/service"
	"github.com/rollcall-redis/rollcall/registry"
)

// status is what this replica knows, without asking anybody.
func (r *replica) status() service.Status {
	now := time.Now()
	st := service.Status{
		Instance: r.registry.Instance(),
		Version:  service.Version(),
		Time:     now,
		Started:  r.began,
		HTTPAddr: r.http.Addr(),
		Admin:    r.settings.AdminToken != "",
		Devices:  service.DevicesStatus{Connections: r.gateway.Connections(), MaxConnections: r.maxConns},
		Registry: r.registry.Status(),
		Janitor:  r.janitor.Status(),
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

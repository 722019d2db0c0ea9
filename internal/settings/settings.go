// Package settings reads what an operator may set, from the environment and
// from flags, and refuses whatever it does not understand.
//
// Every setting has one name: HEARTBEAT_TTL in the environment is
// --heartbeat-ttl as a flag, and a flag wins over the environment. An empty
// environment variable counts as not set, since compose files and charts
// produce those; anything else that cannot be understood is a fault and never
// a silent default. All faults are found in one go and reported together, so
// that an operator repairs a deployment once and not seven times.
//
// REDIS_URL has no default: a misspelt variable must not start a replica that is
// alone with a Redis of its own. [EmbeddedRedis] names that one.
//
// REDIS_URL and ADMIN_TOKEN hold secrets: no error, help text or log line that
// this package produces repeats any part of their values.
package settings

import (
	"log/slog"
	"time"
)

// Off is the value of an address at which nobody listens; with every INGEST
// address off a replica has no device sockets.
const Off = "off"

// Values of DEVICE_AUTHORITY.
const (
	Everybody  = "everybody"
	AllowedSet = "set"
)

// Settings is everything that can be set, validated. The zero value is of no
// use; [Load] makes one.
type Settings struct {
	// Redis says which server to use.
	Redis Redis
	// InstanceID names this replica; empty lets the registry choose one that is
	// unique per boot.
	InstanceID string

	// IngestAddr is where devices connect, host:port, or [Off].
	IngestAddr string
	// IngestMaxConns bounds open device sockets; further ones wait in the
	// kernel's backlog.
	IngestMaxConns int
	// IngestTLSAddr is where devices connect by TLS, or [Off], with the files of
	// IngestTLSCert and its key.
	IngestTLSAddr, IngestTLSCert, IngestTLSKey string
	// IngestProxyAddr is where load balancers connect that speak the PROXY
	// protocol, or [Off]; IngestProxyTrusted are their CIDRs.
	IngestProxyAddr    string
	IngestProxyTrusted []string
	// DeviceAuthority says which devices are served: [Everybody] or those of an
	// [AllowedSet].
	DeviceAuthority string
	// HTTPAddr is where metrics, health, status and admin are served.
	HTTPAddr string
	// AdminToken is the bearer token for everything that changes something;
	// empty turns those requests off.
	AdminToken Secret

	// HeartbeatInterval and HeartbeatTTL: how often a heartbeat is written, and
	// how long it stands. TTL is at least three times the interval, because with
	// two a single lost beat kills a living replica.
	HeartbeatInterval, HeartbeatTTL time.Duration

	// JanitorInterval is the time between two audits of the whole registry.
	JanitorInterval time.Duration
	// JanitorLeaseTTL is how long leadership outlives a leader that died.
	JanitorLeaseTTL time.Duration
	// JanitorScanCount and JanitorDeleteBatch: entries a page of an audit, and
	// entries a guarded delete.
	JanitorScanCount, JanitorDeleteBatch int
	// JanitorExistsConcurrency bounds liveness checks under way.
	JanitorExistsConcurrency int
	// JanitorRedisShare is the most of Redis' time that sweeping may take, above
	// 0 and at most 1.
	JanitorRedisShare float64
	// JanitorDryRun judges and reports, and deletes nothing.
	JanitorDryRun bool

	// ReverseIndex keeps, per instance, the set of its devices.
	ReverseIndex bool
	// TelemetryMaxLen is the approximate cap, in entries, of each telemetry
	// stream.
	TelemetryMaxLen int64

	// ShutdownGrace bounds a graceful stop.
	ShutdownGrace time.Duration
	// LogLevel and LogJSON shape the log.
	LogLevel slog.Level
	LogJSON  bool
}

// Devices reports whether this replica accepts device sockets.
func (s *Settings) Devices() bool {
	return s.IngestAddr != Off || s.IngestTLSAddr != Off || s.IngestProxyAddr != Off
}

// Secret is a string that prints as whether it is set, so that it can stand in
// a struct that is logged.
type Secret string

// String says whether the secret is set, and nothing else of it.
func (s Secret) String() string {
	if s == "" {
		return "(empty)"
	}
	return "(set)"
}

// GoString keeps %#v from printing what String hides.
func (s Secret) GoString() string { return s.String() }

// MarshalText keeps JSON and other encoders from writing what String hides.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

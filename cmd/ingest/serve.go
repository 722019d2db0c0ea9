package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/commands"
	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

type replica struct {
	*program.Core
	settings *settings
	gateway  *gateway.Gateway
	commands *commands.Reader

	certificate func() *tls.Certificate     // for devices; nil: none use TLS
	clientCAs   func() *x509.CertPool       // of devices; nil: they need no certificate
	maxConns    int                         // INGEST_MAX_CONNS, or less by the descriptor limit
	devices     atomic.Pointer[net.TCPAddr] // nil until a listener is open
	nobody      atomic.Bool                 // DEVICE_AUTHORITY=set, and the set is empty
}

// serve stops sockets of devices before the registry, and commands before those: what waits for an
// answer may still get it, since the sockets are open. The TTLs and the leader handle the rest.
func serve(ctx context.Context, s *settings, log *slog.Logger) error {
	r := &replica{settings: s}
	s.Namespace = "teltonika"
	return program.Program{
		Name: "ingest", Base: &s.Base, Fleet: &s.Fleet, NoIndex: !s.reverseIndex, Page: pageText,
		Before: func(_ context.Context, c *program.Core) error {
			r.Core = c
			s.divide() // again: Redis may have been recognised as a Cluster
			return nil
		},
		Sweeps: func(c *program.Core) []janitor.Sweeper {
			return []janitor.Sweeper{commands.NewSweep(c.Registry.Home())}
		},
		Made: r.made,
		Around: map[string]func(program.Run) program.Run{
			"registry": r.undivided,
		},
		Parts: func() []program.Part {
			return []program.Part{
				{Name: "commands", Run: program.Accepted(r.Registry.Status, r.commands.Run), Tenths: 1},
				{Name: "devices", Run: r.serveDevices, Tenths: 4},
				{Name: "partitions", Run: r.checkDivided, Tenths: 4},
				{Name: "allowed", Run: r.countAllowed, Tenths: 4},
			}
		},
		Status: func(st console.Status) console.Stated { return r.status(st) },
	}.Serve(ctx, log)
}

func (r *replica) made(ctx context.Context, c *program.Core) error {
	s := r.settings
	r.maxConns = affordable(s.ingestMaxConns, cli.OpenFiles())
	if r.maxConns < s.ingestMaxConns {
		level := slog.LevelInfo // nobody chose the default
		if s.maxConnsGiven {
			level = slog.LevelWarn
		}
		c.Log.Log(ctx, level, "INGEST_MAX_CONNS is more than the limit of open files allows and was lowered",
			"wanted", s.ingestMaxConns, "allowed", r.maxConns)
	}
	allowed := ""
	if s.deviceAuthority == allowedSet {
		allowed = gateway.Allowed
	}
	if err := r.openTLS(ctx); err != nil {
		return fmt.Errorf("ingest: %w", err)
	}
	r.gateway = gateway.New(gateway.Config{
		Register: func(imei string, end func() error) gateway.Claim {
			return c.Registry.Register(imei, registry.Socket{Close: end})
		},
		Client: c.Clients.Data, Allowed: allowed, MaxConns: r.maxConns, FirstFrame: s.ingestFirstFrame,
		ClientCAs: r.clientCAs, Certificate: r.certificate, Streams: s.streams(), MaxLen: s.telemetryMaxLen,
		Drain: s.ShutdownGrace * 3 / 10, StartSpan: c.Traces.StartSpan(), Logger: c.Log, Registerer: c.Metrics,
	})
	r.commands = commands.New(commands.Config{
		Instance: c.Registry.Instance(), Layout: c.Registry.Home(), Devices: r.gateway,
		Lookup: c.Registry.Lookup, Client: c.Clients.Data, Blocking: c.Clients.Blocking,
		Drain: s.ShutdownGrace / 10, Logger: c.Log, Registerer: c.Metrics,
	})
	return nil
}

func (r *replica) openTLS(ctx context.Context) error {
	s := r.settings
	if !s.overTLS() {
		return nil
	}
	pair, err := reload.Open("INGEST_TLS_CERT, INGEST_TLS_KEY", func(texts []string) (*tls.Certificate, error) {
		return gateway.ParseCertificate(texts[0], texts[1], s.ingestTLSExpired == "accept")
	}, s.ingestTLSCert, s.ingestTLSKey)
	if err != nil {
		return err
	}
	r.certificate, r.Files = pair.Get, append(r.Files, pair)
	if s.ingestTLSClientCA == "" {
		return nil
	}
	cas, err := reload.Open("INGEST_TLS_CLIENT_CA", func(texts []string) (*x509.CertPool, error) {
		return gateway.ParseClientCAs(texts[0])
	}, s.ingestTLSClientCA)
	if err != nil {
		return err
	}
	r.clientCAs, r.Files = cas.Get, append(r.Files, cas)
	if open := s.withoutCertificate(); len(open) > 0 {
		r.Log.WarnContext(ctx, "devices may still connect without a certificate, and name any IMEI",
			"by", strings.Join(open, ", "))
	}
	return nil
}

// reserve is a replica's descriptors beside device sockets: Redis pools, HTTP, listeners.
const reserve = 256

// affordable bounds the sockets of devices by the descriptor limit, which sockets without an IMEI
// share. Otherwise a flood of devices takes the descriptors needed to dial Redis, and a replica
// that loses Redis once never reconnects.
func affordable(want, limit int) int {
	most := max(2, limit-min(reserve, limit/2))
	return min(want, most-gateway.Unidentified(most))
}

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

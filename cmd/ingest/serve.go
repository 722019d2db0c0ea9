package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"

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

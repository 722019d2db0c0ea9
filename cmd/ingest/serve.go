package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/commands"
	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/partition"
	"github.com/rollcall-redis/rollcall/registry"
)

type replica struct {
	settings *settings
	log      *slog.Logger
	began    time.Time
	traces   *tracing.Tracing

	clients   *connect.Clients
	inspector *connect.Inspector
	http      *console.HTTP
	registry  *partition.Registry
	janitor   *partition.Janitor
	gateway   *gateway.Gateway
	commands  *commands.Reader
	files     *reload.Watcher

	certificate *gateway.Certificate // for devices; nil: none use TLS

	clientCAs []reload.Watched // INGEST_TLS_CLIENT_CA, if set

	maxConns int                         // INGEST_MAX_CONNS, or less by the descriptor limit
	devices  atomic.Pointer[net.TCPAddr] // nil until a listener is open
	draining atomic.Bool
}

// mostReply bounds a reply of Redis. The largest necessary one is a page of a scan: 20,000 entries
// are below 2 MB.
const mostReply = 16 << 20

// serve returns nil if ctx ended and everything stopped within the grace.
func serve(ctx context.Context, s *settings, log *slog.Logger) (err error) {
	r := &replica{settings: s, log: log, began: time.Now()}
	r.traces = tracing.Start(ctx, tracing.Config{
		Program: "ingest", Version: cli.Version(), Instance: s.InstanceID, Logger: log,
	})
	defer r.traces.Close()
	s.Redis.MostReply = mostReply
	if r.clients, err = connect.Open(ctx, &s.Redis, s.controlDeadline()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.clients.Close()) }()
	if err := r.assemble(ctx); err != nil {
		return s.beside(ctx, err)
	}
	defer r.http.Close()
	return s.beside(ctx, r.run(ctx))
}

func (s *settings) beside(ctx context.Context, err error) error {
	return s.Beside(ctx, err, "make run ARGS='%s'", [2]string{"INGEST_ADDR", s.ingestAddr},
		[2]string{"INGEST_TLS_ADDR", s.ingestTLSAddr}, [2]string{"INGEST_PROXY_ADDR", s.ingestProxyAddr})
}

// assemble checks once whether Redis is usable, if Redis answers. The HTTP listener comes last, so
// that an address in use is reported before anything has begun.
func (r *replica) assemble(ctx context.Context) (err error) {
	s, log := r.settings, r.log
	if r.inspector, err = connect.Inspect(ctx, r.clients, log); err != nil {
		return err
	}
	metrics := program.Metrics()
	layout, partitions := s.division()
	r.registry, err = partition.NewRegistry(registry.Config{
		Layout: layout,
		Client: r.clients.Data, Control: r.clients.Control, Instance: s.InstanceID, Unique: s.Unique,
		HeartbeatInterval: s.heartbeatInterval, HeartbeatTTL: s.heartbeatTTL,
		Drain: s.ShutdownGrace * 3 / 10, NoReverseIndex: !s.reverseIndex,
		Logger: log, Registerer: metrics, Namespace: "teltonika",
	}, partitions)
	if err != nil {
		return err
	}
	r.janitor, err = partition.NewJanitor(janitor.Config{
		Client: r.clients.Data, Control: r.clients.Control,
		Interval: s.janitorInterval, LeaseTTL: s.janitorLeaseTTL,
		ScanCount: s.janitorScanCount, DeleteBatch: s.janitorDeleteBatch,
		ExistsConcurrency: s.janitorExistsConcurrency, RedisShare: s.janitorRedisShare,
		DryRun: s.janitorDryRun, Sweeps: []janitor.Sweeper{commands.NewSweep(r.registry.Home())},
		StartSpan: r.traces.StartSpan(), Logger: log, Registerer: metrics,
	}, r.registry)
	if err != nil {
		return err
	}
	r.maxConns = affordable(s.ingestMaxConns, cli.OpenFiles())
	if r.maxConns < s.ingestMaxConns {
		level := slog.LevelInfo // nobody chose the default
		if s.maxConnsGiven {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "INGEST_MAX_CONNS is more than the limit of open files allows and was lowered",
			"wanted", s.ingestMaxConns, "allowed", r.maxConns)
	}
	allowed := ""
	if s.deviceAuthority == allowedSet {
		allowed = gateway.Allowed
	}
	clientCAs, err := r.openTLS(ctx)
	if err != nil {
		return err
	}
	r.gateway, err = gateway.New(gateway.Config{
		Register: func(imei string, end func() error) gateway.Claim {
			return r.registry.Register(imei, registry.Socket{Close: end})
		},
		Client: r.clients.Data, Allowed: allowed, MaxConns: r.maxConns, FirstFrame: s.ingestFirstFrame,
		ClientCAs: clientCAs, Certificate: r.certificate, Streams: s.streams(), MaxLen: s.telemetryMaxLen,
		Drain: s.ShutdownGrace * 3 / 10, StartSpan: r.traces.StartSpan(), Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	r.commands, err = commands.New(commands.Config{
		Instance: r.registry.Instance(), Layout: r.registry.Home(), Devices: r.gateway,
		Lookup: r.registry.Lookup, Client: r.clients.Data, Blocking: r.clients.Blocking,
		Drain: s.ShutdownGrace / 10, Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	tokens, files, err := s.Tokens()
	if err != nil {
		return err
	}
	r.files, err = reload.New(reload.Config{
		Files: slices.Concat(files, r.clients.Files, r.clientCAs), Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	r.http, err = console.ListenHTTP(ctx, console.HTTPConfig{
		Addr: s.HTTPAddr, Hosts: s.HTTPHosts, Tokens: tokens, Janitor: r.janitor,
		Program: "ingest", Client: r.clients.Data, Layout: r.registry.Layout(),
		Status: func() console.Stated { return r.status() }, Page: pageText,
		Metrics: metrics, Logger: log,
	})
	return err
}

// openTLS returns nil if devices need no certificate.
func (r *replica) openTLS(ctx context.Context) (clientCAs func() *x509.CertPool, err error) {
	s := r.settings
	if !s.overTLS() {
		return nil, nil
	}
	r.certificate, err = gateway.LoadCertificate(s.ingestTLSCert, s.ingestTLSKey, s.ingestTLSExpired == "accept", r.log)
	if err != nil {
		return nil, fmt.Errorf("ingest: INGEST_TLS_CERT, INGEST_TLS_KEY: %w", err)
	}
	if s.ingestTLSClientCA == "" {
		return nil, nil
	}
	file, err := reload.Open("INGEST_TLS_CLIENT_CA", func(texts []string) (*x509.CertPool, error) {
		return gateway.ParseClientCAs(texts[0])
	}, s.ingestTLSClientCA)
	if err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	r.clientCAs = []reload.Watched{file}
	if open := s.withoutCertificate(); len(open) > 0 {
		r.log.WarnContext(ctx, "devices may still connect without a certificate, and name any IMEI",
			"by", strings.Join(open, ", "))
	}
	return file.Get, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rollcall-redis/rollcall/internal/commands"
	"github.com/rollcall-redis/rollcall/internal/embedded"
	"github.com/rollcall-redis/rollcall/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/settings"
	"github.com/rollcall-redis/rollcall/internal/web"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// replica is one running instance and its parts.
type replica struct {
	settings *settings.Settings
	log      *slog.Logger
	began    time.Time

	clients   *clients
	inspector *inspector
	registry  *registry.Registry
	janitor   *janitor.Janitor
	gateway   *gateway.Gateway
	commands  *commands.Reader
	web       *web.Server
	page      net.Listener

	certificate *gateway.Certificate // of INGEST_TLS_ADDR; nil if that is off

	maxConns int                         // INGEST_MAX_CONNS, or what the descriptor limit allows
	devices  atomic.Pointer[net.TCPAddr] // where devices connect; nil: nowhere (yet)
	draining atomic.Bool
}

// serve is a replica's whole life: it assembles everything, serves until ctx ends
// or a part fails, and stops everything. The error is nil after ctx ended and all
// has stopped within the grace.
func serve(ctx context.Context, s *settings.Settings, log *slog.Logger) error {
	r, err := assemble(ctx, s, log)
	if err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return errors.Join(err, r.close())
	}
	return r.close()
}

// assemble makes a replica's parts. It opens the HTTP listener, so that an
// address in use is known before anything has begun, and asks Redis once whether
// it can be used, if it answers.
func assemble(ctx context.Context, s *settings.Settings, log *slog.Logger) (_ *replica, err error) {
	r := &replica{settings: s, log: log, began: time.Now()}
	if r.clients, err = connect(s); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.inspector = &inspector{client: r.clients.data, server: r.clients.server, log: log}
	if r.clients.embedded != nil {
		log.Warn(embedded.Notice, "addr", r.clients.embedded.Addr())
	}
	if _, err = r.inspector.look(ctx); err != nil {
		return nil, err
	}

	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.registry, err = registry.New(registry.Config{
		Client: r.clients.data, Control: r.clients.control, Instance: s.InstanceID,
		HeartbeatInterval: s.HeartbeatInterval, HeartbeatTTL: s.HeartbeatTTL,
		Drain: s.ShutdownGrace * 3 / 10, NoReverseIndex: !s.ReverseIndex,
		// The gateway is there before the first device is.
		OnDisplaced: func(imei, owner string) { r.gateway.Displaced(imei, owner) },
		Logger:      log, Registerer: metrics, Namespace: "teltonika",
	})
	if err != nil {
		return nil, err
	}
	r.janitor, err = janitor.New(janitor.Config{
		Client: r.clients.data, Control: r.clients.control, Registry: r.registry,
		Interval: s.JanitorInterval, LeaseTTL: s.JanitorLeaseTTL,
		ScanCount: s.JanitorScanCount, DeleteBatch: s.JanitorDeleteBatch,
		ExistsConcurrency: s.JanitorExistsConcurrency, RedisShare: s.JanitorRedisShare, DryRun: s.JanitorDryRun,
		Sweeps: []janitor.Sweep{commands.NewSweep(r.registry.Layout())},
		Logger: log, Registerer: metrics,
	})
	if err != nil {
		return nil, err
	}
	r.maxConns = affordable(s.IngestMaxConns)
	if r.maxConns < s.IngestMaxConns {
		log.Warn("INGEST_MAX_CONNS is more than the limit of open files allows and was lowered", "wanted", s.IngestMaxConns, "allowed", r.maxConns)
	}
	allowed := ""
	if s.DeviceAuthority == settings.AllowedSet {
		allowed = gateway.Allowed
	}
	r.gateway, err = gateway.New(gateway.Config{
		Register: func(imei string) gateway.Claim { return r.registry.Register(imei) },
		Client:   r.clients.data, Allowed: allowed, MaxLen: s.TelemetryMaxLen, MaxConns: r.maxConns,
		Drain: s.ShutdownGrace * 3 / 10, Logger: log, Registerer: metrics,
	})
	if err != nil {
		return nil, err
	}
	r.commands, err = commands.New(commands.Config{
		Instance: r.registry.Instance(), Layout: r.registry.Layout(), Devices: r.gateway,
		Client: r.clients.data, Blocking: r.clients.blocking,
		Drain: s.ShutdownGrace / 10, Logger: log, Registerer: metrics,
	})
	if err != nil {
		return nil, err
	}
	if s.IngestTLSAddr != settings.Off {
		if r.certificate, err = gateway.LoadCertificate(s.IngestTLSCert, s.IngestTLSKey, log); err != nil {
			return nil, fmt.Errorf("ingest: INGEST_TLS_CERT, INGEST_TLS_KEY: %w", err)
		}
	}
	r.page, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.HTTPAddr)
	if err != nil {
		return nil, fmt.Errorf("ingest: HTTP_ADDR: %w", err)
	}
	r.web = web.New(web.Config{Status: r.status, Janitor: r.janitor, Token: string(s.AdminToken), Metrics: metrics, Logger: log})
	return r, nil
}

// close gives back what assemble took.
func (r *replica) close() error {
	if r.page != nil {
		_ = r.page.Close() // its server has closed it, if it ever served
	}
	if err := r.clients.close(); err != nil {
		return fmt.Errorf("ingest: close Redis clients: %w", err)
	}
	return nil
}

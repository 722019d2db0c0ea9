package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/partition"
)

// startBound is how long the device listener waits for the registry to reach Redis and to hand
// back the claims of an earlier process of this instance.
const startBound = 15 * time.Second

// run serves until ctx ends or a part fails, then stops every part. Each has a share of the
// grace, in this order:
//
//  1. Readiness ends. Commands are no longer read or sent; those that wait for an answer may still
//     get it, since their sockets are open (1/10).
//  2. The device listener closes. Each socket finishes its current frame and releases its claim,
//     while the janitor joins its passes and releases the lease (3/10).
//  3. The registry, which beats until then, hands back the remaining claims and sends its goodbye
//     (2/10, and 3 s if Redis is slow to answer the goodbye). Not earlier: a heartbeat that ends
//     under a leader raises a hold, and then the whole fleet cannot sweep.
//  4. HTTP, which shows and measures all of that, ends last (1/10).
//
// The TTLs and the leader handle the rest.
func (r *replica) run(ctx context.Context) error {
	parts := program.NewParts(ctx, r.settings.ShutdownGrace, r.log)
	parts.Go("http", r.http.Run)
	parts.Go("registry", func(ctx context.Context) error {
		if _, err := r.refuseDivided(ctx); err != nil { // before the first beat: its end is not a death
			return err
		}
		return r.registry.Run(ctx)
	})
	parts.Go("inspector", r.inspector.Run)
	parts.Go("partitions", r.checkDivided)
	parts.Go("files", r.files.Run)
	parts.Go("janitor", program.Accepted(r.registry.Status, r.janitor.Run))
	parts.Go("devices", r.serveDevices)
	parts.Go("commands", program.Accepted(r.registry.Status, r.commands.Run))

	parts.Wait()
	r.draining.Store(true)
	parts.Stop(1, "commands")
	parts.Stop(4, "janitor", "inspector", "partitions", "files", "devices")
	if left := parts.Stop(6, "registry"); len(left) > 0 {
		// No context ends a call that waits for a silent Redis, but closing the client does.
		_ = r.clients.Data.Close()
	}
	parts.Stop(9)
	parts.Stop(10, "http")
	return parts.End()
}

// checkDivided asks until Redis answers.
func (r *replica) checkDivided(ctx context.Context) error {
	for {
		known, err := r.refuseDivided(ctx)
		if known || err != nil || !wait.For(ctx, r.settings.heartbeatInterval/10) {
			return err
		}
	}
}

// refuseDivided returns an error if the fleet's registry is divided and this replica's is not:
// nobody would find its devices. A registry with a prefix detects this itself. known is
// false if Redis did not answer.
func (r *replica) refuseDivided(ctx context.Context) (known bool, err error) {
	if r.registry.Layout() == divided {
		return true, nil
	}
	n, err := partition.Count(ctx, r.clients.Control, divided)
	if n > 1 {
		return true, fmt.Errorf("%w: %s says %d; set REGISTRY_PARTITIONS to that, or, if that fleet is no "+
			"more, delete the key", partition.ErrPartitionsDiffer, divided.Partitions(), n)
	}
	return err == nil || redis.IsPermissionError(err), nil // a user without that right is in no such fleet
}

func (r *replica) serveDevices(ctx context.Context) error {
	if !r.settings.devices() {
		return nil
	}
	select {
	case <-r.registry.Started():
	case <-time.After(startBound):
		r.log.Warn("serving devices although the registry has not started")
	case <-ctx.Done():
		return nil
	}
	lns, err := r.listen(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return r.gateway.Serve(ctx, lns...)
}

// listen opens none if one fails.
func (r *replica) listen(ctx context.Context) (lns []net.Listener, err error) {
	s := r.settings
	defer func() {
		if err != nil {
			for _, ln := range lns {
				_ = ln.Close()
			}
		}
	}()
	for _, at := range []struct {
		setting, addr, message string
		wrap                   func(net.Listener) (net.Listener, error)
	}{
		{"INGEST_ADDR", s.ingestAddr, "listening for devices", nil},
		{"INGEST_TLS_ADDR", s.ingestTLSAddr, "listening for devices by TLS",
			func(ln net.Listener) (net.Listener, error) {
				return r.gateway.OverTLS(ln, r.certificate), nil
			}},
		{"INGEST_PROXY_ADDR", s.ingestProxyAddr, "listening for devices behind proxies",
			func(ln net.Listener) (net.Listener, error) {
				ln, err := r.gateway.Proxied(ln, s.ingestProxyTrusted)
				if err == nil && s.ingestProxyTLS {
					ln = r.gateway.OverTLS(ln, r.certificate)
				}
				return ln, err
			}},
	} {
		if at.addr == cli.Off {
			continue
		}
		ln, err := gateway.Listen(ctx, at.addr)
		if err != nil {
			return lns, fmt.Errorf("ingest: %s: %w", at.setting, err)
		}
		lns = append(lns, ln)
		if at.wrap != nil {
			wrapped, err := at.wrap(ln)
			if err != nil {
				return lns, fmt.Errorf("ingest: %s: %w", at.setting, err)
			}
			lns[len(lns)-1] = wrapped
		}
		r.log.Info(at.message, "addr", ln.Addr().String())
	}
	if addr, ok := lns[0].Addr().(*net.TCPAddr); ok {
		r.devices.Store(addr)
	}
	return lns, nil
}

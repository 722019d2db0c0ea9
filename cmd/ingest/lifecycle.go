package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/settings"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// startBound is how long the device listener waits for the registry to meet
// Redis and to hand back what a former life of this instance left.
const startBound = 15 * time.Second

// errOverrun: something did not end in time.
var errOverrun = errors.New("ingest: not stopped within SHUTDOWN_GRACE")

// part is a long-running piece of a replica, with a context of its own, since
// parts stop one after the other.
type part struct {
	name string
	stop context.CancelFunc
	done chan struct{} // closed when it has ended
}

// begin starts a part. An error that it ends with goes to failed, which has room
// for one of each part.
func begin(ctx context.Context, failed chan<- error, name string, run func(context.Context) error) *part {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{name: name, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if err := run(ctx); err != nil {
			failed <- err
		}
	}()
	return p
}

// join waits until the parts have ended, or for as long as until, and returns
// the names of those that have not.
func join(until time.Time, parts ...*part) (left []string) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	late := false
	for _, p := range parts {
		if !late {
			select {
			case <-p.done:
				continue
			case <-timer.C:
				late = true
			}
		}
		select {
		case <-p.done:
		default:
			left = append(left, p.name)
		}
	}
	return left
}

// run serves until ctx ends or a part fails, and stops every part. They stop in
// this order, each within its share of the grace:
//
//  1. readiness goes; no command is read or sent any more, and those that wait
//     for an answer may have it, since their sockets are still open (1/10);
//  2. the device listener closes; each socket finishes the
//     frame under way and releases its claim, while the janitor joins its passes
//     and releases the lease (3/10);
//  3. the registry, beating until then, hands back what is left and says goodbye
//     (2/10, and 3 s for a goodbye that Redis is slow to take). Not before: a
//     heartbeat that is gone under a leader raises a doubt, and holds the whole
//     fleet's sweeping;
//  4. HTTP, which shows and measures all of that, ends last (1/10).
//
// What is then not done is left to the TTLs and to the leader.
func (r *replica) run(ctx context.Context) error {
	failed := make(chan error, 6)
	http := begin(ctx, failed, "http", r.serveHTTP)
	beats := begin(ctx, failed, "registry", r.registry.Run)
	inspector := begin(ctx, failed, "inspector", r.inspector.run)
	sweeps := begin(ctx, failed, "janitor", r.accepted(r.janitor.Run))
	devices := begin(ctx, failed, "devices", r.serveDevices)
	commands := begin(ctx, failed, "commands", r.accepted(r.commands.Run))

	var failure error
	select {
	case <-ctx.Done():
		r.log.Info("stopping", "grace", r.settings.ShutdownGrace)
	case failure = <-failed:
		r.log.Error("a part failed, stopping", "error", failure)
	}
	r.draining.Store(true)
	grace := r.settings.ShutdownGrace
	now := time.Now()

	commands.stop()
	sweeps.stop()
	inspector.stop()
	join(now.Add(grace/10), commands)
	devices.stop()
	join(now.Add(grace*4/10), commands, devices, sweeps, inspector)
	beats.stop()
	if left := join(now.Add(grace*6/10), commands, devices, sweeps, inspector, beats); len(left) > 0 {
		// No context ends a call that waits for a silent Redis; this does.
		_ = r.clients.data.Close()
	}
	left := join(now.Add(grace*9/10), commands, devices, sweeps, inspector, beats)
	http.stop()
	left = append(left, join(now.Add(grace), http)...)
	if len(left) > 0 {
		return errors.Join(failure, fmt.Errorf("%w (%v): %s", errOverrun, grace, strings.Join(left, ", ")))
	}
	select {
	case err := <-failed: // of a part that failed while it stopped
		return errors.Join(failure, err)
	default:
		return failure
	}
}

// acceptedPoll is how often it is looked whether Redis accepts this replica.
const acceptedPoll = 20 * time.Millisecond

// accepted is a part that begins when the first heartbeat has landed, or Redis
// does not answer. While Redis refuses this replica the part could only say so
// once more.
func (r *replica) accepted(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			reg := r.registry.Status()
			if !reg.LastBeat.IsZero() || reg.Refused == "" && reg.Failing["heartbeat"] != "" {
				return run(ctx)
			}
			if !wait.For(ctx, acceptedPoll) {
				return nil
			}
		}
	}
}

func (r *replica) serveHTTP(ctx context.Context) error {
	r.log.Info("serving HTTP", "addr", r.page.Addr().String())
	return r.web.Serve(ctx, r.page)
}

// serveDevices opens the device listeners when the registry is ready for them, and
// serves them.
func (r *replica) serveDevices(ctx context.Context) error {
	if !r.settings.Devices() {
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
	if err != nil || len(lns) == 0 { // stopped meanwhile
		return err
	}
	return r.gateway.Serve(ctx, lns...)
}

// listen opens the listeners for devices: all, or none if one cannot be opened or ctx has ended.
func (r *replica) listen(ctx context.Context) (lns []net.Listener, err error) {
	s := r.settings
	plain := func(ln net.Listener) (net.Listener, error) { return ln, nil }
	for _, at := range []struct {
		setting, addr, message string
		wrap                   func(net.Listener) (net.Listener, error)
	}{
		{"INGEST_ADDR", s.IngestAddr, "listening for devices", plain},
		{"INGEST_TLS_ADDR", s.IngestTLSAddr, "listening for devices by TLS", func(ln net.Listener) (net.Listener, error) {
			return tls.NewListener(ln, r.certificate.Config()), nil
		}},
		{"INGEST_PROXY_ADDR", s.IngestProxyAddr, "listening for devices behind proxies", func(ln net.Listener) (net.Listener, error) {
			return r.gateway.Proxied(ln, s.IngestProxyTrusted)
		}},
	} {
		if at.addr == settings.Off {
			continue
		}
		ln, err := gateway.Listen(ctx, at.addr)
		if err == nil {
			lns = append(lns, ln)
			lns[len(lns)-1], err = at.wrap(ln)
		}
		if err != nil || ctx.Err() != nil {
			for _, ln := range lns {
				if ln != nil {
					_ = ln.Close()
				}
			}
			if ctx.Err() != nil {
				return nil, nil
			}
			return nil, fmt.Errorf("ingest: %s: %w", at.setting, err)
		}
		r.log.Info(at.message, "addr", ln.Addr().String())
	}
	if addr, ok := lns[0].Addr().(*net.TCPAddr); ok {
		r.devices.Store(addr)
	}
	return lns, nil
}

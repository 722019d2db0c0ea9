// Embed is an example of your own service with Rollcall inside: devices connect and send their id
// in a line, and the registry records which replica each one is on.
//
//	go run . 127.0.0.1:6379
//
// Start it as often as you like. The README shows the two marked regions, and a test compares them.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := listenAndServe(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func listenAndServe(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("expected the address of a Redis, got %q", args)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("devices connect to", ln.Addr())
	return serve(ctx, ln, &redis.Options{Addr: args[0], MaxRetries: -1, ContextTimeoutEnabled: true})
}

// serve runs one replica until ctx ends or a part of it fails.
func serve(ctx context.Context, ln net.Listener, opt *redis.Options) error {
	// README: replica
	rdb := redis.NewClient(opt) // for registrations and sweeps
	defer rdb.Close()
	// for lease, ticks and heartbeats: no load may starve them
	ctl := redis.NewClient(lease.Options(opt))
	defer ctl.Close()
	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl})
	if err != nil {
		return err
	}
	jan, err := janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg})
	if err != nil {
		return err
	}
	g := pool.New().WithContext(ctx).WithCancelOnError()
	g.Go(reg.Run) // beats and heals; when ctx ends it waits for releases, then says goodbye
	g.Go(jan.Run) // contends for the lease, listens to Redis, sweeps while it leads
	g.Go(func(ctx context.Context) error { return accept(ctx, ln, reg) })
	return g.Wait()
	// README: end
}

// accept serves devices until ctx ends, and returns when their sockets are closed.
func accept(ctx context.Context, ln net.Listener, reg *registry.Registry) error {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	sockets := pool.New()
	defer sockets.Wait()
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		sockets.Go(func() { device(ctx, conn, reg) })
	}
}

// device serves one socket: a line with the device's id, then one line per message. It answers
// each message.
func device(ctx context.Context, conn net.Conn, reg *registry.Registry) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	lines := bufio.NewScanner(conn)
	if !lines.Scan() {
		return
	}
	// README: socket
	claim := reg.Register(lines.Text()) // never fails, never blocks; Redis may be away
	defer claim.Release()
	for lines.Scan() {
		claim.FrameReceived() // evidence that the device is really here
		if _, err := fmt.Fprintln(conn, "ok"); err != nil {
			return
		}
		claim.FrameAcked()
	}
	// README: end
}

// Embed is an example of your own service with Rollcall inside: devices connect and send their id
// in a line, and the registry records which replica each one is on.
//
//	go run . 127.0.0.1:6379
//
// Start it as often as you like. The README shows the marked regions, and a test compares them.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall"
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
	return serve(ctx, ln, &redis.Options{Addr: args[0]})
}

// serve runs one replica until ctx ends or a part of it fails.
func serve(ctx context.Context, ln net.Listener, opt *redis.Options) error {
	// README: replica
	replica, err := rollcall.New(rollcall.Config{Redis: opt})
	if err != nil {
		return err
	}
	g := pool.New().WithContext(ctx).WithCancelOnError()
	g.Go(replica.Run) // when ctx ends it closes the sockets and leaves
	g.Go(func(ctx context.Context) error { return accept(ctx, ln, replica) })
	return g.Wait()
	// README: end
}

// accept serves devices until ctx ends. Rollcall closes their sockets.
func accept(ctx context.Context, ln net.Listener, replica *rollcall.Replica) error {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go device(ctx, conn, replica)
	}
}

// device serves one socket: a line with the device's id, then one for each device that it asks for.
func device(ctx context.Context, conn net.Conn, replica *rollcall.Replica) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	if !lines.Scan() {
		return
	}
	// README: socket
	claim := replica.Register(lines.Text(), rollcall.Socket{Close: conn.Close}) // never fails, never blocks
	defer claim.Release()
	for lines.Scan() { // ends when Rollcall closes the socket: its device has a newer one
		fmt.Fprintln(conn, where(ctx, replica, lines.Text()))
	}
	// README: end
}

// where returns which replica has a device, by whichever replica it is asked.
func where(ctx context.Context, replica *rollcall.Replica, id string) string {
	// README: lookup
	owner, err := replica.Lookup(ctx, id)
	switch {
	case errors.Is(err, rollcall.ErrNotFound):
		return "nobody has " + id
	case err != nil:
		return "Redis: " + err.Error()
	case !owner.Live:
		return owner.Instance + " had it, and is dead"
	}
	return owner.Instance
	// README: end
}

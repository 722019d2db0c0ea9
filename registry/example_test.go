package registry_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// A replica registers a device while its socket is open, and any replica can look the device up.
func Example() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	opt := &redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	ctl := redis.NewClient(lease.Options(opt)) // for heartbeats: no load may starve them
	defer ctl.Close()

	reg, err := registry.New(registry.Config{
		Client: rdb, Control: ctl, Instance: "replica-1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := reg.Run(ctx); err != nil {
			panic(err)
		}
	})
	<-reg.Started() // open your listeners now

	claim := reg.Register("356307042441013") // a socket has identified itself as this device
	// a real service waits for a second at most, then serves the device anyway
	if err := claim.Wait(ctx); err != nil {
		panic(err)
	}
	claim.FrameReceived()
	claim.FrameAcked()
	owner, err := reg.Lookup(ctx, "356307042441013")
	fmt.Println(owner.Instance, owner.Live, err)

	claim.Release() // the socket closed
	stop()
	running.Wait() // Run removes the entry and says goodbye
	fmt.Println(rdb.Keys(context.Background(), "*").Val())
	// Output:
	// replica-1 true <nil>
	// [janitor:beats]
}

// When a device reconnects here, its older, half-open socket is closed at once.
func ExampleConfig_onSuperseded() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	opt := &redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true}
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	defer rdb.Close()
	defer ctl.Close()

	var sockets sync.Map // *registry.Claim -> net.Conn
	reg, err := registry.New(registry.Config{
		Client: rdb, Control: ctl, Logger: slog.New(slog.DiscardHandler),
		OnSuperseded: func(older *registry.Claim) {
			if conn, found := sockets.Load(older); found {
				_ = conn.(net.Conn).Close()
			}
		},
	})
	if err != nil {
		panic(err)
	}

	serve := func(conn net.Conn) *registry.Claim { // Run may start later: Register never fails
		claim := reg.Register("356307042441013")
		sockets.Store(claim, conn)
		return claim
	}
	first, second := net.Pipe()
	defer second.Close()
	older := serve(first)
	newer := serve(second)
	_, err = first.Write(nil)
	fmt.Println("the older socket:", err)
	older.Release() // its goroutine ends, and undoes nothing
	newer.Release()
	// Output: the older socket: io: read/write on closed pipe
}

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

	conn, _ := net.Pipe() // a socket has identified itself as this device
	claim := reg.Register("356307042441013", registry.Socket{Close: conn.Close})
	// a real service waits for a second at most, then serves the device anyway
	if err := claim.Wait(ctx); err != nil {
		panic(err)
	}
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

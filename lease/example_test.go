package lease_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/lease"
)

// Two processes contend. The leader resigns by returning nil, and the other one follows at once.
func ExampleElector_Run() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(lease.Options(&redis.Options{Addr: server.Addr()}))
	defer client.Close()

	ctx, stop := context.WithCancel(context.Background())
	turns := make(chan *lease.Term)
	var running sync.WaitGroup
	for _, instance := range []string{"a", "b"} {
		elector, err := lease.New(lease.Config{
			Client:   client,
			Key:      "example:leader",
			Instance: instance,
			Logger:   slog.New(slog.DiscardHandler),
		})
		if err != nil {
			panic(err)
		}
		running.Go(func() {
			err := elector.Run(ctx, func(ctx context.Context, term *lease.Term) error {
				// Do here, while ctx lives, the work of one process only.
				select {
				case turns <- term:
				case <-ctx.Done():
				}
				return nil // resign: let another lead
			})
			if err != nil {
				panic(err)
			}
		})
	}

	first, second := <-turns, <-turns
	fmt.Println("epochs rise:", second.Epoch() > first.Epoch())
	stop()
	running.Wait()
	// Output: epochs rise: true
}

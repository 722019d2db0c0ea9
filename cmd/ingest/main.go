// Ingest accepts Teltonika trackers, stores their telemetry in Redis, keeps the
// registry of who holds which device, and takes its part in sweeping out what
// dead replicas left behind. Without a command it serves, on the Redis that
// REDIS_URL names; "ingest -h" shows every setting. "ingest command" sends a
// command to a device of a running fleet.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	// What go-redis would print reaches us as errors, which are counted or logged.
	logging.Disable()

	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals // whoever asks twice does not want to wait
		fmt.Fprintln(os.Stderr, "ingest: second signal, leaving at once")
		os.Exit(exitFailed)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

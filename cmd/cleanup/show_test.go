package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/orphan"
)

// watched is for make cleanup-demo.
var watched = flag.Bool("watched", false, "print TestShow as it happens")

const demoRules = `rules:
- name: carts
  delete: true
  keys: "cart:{user}"
  keep_if: [{exists: "session:{user}"}]
  grace: 2s
  bin: 1h
`

// TestShow is the demonstration of what the worker does beside a shop that leaks carts. Redis is
// inside it. Exactly the orphans go.
func TestShow(t *testing.T) {
	t.Parallel()
	// Customers whose session lives, and those who left a cart behind.
	const users, gone = 30, 7
	out, began := io.Discard, time.Now()
	if *watched {
		out = os.Stdout
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%5.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	var target connect.Redis
	require.NoError(t, target.Parse(connect.EmbeddedRedis))
	clients, err := connect.Open(t.Context(), &target, time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, clients.Close()) })
	rdb, ctx := clients.Data, t.Context()
	fill := func(what string, n int) {
		for user := range n {
			require.NoError(t, rdb.Set(ctx, fmt.Sprintf("%s:%d", what, user), user, 0).Err())
		}
	}
	carts := func() (n int) {
		for user := range users + gone {
			n += int(rdb.Exists(ctx, fmt.Sprint("cart:", user)).Val())
		}
		return n
	}
	fill("cart", users+gone)
	fill("session", users)
	flags := append(strings.Fields("--redis-url=redis://"+clients.Embedded+" --cleanup-interval=1s --cleanup-lease-ttl=2s "+
		"--heartbeat-interval=500ms --heartbeat-ttl=2s"), "--rules="+rulesFile(t, demoRules))
	say("a shop has %d carts; %d customers are gone. cleanup plan shows what would go:", users+gone, gone)
	require.Equal(t, cli.ExitOK, run(ctx, append([]string{"plan"}, flags...), out, out))

	p := programtest.Start(t, run, flags...)
	// until requires that the carts of those who live stay.
	until := func(happened func() bool) {
		p.Await(func() bool {
			for user := range users {
				require.EqualValues(t, 1, rdb.Exists(ctx, fmt.Sprint("cart:", user)).Val(), "the cart of %d, who lives", user)
			}
			return happened()
		})
	}
	say("a worker starts. It listens to Redis for 4 s before anything goes")
	until(func() bool { return carts() == users })
	say("%d carts are in the bin, %d of customers are left", gone, users)
	for user := range users {
		rdb.Del(ctx, fmt.Sprint("session:", user))
	}
	say("all sessions vanish: every cart looks orphaned, which the worker does not believe at once")
	bins := orphan.Bins{Client: rdb, Layout: guard.Layout{Prefix: "{cleanup}:"}}
	until(func() bool {
		passes, err := orphan.ReadPasses(ctx, rdb, bins.Layout)
		return err == nil && passes["carts"].Reason == "mass_failure"
	})
	say("the rule is held (mass_failure), and the shop puts the sessions back")
	fill("session", users)
	binned, err := bins.List(ctx, "")
	require.NoError(t, err)
	require.Len(t, binned, gone)
	_, err = bins.Restore(ctx, binned[0].ID)
	require.NoError(t, err)
	say("%s is put back from the bin, and will go again unless its session comes back", binned[0].Key)
	require.Equal(t, users+1, carts())
	p.Stop()
	require.Equal(t, cli.ExitOK, p.Ends())
	say("the worker has stopped. Exactly the orphans went")
}

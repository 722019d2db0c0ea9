package orphan_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
	"github.com/rollcall-redis/rollcall/registry"
)

// carts is a rule: a cart goes if its session is gone, and was gone a second before, too. The rule
// is held while the shop's counter of sessions is missing: then more may be missing.
var carts = rules.Rule{
	Name: "carts", Delete: true,
	Keys:       "shop:cart:{user}",
	KeepIf:     []rules.Sign{{Exists: "shop:session:{user}"}},
	UnlessLost: []rules.Reference{{Exists: "shop:sessions"}},
	Grace:      time.Second,
	Related:    []string{"shop:cart:{user}:notes"},
}

// Rules as Go structs, as sweeps of a janitor, on a real Redis.
func ExampleSet() {
	server := redistest.Shared(noTest{}) // stands for your Redis
	rdb, ctl := redis.NewClient(server.Options()), redis.NewClient(lease.Options(server.Options()))
	defer rdb.Close()
	defer ctl.Close()
	ctx, stop := context.WithCancel(context.Background())
	layout, log := guard.Layout{Prefix: "{shop-cleanup}:"}, slog.New(slog.DiscardHandler)
	listenedToForAnHour(ctx, rdb, layout)
	rdb.MSet(ctx, "shop:sessions", 1, "shop:session:ann", "here", "shop:cart:ann", "apples",
		"shop:cart:bob", "pears", "shop:cart:bob:notes", "a gift")

	// The registry has no devices: it is there for the worker's heartbeat.
	passes := make(chan orphan.Result, 100)
	reg, err := registry.New(registry.Config{
		Client: rdb, Control: ctl, Instance: "worker-1", Layout: layout, NoReverseIndex: true, Logger: log,
	})
	must(err)
	set, err := orphan.New(orphan.Config{
		Rules: []rules.Rule{carts}, Client: rdb, Layout: layout, Interval: time.Second, Logger: log,
		Passed: func(r orphan.Result) { passes <- r },
	})
	must(err)
	jan, err := janitor.New(janitor.Config{
		Client: rdb, Control: ctl, Registry: reg, Sweeps: set.Sweeps(), Logger: log,
	})
	must(err)
	worker := pool.New().WithContext(ctx).WithCancelOnError()
	worker.Go(reg.Run)
	worker.Go(jan.Run)

	removed := []string{} // what belongs to a cart goes a grace later
	for pass := range passes {
		if pass.Removed > 0 {
			removed = append(removed, pass.Rule)
		}
		if len(removed) == 2 {
			break
		}
	}
	fmt.Println("removed, by rule:", strings.Join(removed, ", "))
	fmt.Println("left:", rdb.Exists(ctx, "shop:cart:ann").Val(), "cart of ann,",
		rdb.Exists(ctx, "shop:cart:bob", "shop:cart:bob:notes").Val(), "keys of bob")

	stop()
	must(worker.Wait())
	// Output:
	// removed, by rule: carts, carts-notes
	// left: 1 cart of ann, 0 keys of bob
}

// listenedToForAnHour writes what takes GRACE (92 s) to become true: nothing is deleted on a server
// that nobody has listened to.
func listenedToForAnHour(ctx context.Context, rdb redis.UniversalClient, layout guard.Layout) {
	timing := guard.Timing{Interval: 30 * time.Second, TTL: 90 * time.Second} // a registry's defaults
	witness, err := guard.New(rdb, rdb, layout, timing, "nobody").Tick(ctx)
	must(err)
	must(rdb.HSet(ctx, layout.Witness(), "since", witness.Now.Add(-time.Hour).UnixMilli()).Err())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// noTest stands where a test would, for an example has none.
type noTest struct{ testing.TB }

func (noTest) Helper()                   {}
func (noTest) Cleanup(func())            {} // the shared server is stopped by Main
func (noTest) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (noTest) Errorf(s string, a ...any) { panic(fmt.Sprintf(s, a...)) }
func (noTest) FailNow()                  {}

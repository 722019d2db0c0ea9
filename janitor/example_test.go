package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// orphanedKeys is a sweep of another kind: it deletes the keys `position:<imei>` of devices that are not
// in the registry any more. It finds them by pattern, judges them by the registry, and reaps them by
// a body of its own behind the guard.
type orphanedKeys struct{}

func (orphanedKeys) Name() string            { return "positions" }
func (orphanedKeys) Interval() time.Duration { return 10 * time.Minute }

// deleteOrphans judges again on the server: whoever has registered in the meantime keeps its key.
var deleteOrphans = registry.NewBody(`
-- KEYS[6] registry  KEYS[7..] keys  ARGV[8..] the devices that they belong to, in the same order
local orphans = {}
for i = 8, #ARGV do
  local key = KEYS[i - 1]
  if redis.call('HEXISTS', KEYS[6], ARGV[i]) == 0 and redis.call('EXISTS', key) == 1 then
    orphans[#orphans + 1] = key
  end
end
local kept = #ARGV - 7 - #orphans
local refused = record(#orphans, kept, 'keys', orphans)
if refused then return refused end
if #orphans > 0 then redis.call('DEL', unpack(orphans)) end
return answer('DONE', #orphans, kept)
`)

func (orphanedKeys) Pass(ctx context.Context, p *janitor.Pass) error {
	if err := p.Ready(ctx); err != nil {
		return err
	}
	prefix := p.Layout().Prefix + "position:"
	for cursor := uint64(0); ; {
		var keys, orphans []string
		err := p.Call(ctx, func(ctx context.Context) (err error) { // find
			keys, cursor, err = p.Client().Scan(ctx, cursor, prefix+"*", int64(p.PageSize())).Result()
			return err
		})
		if err != nil {
			return err
		}
		p.Scanned(len(keys))
		slices.Sort(keys)
		keys = slices.Compact(keys) // scans repeat themselves, batches must not
		for page := range slices.Chunk(keys, p.BatchSize()) {
			imeis := make([]string, len(page))
			for i, key := range page {
				imeis[i] = strings.TrimPrefix(key, prefix)
			}
			err := p.Call(ctx, func(ctx context.Context) error { // judge
				owners, err := p.Client().HMGet(ctx, p.Layout().Registry(), imeis...).Result()
				for i, owner := range owners {
					if owner == nil {
						orphans = append(orphans, imeis[i])
					}
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		for imeis := range slices.Chunk(orphans, p.BatchSize()) { // reap
			batch := janitor.Batch{Body: deleteOrphans, Keys: []string{p.Layout().Registry()}, Items: imeis}
			for _, imei := range imeis {
				batch.Keys = append(batch.Keys, prefix+imei)
			}
			if _, err := p.Reap(ctx, batch); err != nil {
				return err
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

// A second kind of sweep, running in a janitor on a real Redis.
func ExampleSweep_orphanedKeys() {
	server := redistest.Shared(noTest{}) // stands for your Redis
	rdb := redis.NewClient(server.Options())
	defer rdb.Close()
	ctl := redis.NewClient(lease.Options(server.Options()))
	defer ctl.Close()
	layout := registry.Layout{Prefix: "example:"}

	ctx, stop := context.WithCancel(context.Background())
	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl, Instance: "replica-1", Layout: layout})
	if err != nil {
		panic(err)
	}
	jan, err := janitor.New(janitor.Config{
		Client: rdb, Control: ctl, Registry: reg,
		Sweeps: []janitor.Sweep{orphanedKeys{}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}

	listenedToForAnHour(ctx, rdb, layout)
	rdb.MSet(ctx, "example:position:1", "52.5,13.4", "example:position:2", "48.1,11.5", "example:position:3", "0,0")
	replica := pool.New().WithContext(ctx).WithCancelOnError()
	replica.Go(reg.Run)
	held := []*registry.Claim{reg.Register(ctx, "1"), reg.Register(ctx, "2")}
	for _, claim := range held {
		if err := claim.Wait(ctx); err != nil {
			panic(err)
		}
	}
	replica.Go(jan.Run)

	for _, report := range sweepOnceItLeads(ctx, jan) {
		if report.Sweep == "positions" {
			fmt.Println("outcome:", report.Outcome)
		}
	}
	left := rdb.Keys(ctx, "example:position:*").Val()
	slices.Sort(left)
	fmt.Println("left:", left)

	for _, claim := range held {
		claim.Release()
	}
	stop()
	if err := replica.Wait(); err != nil {
		panic(err)
	}
	// Output:
	// outcome: done
	// left: [example:position:1 example:position:2]
}

// listenedToForAnHour writes what takes WARM (92 s) to become true: nothing is deleted on a server that nobody
// has listened to.
func listenedToForAnHour(ctx context.Context, rdb redis.UniversalClient, layout registry.Layout) {
	gap, warm := 30*time.Second, 92*time.Second // of a registry with the default durations
	witness, err := registry.NewGuard(rdb, rdb, layout, gap, warm, "nobody").Tick(ctx)
	if err != nil {
		panic(err)
	}
	rdb.HSet(ctx, layout.Witness(), "since", witness.Now.Add(-time.Hour).UnixMilli())
}

// sweepOnceItLeads waits for the janitor to win the lease and asks it for a pass.
func sweepOnceItLeads(ctx context.Context, jan *janitor.Janitor) []janitor.Report {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		reports, err := jan.Sweep(ctx, janitor.Request{})
		if not := new(janitor.NotLeaderError); errors.As(err, &not) {
			continue
		}
		if err != nil {
			panic(err)
		}
		return reports
	}
	return nil
}

// noTest stands where a test would, for an example has none.
type noTest struct{ testing.TB }

func (noTest) Helper()                   {}
func (noTest) Cleanup(func())            {} // the shared server is stopped by Main
func (noTest) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (noTest) Errorf(s string, a ...any) { panic(fmt.Sprintf(s, a...)) }
func (noTest) FailNow()                  {}

// The leader is killed between find and reap: what it found, and judged rightly then, stays.
func TestTheExampleDeletesNothingAfterItsTerm(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		ctx, layout := t.Context(), registry.Layout{Prefix: w.Prefix}
		ctl := redis.NewClient(lease.Options(w.Options))
		defer ctl.Close()
		rdb := redis.NewClient(w.Options)
		defer rdb.Close()
		reg, err := registry.New(registry.Config{Client: rdb, Control: ctl, Instance: "r1", Layout: layout})
		require.NoError(t, err)
		listenedToForAnHour(ctx, rdb, layout)
		require.NoError(t, w.Client.Set(ctx, layout.Heartbeat("r1"), "0/0", time.Minute).Err())
		require.NoError(t, w.Client.Set(ctx, w.Prefix+"position:1", "0,0", 0).Err())

		// The successor takes the lease the moment that the batch is on its way.
		taken := make(chan struct{})
		rdb.AddHook(onScript(sync.OnceFunc(func() {
			require.NoError(t, w.Client.Set(ctx, layout.Lease(), "r2/successor", time.Minute).Err())
			close(taken)
		})))
		jan, err := janitor.New(janitor.Config{
			Client: rdb, Control: ctl, Registry: reg, Sweeps: []janitor.Sweep{orphanedKeys{}}, LeaseTTL: 3 * time.Second,
			Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		life, stop := context.WithCancel(ctx)
		replica := pool.New().WithContext(life)
		replica.Go(jan.Run)
		<-taken
		for jan.Status().Leading { // its batch has been answered when its term is over
			<-time.After(time.Millisecond)
		}
		stop()
		require.NoError(t, replica.Wait())

		sweeps := jan.Status().Sweeps
		i := slices.IndexFunc(sweeps, func(r janitor.Report) bool { return r.Sweep == "positions" })
		require.Equal(t, janitor.Lost, sweeps[i].Outcome)
		require.Equal(t, 1, sweeps[i].Condemned)
		require.Equal(t, map[string]int{janitor.SparedFenced: 1}, sweeps[i].Spared)
		require.Equal(t, int64(1), w.Client.Exists(ctx, w.Prefix+"position:1").Val())
		audit, err := w.Client.XRange(ctx, layout.Audit(), "-", "+").Result()
		require.NoError(t, err)
		require.Len(t, audit, 1, "the term's own record, and none of a batch")
	})
}

// onScript calls itself before each script that goes through a client.
type onScript func()

func (onScript) DialHook(next redis.DialHook) redis.DialHook { return next }
func (onScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f onScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			f()
		}
		return next(ctx, cmd)
	}
}

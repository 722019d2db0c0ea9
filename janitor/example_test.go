package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// leftBehind is a sweep of another kind: it deletes the keys `sessions:<instance>` of dead
// instances.
//
// Its evidence is an instance's silence: the key's own name gives the owner, and that has no
// heartbeat, on a Redis observed for long enough. Pass.Liveness finds suspects; Batch.Owner makes
// the guard judge them again at the instant of the delete, and hold everything while silence means
// nothing.
//
// It concludes nothing from absences elsewhere. An instance may be missing from the roster, or from
// all entries, because the roster or the registry was lost with everybody alive.
//
// For this to be right, an instance must write its key only after its first heartbeat has landed
// (registry.Claim.Wait shows that), and again after a silence of a whole heartbeat TTL, and nobody
// else may use such key names.
type leftBehind struct{}

func (leftBehind) Name() string            { return "sessions" }
func (leftBehind) Interval() time.Duration { return 10 * time.Minute }

// deleteKeys deletes whole keys of a dead owner. The guard has found the owner's heartbeat absent.
var deleteKeys = janitor.NewBody(`
-- KEYS[6..] keys  ARGV[8..] the same
local found = {}
for i = 8, #ARGV do
  if redis.call('EXISTS', KEYS[i - 2]) == 1 then found[#found + 1] = KEYS[i - 2] end
end
local refused = record(#found, 0, 'keys', found)
if refused then return refused end
if #found > 0 then redis.call('UNLINK', unpack(found)) end
return answer('DONE', #found, 0)
`)

func (leftBehind) Run(ctx context.Context, p *janitor.Pass) error {
	if err := p.CheckHeld(ctx); err != nil {
		return err
	}
	prefix := p.Layout().Prefix + "sessions:"
	for cursor := uint64(0); ; {
		var keys []string
		err := p.Call(ctx, func(ctx context.Context) (err error) { // find
			keys, cursor, err = p.Client().Scan(ctx, cursor, prefix+"*", int64(p.PageSize())).Result()
			return err
		})
		if err != nil {
			return err
		}
		p.AddScanned(len(keys))
		var owners []string
		for _, key := range keys {
			owner, ours := strings.CutPrefix(key, prefix)
			if ours && (p.Owner() == "" || p.Owner() == owner) {
				owners = append(owners, owner)
			}
		}
		liveness, err := p.Liveness(ctx, owners) // judge
		if err != nil {
			return err
		}
		for owner, life := range liveness {
			switch life {
			case janitor.Unreadable: // keep
				p.Skip(janitor.SkipUnreadable, 1)
			case janitor.Doubted: // keep
				p.Skip(janitor.SkipDoubted, 1)
			case janitor.Dead: // reap
				key := []string{prefix + owner}
				if _, err := p.Delete(ctx, janitor.Batch{Owner: owner, Body: deleteKeys, Keys: key, Items: key}); err != nil {
					return err
				}
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

// A second kind of sweep, in a janitor on a real Redis.
func ExampleSweeper() {
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
		Sweeps: []janitor.Sweeper{leftBehind{}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}

	listenedToForAnHour(ctx, rdb, layout)
	replica := pool.New().WithContext(ctx).WithCancelOnError()
	replica.Go(reg.Run)
	conn, _ := net.Pipe()
	claim := reg.Register("356307042441013", registry.Socket{Close: conn.Close})
	if err := claim.Wait(ctx); err != nil { // now the heartbeat exists too
		panic(err)
	}
	rdb.HSet(ctx, "example:sessions:replica-1", "356307042441013", "since noon") // its own
	// left by a dead one
	silentForMinutes(ctx, rdb, layout, "replica-0")
	rdb.HSet(ctx, "example:sessions:replica-0", "356307042441021", "since noon")
	replica.Go(jan.Run)

	for _, report := range sweepOnceItLeads(ctx, jan) {
		if report.Sweep == "sessions" {
			fmt.Println("outcome:", report.Outcome)
		}
	}
	fmt.Println("left:", rdb.Keys(ctx, "example:sessions:*").Val())

	claim.Release()
	stop()
	if err := replica.Wait(); err != nil {
		panic(err)
	}
	// Output:
	// outcome: done
	// left: [example:sessions:replica-1]
}

// listenedToForAnHour writes what would take GRACE (92 s): nothing is deleted on a server that
// nobody has observed.
func listenedToForAnHour(ctx context.Context, rdb redis.UniversalClient, layout guard.Layout) {
	timing := guard.Timing{Interval: 30 * time.Second, TTL: 90 * time.Second} // a registry's defaults
	witness, err := guard.New(rdb, rdb, layout, timing, "nobody").Tick(ctx)
	if err != nil {
		panic(err)
	}
	rdb.HSet(ctx, layout.Witness(), "since", witness.Now.Add(-time.Hour).UnixMilli())
}

// silentForMinutes writes what an instance's last heartbeat wrote, some minutes ago.
func silentForMinutes(ctx context.Context, rdb redis.UniversalClient, layout guard.Layout, id string) {
	own := doubt.Own{Interval: 30_000, TTL: 90_000}
	last := doubt.Record{}.Proves(time.Now().Add(-200*time.Second).UnixMilli(), own, doubt.Holds)
	rdb.HSet(ctx, layout.Beats(), id, last.String())
}

// sweepOnceItLeads waits for the janitor to win the lease, then requests a pass.
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

// noTest replaces the test that an example lacks.
type noTest struct{ testing.TB }

func (noTest) Helper()                   {}
func (noTest) Cleanup(func())            {} // Main stops the shared server
func (noTest) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (noTest) Errorf(s string, a ...any) { panic(fmt.Sprintf(s, a...)) }
func (noTest) FailNow()                  {}

// Absence is not evidence: the registry, the indexes and the roster are lost in mid-sweep, and a
// live owner keeps its keys. So does one that comes back after it was judged dead.
func TestTheExampleDeletesNothingOfTheLivingWhenTheRegistryIsLost(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		ctx := f.Context()
		key := func(id string) string {
			key := f.Prefix + "sessions:" + id
			f.do("HSET", key, "a", "session")
			return key
		}
		lives := func(id string) error { return f.Set(ctx, f.Heartbeat(id), "0/0", time.Minute).Err() }
		lost, kept := []string{f.Registry(), f.Roster()}, []string{key("back")}
		for i := range 100 {
			id := fmt.Sprint("o", i)
			f.indexed(id, 1)
			f.do("HDEL", f.Beats(), id)
			require.NoError(f, lives(id))
			kept, lost = append(kept, key(id)), append(lost, f.Devices(id))
		}
		silentForMinutes(ctx, f.Client, f.Layout, "back")
		silentForMinutes(ctx, f.Client, f.Layout, "dead")
		dead := key("dead")

		r := f.replica("r1", func(c *janitor.Config) {
			c.Sweeps = []janitor.Sweeper{leftBehind{}}
			c.Client.AddHook(before("scan", sync.OnceValue(func() error { return f.Del(ctx, lost...).Err() })))
		})
		r.faults.set(once(func([]any) error { return lives("back") }), nil)
		r.leads()
		require.Equal(f, janitor.Done, r.sweep(janitor.Request{Sweep: "sessions"})["sessions"].Outcome)
		require.Zero(f, f.Exists(ctx, dead, f.Registry()).Val())
		require.Equal(f, int64(len(kept)), f.Exists(ctx, kept...).Val())
		require.Equal(f, 1, f.total())
	})
}

package availability

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// deck are the faults of which TestEverythingAtRandom draws: those of the rows, and others.
func deck() []row {
	return append(matrix(),
		row{name: "leader killed", fault: func(w *world) {
			leader, _ := w.leader()
			w.kill(leader)
		}},
		row{name: "all killed", fault: func(w *world) {
			for _, id := range sorted(w.replicas) {
				w.kill(w.replicas[id])
			}
		}},
		row{name: "leader cut off from Redis", fault: func(w *world) {
			leader, _ := w.leader()
			hold := leader.Proxy.Hold()
			harness.Lasting(leaseTTL + time.Second)
			hold.End()
		}},
		row{name: "Redis restarted", fault: func(w *world) {
			w.redis.Kill()
			harness.Lasting(time.Duration(rand.IntN(2000)) * time.Millisecond)
			w.redis.Restart()
		}},
		row{name: "FLUSHALL", fault: (*world).flush},
		row{name: "scripts flushed", fault: func(w *world) { w.rdb.ScriptFlush(w.Context()) }},
	)
}

// seed draws the same faults again if ROLLCALL_SEED names it.
var seed = sync.OnceValue(func() uint64 {
	n, err := strconv.ParseUint(os.Getenv("ROLLCALL_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	fmt.Println("ROLLCALL_SEED=" + strconv.FormatUint(n, 10))
	return n
})

// TestEverythingAtRandom breaks one thing after the other for ROLLCALL_DURATION, a minute if that
// is not set. Now and then everything has to work again.
func TestEverythingAtRandom(t *testing.T) {
	redistest.OnlyIfAsked(t)
	t.Parallel()
	lasts := time.Minute
	if text := os.Getenv("ROLLCALL_DURATION"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	r := rand.New(rand.NewPCG(seed(), 31))
	newWorld(t, program(t), row{name: "soak", fault: func(w *world) {
		for end := time.Now().Add(lasts); time.Now().Before(end); w.works() {
			for range 6 {
				faults := deck()
				one := faults[r.IntN(len(faults))]
				w.says(one.name)
				one.fault(w)
				harness.Lasting(time.Duration(r.IntN(3000)) * time.Millisecond)
			}
		}
	}}).run()
}

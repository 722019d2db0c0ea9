package chaos

import (
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A fault is something that breaks and is mended again. Its hits are counted by what is not under
// test: the proxy, the server, the kernel, never by a replica's own word; a run in which nothing
// was hit proves nothing.
type fault interface {
	// setup prepares it in an environment that has no replicas yet: settings, a server of another
	// kind.
	setup(w *environment)
	// fail breaks it, among traffic, and returns when it has lasted long enough.
	fail(w *environment)
	// recover mends it. What it leaves behind is for the replicas to put right.
	recover(w *environment)
	hits() int
}

// calm is the fault that is none: the no-op twin of every other, and their common part.
type calm struct{ met atomic.Int64 }

func (*calm) setup(*environment)   {}
func (*calm) fail(*environment)    {}
func (*calm) recover(*environment) {}
func (c *calm) hits() int          { return int(c.met.Load()) }
func (c *calm) hit(n int)          { c.met.Add(int64(n)) }

// A row is one fault of the matrix, or one shape of it.
type row struct {
	nr       int    // of its kind of fault
	name     string // TestMatrix/<name>; docs/reference/faults.md points here
	short    bool   // part of make chaos-short, and so of make test
	devices  int
	settings map[string]string // besides the common ones
	run      func(w *environment)
}

// under is how most rows run: three replicas, devices that move, the fault, rest, judgement. holds
// asserts what must hold besides the checks.
func under(like fault, holds func(w *environment, v *judge.Verdict)) func(w *environment) {
	return func(w *environment) {
		own := reflect.New(reflect.TypeOf(like).Elem()) // of this run
		own.Elem().Set(reflect.ValueOf(like).Elem())
		w.fault = own.Interface().(fault)
		if w.twin {
			w.fault = &calm{}
		}
		w.fault.setup(w)
		w.Start("one", "two", "three")
		w.Spread(harness.Some(0, w.Fleet.Len()))
		w.Registered(len(w.Ghosts))
		w.Listened()
		w.Traffic.Start(w.Environment)
		w.Moves()
		w.fault.fail(w)
		w.fault.recover(w)
		w.Moves()
		w.ends()
		v := w.judge()
		if w.twin {
			require.Zero(w, w.fault.hits())
			return
		}
		require.Positive(w, w.fault.hits(), "the fault was not hit: this run proves nothing")
		require.GreaterOrEqual(w, w.Traffic.Done(), w.Fleet.Len()/2, "too little traffic: this run proves nothing")
		if holds != nil {
			holds(w, v)
		}
	}
}

// matrix is every row, by number.
func matrix() (rows []row) {
	for _, group := range [][]row{plainRows, leaderRows, failoverRows, ownerRows, movesRows, redisRows,
		networkRows, crowdRows, guardRows, livesRows, commandRows, witnessRows, waveRows,
		parkedRows, rollingRows, procedureRows, turnedAwayRows} {
		rows = append(rows, group...)
	}
	return rows
}

func TestMatrix(t *testing.T) {
	binary := harness.BuildIngest(t)
	for _, r := range matrix() {
		if !r.short && !redistest.Asked() {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(newEnvironment(t, binary, r))
		})
	}
}

func TestThePageNamesEveryRow(t *testing.T) {
	t.Parallel()
	for _, r := range matrix() {
		harness.OnThePage(t, "..", r.name)
	}
}

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// neighbourPace is how often the neighbour asks.
const neighbourPace = time.Millisecond

// quietly is how long a neighbour is watched while nobody sweeps: about as long as a sweep takes at
// the default share, since a longer time has a longer longest call.
const quietly = 4 * time.Second

// besideANeighbour is what somebody else on the same Redis notices of a sweep.
func besideANeighbour(r *rig) {
	n := r.neighbour
	r.section("A neighbour on the same Redis")
	r.say("A client in a process of its own sends a GET and a SET in turn, one every %s, while an owner of %s entries is swept. Latency "+
		"counts from when the request was due, if the one before it was still under way then.", neighbourPace, many(n))
	m := &mass{rig: r, ids: owners("dead", 1), total: n, beside: min(aside, n)}
	results := r.compare(
		way{name: "nobody sweeps", kind: floor, run: r.beside(func() cost { return r.measure(1, func() { r.rest(quietly) }) })},
		way{name: "HGETALL, HGET + HDEL by 500", kind: peer, run: r.beside(m.naive)},
		way{name: "janitor, full share", kind: ours, run: r.beside(func() cost { return m.janitor(1) })},
		way{name: "janitor, default share", kind: ours, run: r.beside(func() cost { return m.janitor(0) })},
	)
	if !r.elsewhere {
		r.say("Server and neighbour could not be given priority over the sweeper on this machine: waiting for a core is part of this.")
	}
	var rows [][]string
	for _, w := range results {
		row := []string{w.name, string(w.kind)}
		for _, q := range []float64{0.5, 0.99, 1} {
			row = append(row, digits(w.medianOf(waited(q))))
		}
		rows = append(rows, append(row, digits(w.medianOf(func(c cost) float64 { return ms(c.longest) }))))
	}
	r.table([]string{"meanwhile", "", "p50, ms", "p99, ms", "max, ms", "longest single call, ms"}, rows)

	// Round by round, since the machine differs by round.
	above := func(q float64) float64 {
		var over []float64
		for round, c := range results[3].costs {
			over = append(over, waited(q)(c)-waited(q)(results[0].costs[round]))
		}
		return median(over)
	}
	r.promise("neighbour's p99 at default share, above idle, ms", "%.2f", above(0.99), 1)
	r.promise("neighbour's longest call at default share, above idle, ms", "%.2f", above(1), 2)
}

// waited is a quantile of what the neighbour waited, in ms.
func waited(q float64) func(cost) float64 {
	return func(c cost) float64 { return ms(quantile(c.heard, q)) }
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// latencies are sorted.
type latencies []time.Duration

// answered is one of the neighbour's requests: when it was due, and what it took.
type answered struct {
	due  int64 // unix ns
	took time.Duration
}

// beside runs work with a neighbour there while it is measured.
func (r *rig) beside(work func() cost) func() cost {
	return func() cost {
		r.listening = true
		defer func() { r.listening = false }()
		return work()
	}
}

// neighbourly begins to ask at a steady pace, from a process of its own: a client that shares ours
// would wait for our goroutines too. What it returns ends that, and says how long answers took that
// were due from an instant to another.
func (r *rig) neighbourly() (stop func(from, until time.Time) latencies) {
	self, err := os.Executable()
	require.NoError(r, err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), neighbourAt+"="+r.srv.Addr())
	c.Stderr = os.Stderr
	p, err := process.Start(c, process.Options{Talk: true})
	require.NoError(r, err)
	require.True(r, p.Out.Scan(), "the neighbour did not begin")
	r.elsewhere = prefer(p.PID(), elsewhere) == nil && r.elsewhere
	return func(from, until time.Time) (took latencies) {
		var next latencies // the first due later, for a sweep that is over before one was due
		require.NoError(r, p.In.Close())
		for p.Out.Scan() {
			var a answered
			_, err := fmt.Sscan(p.Out.Text(), &a.due, &a.took)
			require.NoError(r, err)
			if a.due >= from.UnixNano() && a.due <= until.UnixNano() {
				took = append(took, a.took)
			} else if a.due > until.UnixNano() && next == nil {
				next = latencies{a.took}
			}
		}
		if took == nil {
			took = next
		}
		if took == nil { // it got no core in all that time
			took = latencies{until.Sub(from)}
		}
		require.Zero(r, p.ExitCode())
		p.Kill() // closes its pipes
		slices.Sort(took)
		return took
	}
}

// elsewhere is a priority above ours. Servers and neighbour have it where that is allowed, so that
// what is measured is the time in the server's queue and not that for a core which we have: as if
// we ran on another machine.
const elsewhere = -20

func prefer(pid, priority int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, pid, priority) }

// neighbourAt names the server to a process that is to be the neighbour.
const neighbourAt = "ROLLCALL_BENCH_NEIGHBOUR"

// beNeighbour asks until its input ends, and then writes what came of it, a line each.
func beNeighbour(addr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1})
	defer rdb.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := rdb.Set(ctx, "neighbour", "0123456789", 0).Err(); err != nil {
		return err
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	fmt.Println("begun")
	var all []answered
	due, before := time.Now(), time.Time{}
	for i := 0; ctx.Err() == nil; i++ {
		due = due.Add(neighbourPace)
		if rest := time.Until(due); rest > 0 {
			wait.For(ctx, rest)
		}
		begun := time.Now()
		if before.After(due) { // it is the answer before that was late, and not our timer
			begun = due
		}
		var err error
		if i%2 == 0 {
			err = rdb.Get(context.WithoutCancel(ctx), "neighbour").Err()
		} else {
			err = rdb.Set(context.WithoutCancel(ctx), "neighbour", "0123456789", 0).Err()
		}
		if err != nil {
			return err
		}
		before = time.Now()
		all = append(all, answered{due.UnixNano(), before.Sub(begun)})
	}
	out := bufio.NewWriter(os.Stdout)
	for _, a := range all {
		fmt.Fprintln(out, a.due, int64(a.took))
	}
	return out.Flush()
}

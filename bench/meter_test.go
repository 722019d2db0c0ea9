package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// cost is what some work took.
type cost struct {
	n        int           // entries that it was done to
	cpu      time.Duration // of the Redis process, less what it burns when idle
	wall     time.Duration
	in, out  int64 // bytes that Redis received and sent
	commands int64
	// by command, dearest first; what a script calls is counted a second time under its own name
	calls   []call
	longest time.Duration // of a single call
	which   string        // command that was
	heap    int64         // bytes on our heap over idle, at most; 0: not measured
	heard   latencies     // of a neighbour, if there was one
}

// call is what one command took in all.
type call struct {
	name  string
	count int64
	spent time.Duration
}

// usage is what a Redis process has used up to now.
type usage struct {
	cpu               time.Duration
	in, out, commands int64
}

// own are the commands of the measuring itself.
var own = map[string]bool{"info": true, "config|resetstat": true, "config|set": true, "client|setinfo": true, "hello": true}

// neighbours are the commands of the neighbour.
var neighbours = map[string]bool{"get": true, "set": true}

// info asks the server for sections of INFO.
func (r *rig) info(sections ...string) map[string]string {
	text, err := r.rdb.Info(r.Context(), sections...).Result()
	require.NoError(r, err)
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[k] = v
		}
	}
	return m
}

// usage is what the server has used.
func (r *rig) usage() usage {
	m := r.info("cpu", "stats")
	seconds := number(m["used_cpu_user"]) + number(m["used_cpu_sys"])
	return usage{
		cpu: time.Duration(seconds * float64(time.Second)),
		in:  int64(number(m["total_net_input_bytes"])), out: int64(number(m["total_net_output_bytes"])),
		commands: int64(number(m["total_commands_processed"])),
	}
}

// resetStat sets the server's statistics back, and keeps the witness from taking that for a
// restart.
func (r *rig) resetStat() {
	_, err := r.rdb.TxPipelined(r.Context(), func(p redis.Pipeliner) error {
		p.ConfigResetStat(r.Context())
		n := max(1, r.partitions)
		for k := range n {
			p.HDel(r.Context(), r.keys.Partition(k, n).Witness(), "connections", "commands")
		}
		return nil
	})
	require.NoError(r, err)
}

// measure measures some work on n entries.
func (r *rig) measure(n int, work func()) cost {
	r.resetStat()
	stop := func(_, _ time.Time) latencies { return nil }
	if r.listening {
		stop = r.neighbourly()
	}
	before, begun := r.usage(), time.Now()
	r.from = begun
	work()
	wall, after := time.Since(begun), r.usage()
	c := cost{
		heard: stop(r.from, begun.Add(wall)),
		n:     n, wall: wall,
		cpu: max(0, after.cpu-before.cpu-time.Duration(r.idle*float64(wall))),
		in:  after.in - before.in, out: after.out - before.out, commands: after.commands - before.commands,
	}
	c.calls = r.calls()
	for k, v := range r.info("latencystats") {
		name := strings.TrimPrefix(k, "latency_percentiles_usec_")
		if own[name] || r.listening && neighbours[name] {
			continue
		}
		_, p100, _ := strings.Cut(v, "p100=")
		if d := time.Duration(number(p100) * 1000); d > c.longest {
			c.longest, c.which = d, name
		}
	}
	return c
}

// calls reads what each command has taken since the statistics were reset, dearest first.
func (r *rig) calls() (list []call) {
	for k, v := range r.info("commandstats") {
		one := call{name: strings.TrimPrefix(k, "cmdstat_")}
		if own[one.name] {
			continue
		}
		var usec int64
		_, err := fmt.Sscanf(v, "calls=%d,usec=%d", &one.count, &usec)
		require.NoError(r, err, v)
		one.spent = time.Duration(usec) * time.Microsecond
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b call) int { return cmp.Or(cmp.Compare(b.spent, a.spent), cmp.Compare(a.name, b.name)) })
	return list
}

// dearest names the commands that most of the time went into.
func (c cost) dearest() string {
	var parts []string
	for _, one := range c.calls[:min(7, len(c.calls))] {
		parts = append(parts, fmt.Sprintf("%s %s ×%d", one.name, brief(one.spent), one.count))
	}
	return strings.Join(parts, ", ")
}

// perEntry is a share of d.
func (c cost) perEntry(d time.Duration) time.Duration { return d / time.Duration(max(1, c.n)) }

// number reads a number as INFO writes it; what is none is 0.
func number(s string) float64 {
	f, _ := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return f
}

// quantile of sorted values: 0 is the least, 1 the most.
func quantile[T any](sorted []T, q float64) T {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// median leaves its argument as it is.
func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// brief writes a duration with three digits.
func brief(d time.Duration) string {
	switch f := float64(d); {
	case d == 0:
		return "0"
	case d < time.Microsecond:
		return fmt.Sprintf("%.0f ns", f)
	case d < time.Millisecond:
		return fmt.Sprintf("%s µs", digits(f/1e3))
	case d < time.Second:
		return fmt.Sprintf("%s ms", digits(f/1e6))
	default:
		return fmt.Sprintf("%s s", digits(f/1e9))
	}
}

// digits writes a number with about three of them.
func digits(f float64) string {
	switch {
	case f < 1:
		return fmt.Sprintf("%.3f", f)
	case f < 10:
		return fmt.Sprintf("%.2f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.0f", f)
	}
}

// many writes a count as people say it.
func many(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return strconv.FormatFloat(float64(n)/1e6, 'f', -1, 64) + " M"
	case n >= 1000 && n%100 == 0:
		return strconv.FormatFloat(float64(n)/1e3, 'f', -1, 64) + " k"
	default:
		return strconv.Itoa(n)
	}
}

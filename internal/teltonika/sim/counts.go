package sim

import (
	"math"
	"time"
)

// Counts is a simulation's history and present state.
type Counts struct {
	Devices   int
	Connected int // by the devices' own knowledge

	Frames     int // including re-sent ones
	Resent     int // part of Frames
	Acked      int // frames
	Records    int // in acknowledged frames
	Backlog    int // records not yet acknowledged
	KeepAlives int
	Commands   int // answered

	Accepted   int // handshakes
	Reconnects int // part of Accepted, without each device's first
	Failed     int // attempts to connect
	Refused    int // part of Failed: at the handshake
	HalfOpen   int // forgotten sockets

	Acknowledgements Latency // from writing a frame to its acknowledgement
	LastFailure      error   // of an attempt to connect
}

// steps is the number of buckets per doubling of a duration.
const steps = 8

// Latency is a distribution of durations: bucket i counts those of up to 2^(i/steps) - 1 µs.
type Latency [64 * steps]uint64

// Add counts a duration.
func (l *Latency) Add(d time.Duration) {
	l[int(math.Ceil(steps*math.Log2(float64(max(d, 0)/time.Microsecond)+1)))]++
}

// Quantile returns a bound on the shortest share q of the durations, at most an eighth too high.
func (l *Latency) Quantile(q float64) time.Duration {
	var total, sum uint64
	for _, n := range l {
		total += n
	}
	for i, n := range l {
		if sum += n; n > 0 && float64(sum) >= q*float64(total) {
			return time.Duration((math.Exp2(float64(i)/steps) - 1) * float64(time.Microsecond))
		}
	}
	return 0
}

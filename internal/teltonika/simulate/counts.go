package simulate

import (
	"math"
	"sync"
	"time"
)

// Counts holds a fleet's history and present state.
type Counts struct {
	Devices   int // in the fleet
	Connected int // now, by the devices' own knowledge

	Frames     int // written, including re-sent ones
	Resent     int // part of Frames
	Acked      int // frames acknowledged
	Records    int // in acknowledged frames
	Backlog    int // its records not yet acknowledged
	KeepAlives int
	Commands   int // answered

	Accepted   int // handshakes that the server accepted
	Reconnects int // part of Accepted, without each device's first
	Failed     int // attempts to connect that failed
	Refused    int // part of Failed: the server's answer to the handshake
	HalfOpen   int // sockets that were forgotten

	Acknowledgements Latency // from writing a frame to its acknowledgement
	LastFailure      error   // of an attempt to connect, or nil
}

// counter is safe for concurrent use.
type counter struct {
	mu  sync.Mutex
	now Counts
}

func (c *counter) count(add func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.now)
}

// Counts returns the fleet's counts so far.
func (c *counter) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// steps is the number of buckets per doubling of a duration: a quantile is at most an eighth too
// high.
const steps = 8

// Latency is a distribution of durations: bucket i counts those of up to 2^(i/steps) - 1 µs.
type Latency [64 * steps]uint64

// Add counts a duration.
func (l *Latency) Add(d time.Duration) {
	l[int(math.Ceil(steps*math.Log2(float64(max(d, 0)/time.Microsecond)+1)))]++
}

// Quantile returns a bound on the shortest share q of the durations, at most an eighth too high,
// or 0 if there are none.
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

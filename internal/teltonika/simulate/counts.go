package simulate

import (
	"math"
	"sync"
	"time"
)

// Counts is what a fleet has done so far, and where it stands.
type Counts struct {
	Devices   int // in the fleet
	Connected int // of them, now, as far as they know themselves

	Frames     int // written, re-sent ones too
	Resent     int // of those, written before
	Acked      int // frames acknowledged
	Records    int // in them
	Backlog    int // records of it that are not acknowledged yet
	KeepAlives int
	Commands   int // answered

	Accepted   int // handshakes that the server accepted
	Reconnects int // of those, not a device's first
	Failed     int // attempts to connect that failed
	Refused    int // of those, by the server's answer to the handshake
	HalfOpen   int // sockets that were forgotten

	Acknowledgements Latency // time from the writing of a frame to its acknowledgement
	LastFailure      error   // of an attempt to connect; nil: there was none
}

// counter has the counts of a fleet. It is safe for concurrent use.
type counter struct {
	mu  sync.Mutex
	now Counts
}

func (c *counter) count(add func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.now)
}

// Counts returns what the fleet has done so far.
func (c *counter) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// steps are the buckets for each doubling of a duration, so that a quantile is at most an eighth
// too high.
const steps = 8

// Latency is a distribution of durations: bucket i has those of up to 2^(i/steps) - 1 µs.
type Latency [64 * steps]uint64

// Add enters a duration.
func (l *Latency) Add(d time.Duration) {
	l[int(math.Ceil(steps*math.Log2(float64(max(d, 0)/time.Microsecond)+1)))]++
}

// Quantile returns a duration within which the share q of all was, at most an eighth too high; 0 if
// there was none.
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

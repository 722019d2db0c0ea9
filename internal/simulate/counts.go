package simulate

import (
	"math/bits"
	"sync/atomic"
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

// counters are what Counts is taken from.
type counters struct {
	connected, frames, resent, acked, records, backlog, keepAlives, commands atomic.Int64
	accepted, reconnects, failed, refused, halfOpen                          atomic.Int64
	latency                                                                  histogram
	failure                                                                  atomic.Pointer[error]
}

func (c *counters) counts() Counts {
	got := func(n *atomic.Int64) int { return int(n.Load()) }
	all := Counts{
		Connected: got(&c.connected), Frames: got(&c.frames), Resent: got(&c.resent), Acked: got(&c.acked), Records: got(&c.records),
		Backlog: got(&c.backlog), KeepAlives: got(&c.keepAlives), Commands: got(&c.commands), Accepted: got(&c.accepted),
		Reconnects: got(&c.reconnects), Failed: got(&c.failed), Refused: got(&c.refused), HalfOpen: got(&c.halfOpen),
		Acknowledgements: c.latency.snapshot(),
	}
	if err := c.failure.Load(); err != nil {
		all.LastFailure = *err
	}
	return all
}

// Each doubling of the time is divided into so many buckets, so that a quantile is at most an eighth too high.
const (
	subBits = 3
	buckets = 64 << subBits
)

// histogram counts durations. It is safe for concurrent use and never allocates.
type histogram [buckets]atomic.Uint64

// Latency is a distribution of durations at one moment.
type Latency [buckets]uint64

func (h *histogram) add(d time.Duration) { h[bucketOf(d)].Add(1) }

func (h *histogram) snapshot() (l Latency) {
	for i := range h {
		l[i] = h[i].Load()
	}
	return l
}

// bucketOf returns the bucket of d: its highest bit and the next few. What is below eight microseconds has one for each.
func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	shift := max(bits.Len64(us)-1-subBits, 0)
	return shift<<subBits + int(us>>shift)
}

// top returns the longest duration of bucket i.
func top(i int) time.Duration {
	shift := max(i>>subBits-1, 0)
	us := uint64(i-shift<<subBits+1) << shift
	return time.Duration(us)*time.Microsecond - 1
}

// Quantile returns a duration within which the share q of all was, at most an eighth too high; 0 if there was none.
func (l *Latency) Quantile(q float64) time.Duration {
	var total, sum uint64
	for _, n := range l {
		total += n
	}
	for i, n := range l {
		if sum += n; n > 0 && float64(sum) >= q*float64(total) {
			return top(i)
		}
	}
	return 0
}

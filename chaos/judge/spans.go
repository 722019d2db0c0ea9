package judge

import (
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// Span bounds an event's time: see the package comment.
type Span struct{ From, Until time.Time }

// Spans returns each event's.
func Spans(h history.History, f *Facts) []Span {
	s := make([]Span, len(h))
	stamps := make([]time.Time, len(h))
	var now time.Time
	ends := make(map[string]string)
	for i := range h {
		if stamps[i] = stamp(&h[i], f, ends); stamps[i].After(now) {
			now = stamps[i]
		} else if second := time.Unix(h[i].Second, 0); h[i].Second > 0 && second.After(now) {
			now = second
		}
		s[i].From = now
	}
	next := time.Unix(1<<40, 0) // nothing is known of the time after the end
	for i := len(h) - 1; i >= 0; i-- {
		if at := stamps[i]; !at.IsZero() {
			next = at.Add(time.Millisecond) // stamps are truncated
		}
		s[i].Until = next
	}
	return s
}

// stamp returns the time that the event itself carries: of a beat, of the witness' tick, of the
// lease's expiry. Values written by hand or copied from a former life prove nothing, and an end
// rewritten unchanged carries no time.
func stamp(e *history.Event, f *Facts, ends map[string]string) (at time.Time) {
	if e.Life() || e.Fault() != "" {
		return time.Time{}
	}
	heartbeats := f.Layout.Heartbeat("")
	later := func(ms string, ago time.Duration) {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
			if t := time.UnixMilli(n).Add(-ago); t.After(at) {
				at = t
			}
		}
	}
	for _, c := range e.Commands {
		if len(c) < 3 {
			continue
		}
		switch key := c[1]; {
		case c[0] == "SET" && strings.HasPrefix(key, heartbeats):
			ms, _, _ := strings.Cut(c[2], "/")
			later(ms, 0)
			ends[key] = history.Option(c[3:], "PXAT")
		case c[0] == "PEXPIREAT" && strings.HasPrefix(key, heartbeats):
			if ends[key] != c[2] {
				_, ttl := f.heartbeat(strings.TrimPrefix(key, heartbeats))
				later(c[2], ttl)
			}
			ends[key] = c[2]
		case key == f.Layout.Lease() && c[0] == "SET":
			later(history.Option(c[3:], "PXAT"), f.LeaseTTL)
		case key == f.Layout.Lease() && c[0] == "PEXPIREAT":
			later(c[2], f.LeaseTTL)
		case key == f.Layout.Witness() && c[0] == "HSET":
			later(history.Option(c[2:], "last"), 0)
		}
	}
	return at
}

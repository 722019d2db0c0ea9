package judge

import (
	"time"

	"github.com/rollcall-redis/rollcall/registry"
)

// Facts are what a judge must know and Redis cannot tell. As JSON they are kept with a run, so that
// it can be judged again.
type Facts struct {
	Layout registry.Layout
	// HeartbeatInterval, HeartbeatTTL, LeaseTTL and JanitorInterval as the replicas were set.
	HeartbeatInterval, HeartbeatTTL, LeaseTTL, JanitorInterval time.Duration
	// Settings are those of instances whose heartbeats were set to longer times than the above.
	Settings []Setting `json:",omitempty"`
	// Restarts are the times in which the server's counters began anew: it was started again,
	// another was promoted, or it was told to forget its statistics. Whatever was counted before is
	// not known any more.
	Restarts []Outage `json:",omitempty"`
	// Sockets are the truth about devices, in any order.
	Sockets []Socket
	// Planted are owners whose entries the scenario wrote itself, as an older writer would:
	// plainly, without a heartbeat.
	Planted map[string]bool `json:",omitempty"`
	// Unindexed: the replicas keep no reverse index.
	Unindexed bool `json:",omitempty"`
	// Outages are the times in which an instance did not run, or could not exchange messages with
	// Redis: what it had sent before may land that much later.
	Outages []Outage `json:",omitempty"`
	// Held are the times in which nobody could or would sweep, by intent: paused, or nobody was
	// there to. C6 waits for them.
	Held []Outage `json:",omitempty"`
	// Deaths are the ends that C6 holds the bounds against.
	Deaths []Death `json:",omitempty"`
	// Slack is what a busy machine may add to a bound, Sweeping how long the deletes themselves may
	// take where sweeps are slowed down to be hit in their middle.
	Slack    time.Duration `json:",omitempty"`
	Sweeping time.Duration `json:",omitempty"`
	// Lookups are what was asked from outside, and Acks confirmed registrations, for C8.
	Lookups []Lookup `json:",omitempty"`
	Acks    []Lookup `json:",omitempty"`
	// Executed is what devices did on command, for C9; nil: nobody noted it.
	Executed []Execution `json:",omitempty"`
	// Truth is which instance held each device with an open socket at the end, and Alive the
	// instances that ran then, for C7. No Truth at all (nil): the run did not come to rest, and C7
	// is not asked.
	Truth map[string]string
	Alive []string
}

// gap is the longest that any of the fleet allows between two ticks.
func (f *Facts) gap() time.Duration {
	gap := (f.HeartbeatTTL - f.HeartbeatInterval) / 2
	for _, s := range f.Settings {
		gap = max(gap, (s.HeartbeatTTL-s.HeartbeatInterval)/2)
	}
	return gap
}

// graceOf is the grace period that belongs to a TTL.
func graceOf(ttl time.Duration) time.Duration { return ttl + 2*time.Second }

// grace is how long the witness must have listened at a time: the largest grace period of all
// settings that were in use lately.
func (f *Facts) grace(at time.Time) time.Duration { return f.largest(at, 1) }

// graceAtMost is how long it may take after a hold at a time: the witness may remember settings for
// longer than it must.
func (f *Facts) graceAtMost(at time.Time) time.Duration { return f.largest(at, 20) }

// largest is the largest grace period of all settings that were in use less than so many of them
// ago.
func (f *Facts) largest(at time.Time, ago int) time.Duration {
	longest := graceOf(f.HeartbeatTTL)
	for _, s := range f.Settings {
		grace := graceOf(s.HeartbeatTTL)
		if !at.Before(s.From) && (s.Until.IsZero() || at.Before(s.Until.Add(time.Duration(ago)*grace))) {
			longest = max(longest, grace)
		}
	}
	return longest
}

// heartbeat is how an instance beats: the longest interval and TTL that it was ever set to.
func (f *Facts) heartbeat(instance string) (interval, ttl time.Duration) {
	interval, ttl = f.HeartbeatInterval, f.HeartbeatTTL
	for _, s := range f.Settings {
		if s.Instance == instance {
			interval, ttl = max(interval, s.HeartbeatInterval), max(ttl, s.HeartbeatTTL)
		}
	}
	return interval, ttl
}

// outbound is the stream of commands for an instance, responses that of their outcomes.
func (f *Facts) outbound(instance string) string {
	return f.Layout.Prefix + "commands:outbound:" + instance
}
func (f *Facts) responses() string { return f.Layout.Prefix + "commands:responses" }

// leaseRetry is how long after a lease's end a waiter asks for it at the latest.
func (f *Facts) leaseRetry() time.Duration { return f.LeaseTTL * 6 / 25 }

// Socket is what a device knows about one of its sockets. The clock is the server's: both run on
// one machine.
type Socket struct {
	IMEI, Instance string
	// Asked is when the device began to connect: nothing of this socket can have happened before.
	// Zero: it is not known.
	Asked time.Time `json:",omitzero"`
	// Live is when the handshake had been answered; zero: it was not, and yet a registration may
	// have landed.
	Live time.Time `json:",omitzero"`
	// Ended is when the device began to leave it, or just before the fault that ended it; zero: it
	// has not.
	Ended time.Time `json:",omitzero"`
}

// LiveAt tells whether the socket was open for sure.
func (s *Socket) LiveAt(t time.Time) bool {
	return !s.Live.IsZero() && !t.Before(s.Live) && !s.endedBy(t)
}

func (s *Socket) endedBy(t time.Time) bool { return !s.Ended.IsZero() && !s.Ended.After(t) }

// Setting is how an instance was set, if its heartbeats are slower than the others'.
type Setting struct {
	Instance                        string
	HeartbeatInterval, HeartbeatTTL time.Duration
	// From is when the fleet had been told these settings, Until when the instance ended; zero: it
	// has not.
	From, Until time.Time
}

// Execution is a device that did what a command says, whose text is its id; so is the end of the
// answer.
type Execution struct{ IMEI, Command string }

// Outage is a time in which something was not to be had. A zero Until: it has not ended.
type Outage struct {
	Instance    string `json:",omitempty"` // "": everybody, as when Redis itself was away
	From, Until time.Time
}

// The ways in which an instance ends, or seems to.
const (
	Killed   = "killed"
	Stopped  = "stopped"  // and may go on
	Released = "released" // gracefully
	CutOff   = "cut off"  // from Redis; its devices may be there
)

// Death is one end of an instance.
type Death struct {
	Instance string
	At       time.Time
	How      string
	Led      bool // it held the lease
}

// Lookup tells that at some instant between Call and Return the entry of a device named Instance;
// "": nobody.
type Lookup struct {
	IMEI, Instance string
	Call, Return   time.Time
}

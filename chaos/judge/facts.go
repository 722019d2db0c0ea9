package judge

import (
	"time"

	"github.com/rollcall-redis/rollcall/registry"
)

// Facts are what a judge needs and Redis cannot supply.
type Facts struct {
	Layout                                                     registry.Layout
	HeartbeatInterval, HeartbeatTTL, LeaseTTL, JanitorInterval time.Duration
	// Settings are of instances with longer heartbeat times.
	Settings []Setting `json:",omitempty"`
	// Restarts lose the server's counters: a restart, a promotion, a reset of its statistics.
	Restarts []Outage `json:",omitempty"`
	// Sockets are in any order.
	Sockets []Socket
	// Planted are owners without a heartbeat, whose entries the scenario wrote as an older writer
	// would.
	Planted   map[string]bool `json:",omitempty"`
	Unindexed bool            `json:",omitempty"`
	// Outages are when an instance did not run or could not reach Redis. Messages sent before may
	// land later by as much.
	Outages []Outage `json:",omitempty"`
	// Held is when sweeping was paused, or no replica ran. C6 waits for it.
	Held []Outage `json:",omitempty"`
	// Deaths are judged by C6.
	Deaths []Death `json:",omitempty"`
	// Slack is what a busy machine may add to a bound. Sweeping is for slowed sweeps, which faults hit
	// midway.
	Slack    time.Duration `json:",omitempty"`
	Sweeping time.Duration `json:",omitempty"`
	// Lookups are observations, and Acks confirmed registrations.
	Lookups []Lookup `json:",omitempty"`
	Acks    []Lookup `json:",omitempty"`
	// Executed is for C9; nil: nobody recorded it.
	Executed []Execution `json:",omitempty"`
	// Truth maps each device with an open socket at the end to its instance; Alive are the
	// instances that ran then. If Truth is nil, the run did not come to rest.
	Truth map[string]string
	Alive []string
}

// gap is the longest that anyone allows between ticks.
func (f *Facts) gap() time.Duration {
	gap := (f.HeartbeatTTL - f.HeartbeatInterval) / 2
	for _, s := range f.Settings {
		gap = max(gap, (s.HeartbeatTTL-s.HeartbeatInterval)/2)
	}
	return gap
}

func graceOf(ttl time.Duration) time.Duration { return ttl + 2*time.Second }

// grace is how long Redis must have been heard before entries of owner may go: for the longest of
// the fleet at that time, and for the owner's own, which protects it for once as long after its
// end.
func (f *Facts) grace(at time.Time, owner string) time.Duration {
	return max(f.largest(at, 0, ""), f.largest(at, 1, owner))
}

// graceAtMost is longer: the witness may remember settings for longer than it must.
func (f *Facts) graceAtMost(at time.Time) time.Duration { return f.largest(at, 20, "") }

// largest is of one instance, or of all. It ignores settings that ended ago of their grace periods
// before, or more.
func (f *Facts) largest(at time.Time, ago int, of string) time.Duration {
	longest := graceOf(f.HeartbeatTTL)
	for _, s := range f.Settings {
		grace := graceOf(s.HeartbeatTTL)
		lasts := !at.Before(s.From) && (s.Until.IsZero() || at.Before(s.Until.Add(time.Duration(ago)*grace)))
		if lasts && (of == "" || of == s.Instance) {
			longest = max(longest, grace)
		}
	}
	return longest
}

func (f *Facts) heartbeat(instance string) (interval, ttl time.Duration) {
	interval, ttl = f.HeartbeatInterval, f.HeartbeatTTL
	for _, s := range f.Settings {
		if s.Instance == instance {
			interval, ttl = max(interval, s.HeartbeatInterval), max(ttl, s.HeartbeatTTL)
		}
	}
	return interval, ttl
}

func (f *Facts) outbound(instance string) string {
	return f.Layout.Prefix + "commands:outbound:" + instance
}
func (f *Facts) queue() string     { return f.Layout.Prefix + "commands:queue" }
func (f *Facts) responses() string { return f.Layout.Prefix + "commands:responses" }

func (f *Facts) leaseRetry() time.Duration { return f.LeaseTTL * 6 / 25 }

// Socket has times of its device, whose clock is the server's.
type Socket struct {
	IMEI, Instance string
	// Asked is when the device began to connect; nothing of this socket can be older. Zero: unknown.
	Asked time.Time `json:",omitzero"`
	// Live is when the handshake was answered. If it was not, a registration may still have landed.
	Live time.Time `json:",omitzero"`
	// Ended is when the device began to leave the socket, or just before the fault that ended it.
	Ended time.Time `json:",omitzero"`
}

// LiveAt reports whether the socket was open for certain.
func (s *Socket) LiveAt(t time.Time) bool {
	return !s.Live.IsZero() && !t.Before(s.Live) && !s.endedBy(t)
}

func (s *Socket) endedBy(t time.Time) bool { return !s.Ended.IsZero() && !s.Ended.After(t) }

// Setting slows one instance's heartbeats.
type Setting struct {
	Instance                        string
	HeartbeatInterval, HeartbeatTTL time.Duration
	// From is when the fleet knew it, Until when the instance ended.
	From, Until time.Time
}

// Execution has the command's text, its id, which also ends the answer.
type Execution struct{ IMEI, Command string }

// Outage has a zero Until if it has not ended.
type Outage struct {
	Instance    string `json:",omitempty"` // "": everybody
	From, Until time.Time
}

// How an instance ends, or seems to.
const (
	Killed   = "killed"
	Stopped  = "stopped"  // and may resume
	Released = "released" // gracefully
	CutOff   = "cut off"  // from Redis; its devices may still be connected
)

// Death ends an instance.
type Death struct {
	Instance string
	At       time.Time
	How      string
	Led      bool // held the lease
}

// Lookup saw a device's entry name Instance, or nobody, at some instant between Call and Return.
type Lookup struct {
	IMEI, Instance string
	Call, Return   time.Time
}

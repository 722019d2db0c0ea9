package judge

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// Verdict is what Judge found.
type Verdict struct {
	Violations []Violation
	Batches    []Batch
	Terms      []Term
	Leases     []Lease
	Holds      []Hold
	// FalseDeaths are evictions of devices with a live socket whose owner had not refreshed for a
	// TTL. Healed are those whose entry came back and named the device's actual instance.
	FalseDeaths, Healed int
	SlowestHeal         time.Duration
	// NewLeader is from each leader's death until the lease was taken again, Clean from each death
	// until its last entry disappeared, in the order of Facts.Deaths, without those that never
	// happened.
	NewLeader, Clean []time.Duration
	// Final is the history's end.
	Final *history.Keyspace

	facts   *Facts
	at      time.Time // likewise
	changed time.Time // registry or index
}

// Batch is one guarded delete, with its entries.
type Batch struct {
	At       time.Time
	Epoch, N uint64
	Leader   string
	Owner    string // judged dead
	IMEIs    []string
}

// Term opened the log.
type Term struct {
	At     time.Time
	Epoch  uint64
	Leader string
	Token  string // of the lease
}

// Lease was taken.
type Lease struct {
	At    time.Time
	Token string // <instance>/<random>
}

// Hold restarted the witness.
type Hold struct {
	At     time.Time
	Reason string
}

// Evicted counts entries of one dead owner, or of all if owner is "".
func (v *Verdict) Evicted(owner string) (n int) {
	for _, b := range v.Batches {
		if owner == "" || b.Owner == owner {
			n += len(b.IMEIs)
		}
	}
	return n
}

// EvictedBy counts entries that a leader evicted.
func (v *Verdict) EvictedBy(leader string) (n int) {
	for _, b := range v.Batches {
		if b.Leader == leader {
			n += len(b.IMEIs)
		}
	}
	return n
}

// chronicle finds nothing.
type chronicle struct{ passive }

func (chronicle) before(m *moment) {
	l := m.facts.Layout
	switch cmd := m.command; {
	case m.evicts():
		m.verdict.Batches = append(m.verdict.Batches, Batch{
			At: m.now, Epoch: m.record.epoch, N: m.record.n,
			Leader: m.record.fields["leader"], Owner: m.record.fields["owner"], IMEIs: cmd[2:],
		})
	case cmd[0] == "SET" && m.key() == l.Lease():
		m.verdict.Leases = append(m.verdict.Leases, Lease{m.now, cmd[2]})
	}
	if m.changesIndex() {
		m.verdict.changed = m.now
	}
}

func (m *moment) changesIndex() bool {
	prefix := m.facts.Layout.Devices("")
	switch m.command[0] {
	case "SADD", "SREM":
		if !strings.HasPrefix(m.key(), prefix) {
			return false
		}
		set, removes := m.state.Sets[m.key()], m.command[0] == "SREM"
		return slices.ContainsFunc(m.command[2:], func(imei string) bool {
			_, there := set[imei]
			return there == removes
		})
	case "DEL", "UNLINK":
		return slices.ContainsFunc(m.command[1:], func(key string) bool {
			return strings.HasPrefix(key, prefix) && m.state.Exists(key)
		})
	}
	return false
}

func (chronicle) after(m *moment) {
	if m.witnesses("since") && m.reason() != "" {
		m.verdict.Holds = append(m.verdict.Holds, Hold{m.now, m.reason()})
	}
	if len(m.changes) > 0 {
		m.verdict.changed = m.now
	}
}

// struck: any fault counts as a change, since more will follow.
func (chronicle) struck(m *moment) { m.verdict.changed = m.now }

// NextLease returns when an instance other than not first took the lease after t.
func (v *Verdict) NextLease(t time.Time, not string) time.Time {
	for _, l := range v.Leases {
		if id, _, _ := strings.Cut(l.Token, "/"); l.At.After(t) && id != not {
			return l.At
		}
	}
	return time.Time{}
}

// LastHold returns when the witness last restarted.
func (v *Verdict) LastHold() time.Time {
	ms, err := strconv.ParseInt(v.Final.Hashes[v.facts.Layout.Witness()]["hold"], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Quiet returns the time from the last fault to the last change of the registry or an index.
func (v *Verdict) Quiet(from time.Time) time.Duration { return max(0, v.changed.Sub(from)) }

// WrongDeletes counts violations of C1 and C2, which a janitor must never cause.
func (v *Verdict) WrongDeletes() (n int) {
	for _, found := range v.Violations {
		if found.Check == "C1" || found.Check == "C2" {
			n++
		}
	}
	return n
}

// Percentile takes the nearest rank: 50 is the median, 100 the longest.
func Percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(0, min(rank, len(sorted))-1)]
}

// Report writes for people.
func (v *Verdict) Report(to io.Writer, found []Violation) {
	for _, violation := range found {
		fmt.Fprintln(to, violation)
	}
	fmt.Fprintf(to, "%d violations, %d of them wrong deletes; %d sockets, %d terms, "+
		"%d evictions in %d batches, %d false deaths (%d healed, slowest %s)\n",
		len(found), v.WrongDeletes(), len(v.facts.Sockets), len(v.Terms),
		v.Evicted(""), len(v.Batches), v.FalseDeaths, v.Healed, v.SlowestHeal)
	for _, took := range []struct {
		what  string
		times []time.Duration
	}{{"new leader", v.NewLeader}, {"dead owner clean", v.Clean}} {
		if len(took.times) > 0 {
			fmt.Fprintf(to, "%s: %d times, median %s, slowest %s\n",
				took.what, len(took.times), Percentile(took.times, 50), Percentile(took.times, 100))
		}
	}
}

// Settled checks C7, if the facts have the truth.
func (v *Verdict) Settled() (found []Violation) {
	l, live, alive := v.facts.Layout, v.facts.Truth, v.facts.Alive
	if live == nil {
		return nil
	}
	wrong := func(format string, args ...any) {
		found = append(found, Violation{Check: "C7", At: v.at, What: fmt.Sprintf(format, args...)})
	}
	// A living older writer has neither an index nor a place on the roster.
	elder := func(id string) bool { return v.facts.Planted[id] && !slices.Contains(alive, id) }
	entries := v.Final.Hashes[l.Registry()]
	for _, imei := range slices.Sorted(maps.Keys(live)) {
		if got := entries[imei]; got != live[imei] {
			wrong("device %s is at %s, its entry names %q", imei, live[imei], got)
		}
		if _, ok := v.Final.Sets[l.Devices(live[imei])][imei]; !ok && !v.facts.Unindexed && !elder(live[imei]) {
			wrong("device %s is at %s and not in its index", imei, live[imei])
		}
	}
	for _, imei := range slices.Sorted(maps.Keys(entries)) {
		if _, ok := live[imei]; !ok {
			wrong("entry %s names %s, but there is no socket", imei, entries[imei])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.Final.Sets)) {
		id, index := strings.CutPrefix(key, l.Devices(""))
		if !index {
			continue
		}
		for imei := range v.Final.Sets[key] {
			if live[imei] != id {
				wrong("the index of %s has %s, which is at %q", id, imei, live[imei])
			}
		}
	}
	roster := v.Final.Sets[l.Roster()]
	for _, id := range alive {
		if _, ok := roster[id]; !ok {
			wrong("%s lives and is not on the roster", id)
		}
		if _, ok := v.Final.Strings[l.Heartbeat(id)]; !ok {
			wrong("%s lives and has no heartbeat", id)
		}
	}
	for id := range roster {
		if !slices.Contains(alive, id) {
			wrong("%s is on the roster and does not live", id)
		}
	}
	for key := range v.Final.Strings {
		if id, beat := strings.CutPrefix(key, l.Heartbeat("")); beat && !slices.Contains(alive, id) && !elder(id) {
			wrong("%s has a heartbeat and does not live", id)
		}
	}
	return found
}

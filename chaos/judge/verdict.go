package judge

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/history"
)

// Verdict is what a history shows.
type Verdict struct {
	Violations []Violation
	Batches    []Batch
	Terms      []Term
	Leases     []Lease
	Holds      []Hold
	// FalseDeaths are evictions of devices with a live socket whose owner had not refreshed for a
	// TTL. Healed are those whose entry came back while the device was where it then said, the
	// slowest of them after SlowestHeal.
	FalseDeaths, Healed int
	SlowestHeal         time.Duration
	// NewLeader is how long after each leader's death the lease was taken again, Clean how long
	// after each death the last entry that named the dead was gone, in the order of Facts.Deaths;
	// what did not happen is left out.
	NewLeader, Clean []time.Duration
	// Final is the keyspace at the history's end.
	Final *history.Keyspace

	facts   *Facts
	at      time.Time // the history's end
	changed time.Time // when the registry or an index last changed
}

// Batch is one guarded delete as H has it: the log's record, and what was deleted in the same
// step.
type Batch struct {
	At       time.Time
	Epoch, N uint64
	Leader   string
	Owner    string // judged dead
	IMEIs    []string
}

// Term is one opening of the log.
type Term struct {
	At     time.Time
	Epoch  uint64
	Leader string
	Token  string // of the lease
}

// Lease is one taking of the lease.
type Lease struct {
	At    time.Time
	Token string // <instance>/<random>
}

// Hold is one new beginning of the witness.
type Hold struct {
	At     time.Time
	Reason string
}

// Evicted is how many entries were evicted, of one dead owner, or of all if owner is "".
func (v *Verdict) Evicted(owner string) (n int) {
	for _, b := range v.Batches {
		if owner == "" || b.Owner == owner {
			n += len(b.IMEIs)
		}
	}
	return n
}

// EvictedBy is how many entries were evicted in the name of a leader.
func (v *Verdict) EvictedBy(leader string) (n int) {
	for _, b := range v.Batches {
		if b.Leader == leader {
			n += len(b.IMEIs)
		}
	}
	return n
}

// chronicle notes in the verdict what happened when. It finds no fault.
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

// changesIndex tells whether the present command changes a reverse index.
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

// What was struck, index or not, is a change: there is more to come.
func (chronicle) struck(m *moment) { m.verdict.changed = m.now }

// NextLease returns when another instance than not took the lease for the first time after t; zero
// if none has.
func (v *Verdict) NextLease(t time.Time, not string) time.Time {
	for _, l := range v.Leases {
		if id, _, _ := strings.Cut(l.Token, "/"); l.At.After(t) && id != not {
			return l.At
		}
	}
	return time.Time{}
}

// LastHold returns when the witness last started anew.
func (v *Verdict) LastHold() time.Time {
	ms, err := strconv.ParseInt(v.Final.Hashes[v.facts.Layout.Witness()]["hold"], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Quiet is how long after an instant, the end of the last fault, the registry or an index last
// changed: how long it took to converge. 0 if nothing changed any more.
func (v *Verdict) Quiet(from time.Time) time.Duration { return max(0, v.changed.Sub(from)) }

// WrongDeletes is how many violations of C1 and C2 were found: what a janitor must never do.
func (v *Verdict) WrongDeletes() (n int) {
	for _, found := range v.Violations {
		if found.Check == "C1" || found.Check == "C2" {
			n++
		}
	}
	return n
}

// Percentile returns the p-th of durations, by nearest rank: 50 is the median, 100 the longest. 0
// if there are none.
func Percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(0, min(rank, len(sorted))-1)]
}

// Report writes what was found, and what the history shows besides, for people.
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

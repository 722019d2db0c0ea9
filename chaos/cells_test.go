package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// A cell is a small fleet among many on one Redis, for volume: two replicas without sockets in this
// process, under a prefix of its own.
const (
	cellInterval = 800 * time.Millisecond
	cellTTL      = 3 * cellInterval
	cellGap      = (cellTTL - cellInterval) / 2
	cellLease    = 3 * time.Second
	cellDevices  = 5 // of each member
	refusals     = 100
)

type cell struct {
	registry.Layout
	w       *environment
	members []*harness.Member
	answers []*proxy.Score // to each member's batches
	holds   []*proxy.Rule  // of each member's batches
	truth   map[string]string
	sockets []judge.Socket
	planted int
}

// cells starts so many, and waits until each has swept something, and so may delete and has the
// server know the script.
func (w *environment) cells(n int) (cells []*cell) {
	w.T.Helper()
	for i := range n {
		c := &cell{Layout: registry.Layout{Prefix: fmt.Sprintf("cell-%02d:", i)}, w: w, truth: make(map[string]string)}
		for m := range 2 {
			c.join(fmt.Sprintf("member-%d", m))
		}
		cells = append(cells, c)
	}
	for _, c := range cells {
		c.haunt()
	}
	w.swept(cells)
	return cells
}

// swept waits until the leader has deleted what it may.
func (w *environment) swept(cells []*cell) {
	w.T.Helper()
	for _, c := range cells {
		harness.Eventually(w.T, "the cell is at rest", func() bool { return c.entries() == len(c.truth) })
	}
}

func (c *cell) join(id string) {
	m := harness.NewMember(c.w.T, c.w.Server, cellGap*2/5,
		registry.Config{Instance: id, Layout: c.Layout, HeartbeatInterval: cellInterval, HeartbeatTTL: cellTTL, Drain: time.Second},
		janitor.Config{Interval: time.Second, LeaseTTL: cellLease, DeleteBatch: 10})
	c.members = append(c.members, m)
	c.answers = append(c.answers, m.Proxy.Answers(harness.BatchesOf(c.Layout)))
	for d := range cellDevices {
		imei := fmt.Sprintf("87%s%012d", id[len(id)-1:], d)
		_ = m.Register(imei, harness.Nobody).Wait(c.w.T.Context()) // one that comes late is healed
		c.truth[imei] = id
		c.sockets = append(c.sockets, judge.Socket{IMEI: imei, Instance: id, Live: time.Now()})
	}
}

// haunt plants entries of somebody dead.
func (c *cell) haunt() {
	c.planted++
	pairs := make([]any, 0, 20)
	for i := range 10 {
		pairs = append(pairs, fmt.Sprintf("86%06d%07d", c.planted, i), "ghost")
	}
	require.NoError(c.w.T, c.w.HSet(c.w.T.Context(), c.Registry(), pairs...).Err())
}

func (c *cell) entries() int { return int(c.w.HLen(c.w.T.Context(), c.Registry()).Val()) }

// hold keeps back every batch of the cell from now on; caught returns when there is one. A batch
// that is asked for again because its answer was lost is let through: what was done is answered so,
// whatever has become of the lease or the witness.
func (c *cell) hold() {
	c.holds = nil
	isBatch := harness.BatchesOf(c.Layout)
	fresh := func(r proxy.Request) bool {
		if !isBatch(r) {
			return false
		}
		id := harness.BatchIDOf(r)
		return len(c.w.XRange(c.w.T.Context(), c.Log(), id, id).Val()) == 0
	}
	for _, m := range c.members {
		c.holds = append(c.holds, m.Proxy.HoldEach(fresh))
	}
}

func (c *cell) caught() (batch proxy.Request) {
	c.w.T.Helper()
	select {
	case batch = <-c.holds[0].Caught:
	case batch = <-c.holds[1].Caught:
	case <-time.After(harness.Patience):
		require.Fail(c.w.T, "no batch was sent", c.Prefix)
	}
	return batch
}

// let has what is held go on.
func (c *cell) let() {
	for _, r := range c.holds {
		r.End()
	}
}

// refused is how many of the cell's batches got that answer.
func (c *cell) refused(verdict guard.Verdict) (n int) {
	for _, a := range c.answers {
		n += a.Counts()[string(verdict)]
	}
	return n
}

// judged waits until the cell has come to rest, and judges it by its own part of the history.
func (w *environment) judged(cells []*cell) {
	w.T.Helper()
	w.swept(cells)
	for _, c := range cells {
		beats := []string{c.Layout.Heartbeat("member-0"), c.Layout.Heartbeat("member-1")}
		harness.Eventually(w.T, "both beat", func() bool { return w.Exists(w.T.Context(), beats...).Val() == 2 })
	}
	h := w.History()
	var found []judge.Violation
	sum := &judge.Verdict{}
	for _, c := range cells {
		v := judge.Judge(partOf(h, c.Layout), judge.Facts{
			Layout: c.Layout, HeartbeatInterval: cellInterval, HeartbeatTTL: cellTTL, LeaseTTL: cellLease, JanitorInterval: time.Second, Slack: harness.BusyMachine,
			Sockets: c.sockets, Planted: map[string]bool{"ghost": true}, Outages: w.Facts(nil).Outages, Truth: c.truth, Alive: []string{"member-0", "member-1"},
		})
		found = slices.Concat(found, v.Violations, v.Settled())
		require.Equal(w.T, 10*c.planted, v.Evicted("ghost"), "what was planted in %s", c.Prefix)
		sum.Violations = append(sum.Violations, v.Violations...)
		sum.Batches = append(sum.Batches, v.Batches...)
		sum.Terms = append(sum.Terms, v.Terms...)
		sum.FalseDeaths += v.FalseDeaths
		sum.Healed += v.Healed
	}
	for _, violation := range found {
		w.T.Error(violation)
	}
	w.note(sum, found)
	for _, c := range cells {
		w.result.Fenced += c.refused(guard.Fenced)
		w.result.Held += c.refused(guard.Held)
	}
	w.result.Hits = w.result.Fenced + w.result.Held
	w.T.Logf("%d cells, %d events, %d terms, %d evictions in %d batches; refused: %d FENCED, %d HELD",
		len(cells), len(h), len(sum.Terms), sum.Evicted(""), len(sum.Batches), w.result.Fenced, w.result.Held)
}

// partOf is the part of a history that is about one fleet of several.
func partOf(h history.History, l registry.Layout) (part history.History) {
	for _, e := range h {
		for _, c := range e.Commands {
			if len(c) > 1 && strings.Contains(c[1], l.Prefix) {
				part = append(part, e)
				break
			}
		}
	}
	return part
}

// Batches are kept in the network, the lease is taken away, the other member leads, and only then
// they land: a hundred times.
func fenceRefusesAHundred(w *environment) {
	cells := w.cells(8)
	for refused := 0; refused < refusals; {
		for _, c := range cells {
			c.hold()
			c.haunt()
		}
		epochs := make([]string, len(cells))
		for i, c := range cells {
			epochs[i], _, _ = strings.Cut(harness.BatchIDOf(c.caught()), "-")
		}
		for _, c := range cells {
			w.Meddle("the lease of "+c.Prefix, func(p redis.Pipeliner) { p.Del(w.T.Context(), c.Lease()) })
		}
		for i, c := range cells {
			harness.Eventually(w.T, "a newer term has begun", func() bool {
				newest := w.XRevRangeN(w.T.Context(), c.Log(), "+", "-", 1).Val()
				return len(newest) == 1 && !strings.HasPrefix(newest[0].ID, epochs[i]+"-")
			})
		}
		refused = 0
		for _, c := range cells {
			before := c.refused(guard.Fenced)
			c.let()
			harness.Eventually(w.T, "the fence refuses", func() bool { return c.refused(guard.Fenced) > before })
			refused += c.refused(guard.Fenced)
		}
		w.T.Logf("%d refused", refused)
		w.swept(cells)
	}
	w.judged(cells)
}

// Redis stands still for longer than GAP, and batches that were on their way are the first that it
// hears of afterwards: a hundred times. Nobody ticks before them.
func witnessRefusesAHundred(w *environment) {
	cells := w.cells(20)
	for refused := 0; refused < refusals; {
		var deaf []*proxy.Rule
		for _, c := range cells {
			c.hold()
			c.haunt()
		}
		for _, c := range cells {
			c.caught()
		}
		for _, c := range cells {
			for _, m := range c.members {
				deaf = append(deaf, m.Proxy.LoseRequestSilently(harness.TicksOf(c.Layout), -1))
			}
		}
		back := w.Outage("")
		w.Server.Stop()
		harness.Lasting(cellGap * 5 / 4)
		before := make([]int, len(cells))
		for i, c := range cells {
			before[i] = c.refused(guard.Held)
			c.let()
		}
		w.Server.Cont()
		back()
		refused = 0
		for i, c := range cells {
			harness.Eventually(w.T, "the witness refuses", func() bool { return c.refused(guard.Held) > before[i] })
			refused += c.refused(guard.Held)
		}
		w.T.Logf("%d refused", refused)
		for _, r := range deaf {
			r.End()
		}
		w.swept(cells)
	}
	w.judged(cells)
}

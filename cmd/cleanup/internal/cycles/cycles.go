// Package cycles sums up a worker's passes of package orphan's rules, for the log, the metrics, GET
// /api/v1/stats and the status page.
//
// A cycle is one full pass of every rule, whatever its outcome, except one lost with its term. Each
// cycle is logged. It counts if at least one rule is done: while all are held, nothing is cleaned
// up.
package cycles

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Config of Cycles. All fields except Registerer are required.
type Config struct {
	Rules []rules.Rule
	// Removed is the Stats method of an orphan.Set.
	Removed    func() orphan.Stats
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Cycles is safe for concurrent use.
type Cycles struct {
	cfg     Config
	metrics *metrics

	mu     sync.Mutex
	passes map[string]orphan.Result // of the present cycle
	last   map[string]orphan.Result // of each rule
	before orphan.Stats             // at the end of the last cycle
	ended  time.Time                // of the last cycle that counts
	runs   uint64                   // cycles that count
}

// New fails if metrics cannot be registered.
func New(c Config) (*Cycles, error) {
	m, err := newMetrics(c)
	if err != nil {
		return nil, err
	}
	return &Cycles{
		cfg: c, metrics: m, passes: map[string]orphan.Result{}, last: map[string]orphan.Result{},
	}, nil
}

// Passed is for orphan.Config. It ignores passes that are not full; what they remove is part of the
// current cycle.
func (c *Cycles) Passed(r orphan.Result) {
	if !r.Full {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[r.Rule] = r
	if r.Outcome == janitor.Lost {
		return
	}
	c.passes[r.Rule] = r
	if len(c.passes) < len(c.cfg.Rules) {
		return
	}
	now, removed := time.Now(), c.cfg.Removed()
	passes := slices.Collect(maps.Values(c.passes))
	clear(c.passes)
	took := busy(passes)
	c.log(took, removed)
	c.before = removed
	if slices.ContainsFunc(passes, func(r orphan.Result) bool { return r.Outcome == janitor.Done }) {
		c.metrics.cycle(now, took)
		c.ended = now
		c.runs++
	}
}

// busy returns how long at least one pass was running: rules run in parallel, and one requested
// alone may have run minutes before.
func busy(passes []orphan.Result) (total time.Duration) {
	slices.SortFunc(passes, func(a, b orphan.Result) int { return a.Started.Compare(b.Started) })
	var until time.Time
	for _, p := range passes {
		begin, end := p.Started, p.Started.Add(p.Duration)
		if begin.Before(until) {
			begin = until
		}
		if end.After(until) {
			total += end.Sub(begin)
			until = end
		}
	}
	return total
}

func (c *Cycles) log(took time.Duration, removed orphan.Stats) {
	held, failed, dry := map[string]string{}, map[string]string{}, []string{}
	for _, rule := range c.cfg.Rules {
		r := c.last[rule.Name]
		switch r.Outcome {
		case janitor.Held:
			held[r.Rule] = strings.TrimSuffix(r.Reason+": "+r.Detail, ": ")
		case janitor.Failed:
			failed[r.Rule] = r.Detail
		}
		if r.DryRun {
			dry = append(dry, r.Rule)
		}
	}
	line := []any{"seconds", took.Seconds(), "keys", removed.Keys - c.before.Keys,
		"removed", c.since(removed, c.before)}
	if len(held) > 0 {
		line = append(line, "held", held)
	}
	if len(failed) > 0 {
		line = append(line, "failed", failed)
	}
	if len(dry) > 0 {
		line = append(line, "only_reported", dry)
	}
	c.cfg.Logger.Info("cleanup cycle over", line...)
}

// Since returns what was removed since before: by category, and the number of keys in total.
func (c *Cycles) Since(before orphan.Stats) (removed map[string]uint64, keys uint64) {
	now := c.cfg.Removed()
	return c.since(now, before), now.Keys - before.Keys
}

func (c *Cycles) since(now, before orphan.Stats) map[string]uint64 {
	removed := make(map[string]uint64)
	for _, name := range c.categories() {
		removed[name] = now.Categories[name] - before.Categories[name]
	}
	return removed
}

func (c *Cycles) categories() []string { return categories(c.cfg.Rules) }

func categories(rules []rules.Rule) (names []string) {
	for _, r := range rules {
		if name := cmp.Or(r.Category, r.Name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Keys of Stats.Cumulative that are not categories.
const (
	totalKeysRemoved = "totalKeysRemoved"
	byRule           = "byRule"
)

// Reserved returns Stats' own names, which no category may have.
func Reserved() []string { return []string{totalKeysRemoved, byRule} }

// Stats is the body of GET /api/v1/stats.
type Stats struct {
	IsRunning   bool       `json:"isRunning"`
	LastCleanup *time.Time `json:"lastCleanup"` // end of the last cycle; nil: none yet
	// TotalCleanupsRun counts cycles in which a rule was done.
	TotalCleanupsRun uint64 `json:"totalCleanupsRun"`
	// Cumulative has what this process has removed: orphans by category; as totalKeysRemoved, keys and
	// members, related ones included; as byRule, orphans by rule.
	Cumulative map[string]any `json:"cumulativeStats"`
}

// Stats are this process's.
func (c *Cycles) Stats(running bool) Stats {
	now := c.cfg.Removed()
	s := Stats{IsRunning: running, Cumulative: map[string]any{totalKeysRemoved: now.Keys}}
	for name, n := range c.since(now, orphan.Stats{}) {
		s.Cumulative[name] = n
	}
	rules := make(map[string]uint64)
	for _, r := range c.cfg.Rules {
		rules[r.Name] = now.Rules[r.Name]
	}
	s.Cumulative[byRule] = rules
	c.mu.Lock()
	defer c.mu.Unlock()
	s.TotalCleanupsRun = c.runs
	if !c.ended.IsZero() {
		at := c.ended.UTC().Truncate(time.Millisecond)
		s.LastCleanup = &at
	}
	return s
}

// Untold returns, by rule, how many candidates the last full pass kept because a sign had no
// answer, and how many there were, where that is most of them.
func (c *Cycles) Untold() map[string][2]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string][2]int{}
	for rule, r := range c.last {
		if n := r.Kept["unknown"]; 2*n > r.Scanned {
			found[rule] = [2]int{n, r.Scanned}
		}
	}
	return found
}

// RuleStatus is a rule's last full pass here.
type RuleStatus struct {
	Rule     string          `json:"rule"`
	Category string          `json:"category"`
	Delete   bool            `json:"delete"`           // false: it only reports
	Started  time.Time       `json:"started,omitzero"` // zero: no pass yet
	Outcome  janitor.Outcome `json:"outcome,omitempty"`
	Reason   string          `json:"reason,omitempty"` // if held
	Detail   string          `json:"detail,omitempty"` // what is lost, or the error
	DryRun   bool            `json:"dry_run"`
	Seconds  float64         `json:"seconds"`
	Scanned  int             `json:"scanned"`
	// Condemned counts the pass's last look, Removed the whole pass.
	Condemned int             `json:"condemned"`
	Removed   int             `json:"removed"`
	Kept      map[string]int  `json:"kept,omitempty"`
	Coverage  orphan.Coverage `json:"coverage"`
	Total     uint64          `json:"removed_total"` // orphans, by this process
}

// Rules returns the last pass of each rule, in order.
func (c *Cycles) Rules() []RuleStatus {
	removed := c.cfg.Removed()
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]RuleStatus, len(c.cfg.Rules))
	for i, rule := range c.cfg.Rules {
		r := c.last[rule.Name]
		all[i] = RuleStatus{
			Rule: rule.Name, Category: cmp.Or(rule.Category, rule.Name), Delete: rule.Delete,
			Started: r.Started, Outcome: r.Outcome, Reason: r.Reason, Detail: r.Detail, DryRun: r.DryRun,
			Seconds: r.Duration.Seconds(), Scanned: r.Scanned, Condemned: r.Condemned, Removed: r.Removed,
			Kept: maps.Clone(r.Kept), Coverage: r.Coverage, Total: removed.Rules[rule.Name],
		}
	}
	return all
}

// Asked is the result of a requested pass of one rule.
type Asked struct {
	Rule      string          `json:"rule"`
	Outcome   janitor.Outcome `json:"outcome"`
	Reason    string          `json:"reason,omitempty"`
	Detail    string          `json:"detail,omitempty"`
	DryRun    bool            `json:"dryRun"`
	Condemned int             `json:"condemned"`
	Removed   int             `json:"removed"`
	// Waiting will be removed after their grace, the first at WaitingUntil; nil: none.
	Waiting      int        `json:"waiting"`
	WaitingUntil *time.Time `json:"waitingUntil"`
	LeftOverCap  int        `json:"leftOverCap"` // left to the passes that follow at once
}

// Answer sums up requested passes, by the names of each rule's numbers.
func Answer(passes []orphan.Result) map[string]any {
	rules, condemned, waiting, left := []Asked{}, 0, 0, 0
	var first *time.Time
	for _, p := range passes {
		a := Asked{
			Rule: p.Rule, Outcome: p.Outcome, Reason: p.Reason, Detail: p.Detail, DryRun: p.DryRun,
			Condemned: p.Condemned, Removed: p.Removed, Waiting: p.Waiting, LeftOverCap: p.Left,
		}
		if !p.Until.IsZero() {
			at := p.Until.UTC().Truncate(time.Millisecond)
			a.WaitingUntil = &at
			if first == nil || at.Before(*first) {
				first = &at
			}
		}
		condemned, waiting, left = condemned+a.Condemned, waiting+a.Waiting, left+a.LeftOverCap
		rules = append(rules, a)
	}
	return map[string]any{
		"condemned": condemned, "waiting": waiting, "waitingUntil": first, "leftOverCap": left, "rules": rules,
	}
}

type metrics struct {
	duration prometheus.Histogram
	cycles   prometheus.Counter
	ended    *prometheus.GaugeVec
}

func newMetrics(c Config) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "cleanup_cycle_duration_seconds",
			Help:    "For how long passes of a cycle were under way, rest included.",
			Buckets: []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300}, // the alert's threshold is 10
		}),
		cycles: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cleanup_cycles_total",
			Help: "Cycles: each rule has had one full pass, and at least one of them was not held.",
		}),
		// A plain gauge would show 1970 until the first cycle.
		ended: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cleanup_last_cycle_timestamp_seconds", Help: "When this process last finished a cycle.",
		}, nil),
	}
	if c.Registerer == nil {
		return m, nil
	}
	all := []prometheus.Collector{m.duration, m.cycles, m.ended}
	for _, name := range categories(c.Rules) {
		counter := func(metric, help string, count func(orphan.Stats) uint64) {
			all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: metric, Help: help, ConstLabels: prometheus.Labels{"category": name},
			}, func() float64 { return float64(count(c.Removed())) }))
		}
		counter("cleanup_keys_removed_total", "Keys and members removed, with related ones, by category.",
			func(s orphan.Stats) uint64 { return s.CategoryKeys[name] })
		counter("cleanup_orphans_removed_total",
			"Orphans removed, by category: each once, however many keys went with it.",
			func(s orphan.Stats) uint64 { return s.Categories[name] })
	}
	for _, one := range all {
		if err := c.Registerer.Register(one); err != nil {
			return nil, fmt.Errorf("cleanup: metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) cycle(now time.Time, took time.Duration) {
	m.duration.Observe(took.Seconds())
	m.cycles.Inc()
	m.ended.WithLabelValues().Set(float64(now.UnixMilli()) / 1000)
}

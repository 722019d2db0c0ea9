package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Config configures a Set.
type Config struct {
	Rules []rules.Rule
	// Client is the janitor's, and not closed here.
	Client redis.UniversalClient
	Source Source       // nil: rules that ask MongoDB are refused
	Layout guard.Layout // the same as the registry's and the janitor's

	// Interval between two full passes of a rule. Default 5 m.
	Interval time.Duration

	// Passed, if set, receives the result of each pass, from any goroutine.
	Passed func(Result)

	Logger     *slog.Logger // default slog.Default()
	Registerer prometheus.Registerer
}

// A Set is a list of checked rules, safe for concurrent use.
type Set struct {
	c       Config
	rules   []*rule
	holdFor time.Duration // of a mass failure, at least
	metrics *metrics
	walks   walks

	evidence time.Duration // how long a look counts on a Cluster

	mu    sync.Mutex
	gone  map[string]uint64 // removals, by rule
	due   map[string]time.Time
	asked map[string]Result
}

const defaultInterval = 5 * time.Minute

// New checks the rules, and returns everything wrong with them as a Faults error. It does not
// contact Redis.
func New(c Config) (*Set, error) {
	if c.Client == nil {
		return nil, errors.New("orphan: Client is missing")
	}
	if c.Interval < 0 {
		return nil, fmt.Errorf("orphan: Interval is %s, must not be negative", c.Interval)
	}
	if err := rules.Validate(c.Rules, c.Layout); err != nil {
		return nil, err
	}
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Set{
		c: c, holdFor: time.Minute, evidence: evidenceFor, metrics: newMetrics(), gone: map[string]uint64{},
		due: map[string]time.Time{}, asked: map[string]Result{},
	}
	for _, each := range rules.Companions(c.Rules) {
		r := compile(each.WithDefaults())
		if len(r.collections()) > 0 && c.Source == nil {
			return nil, fmt.Errorf("orphan: rule %q asks MongoDB, and there is no Source", r.Name)
		}
		s.rules = append(s.rules, r)
		s.metrics.begin(r)
	}
	if err := s.metrics.register(c.Registerer); err != nil {
		return nil, fmt.Errorf("orphan: metrics: %w", err)
	}
	return s, nil
}

// Sweeps returns one sweep per rule, with the rule's name.
func (s *Set) Sweeps() []janitor.Sweeper {
	sweeps := make([]janitor.Sweeper, len(s.rules))
	for i, r := range s.rules {
		sweeps[i] = &sweep{rule: r, set: s}
	}
	return sweeps
}

// nextDue returns when the next full pass is due: an interval later, or together with another
// rule's, so that they share their walk.
func (s *Set) nextDue(rule string, begun time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.due, rule)
	next := begun.Add(s.c.Interval)
	var with time.Time
	for _, due := range s.due {
		if due.After(with) && due.After(begun) && !due.After(next) {
			with = due
		}
	}
	s.due[rule] = cmp.Or(with, next)
	return s.due[rule]
}

// removed counts each delete once: on the reply, or when a lost reply was looked up.
func (s *Set) removed(rule string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[rule] += uint64(n)
	s.metrics.removed.WithLabelValues(rule).Add(float64(n))
}

func (s *Set) conclude(ctx context.Context, r *Result, err error) {
	held, isHeld := errors.AsType[*janitor.HeldError](err)
	switch {
	case err == nil:
		r.Outcome = janitor.Done
	case isHeld:
		r.Outcome, r.Reason = janitor.Held, held.Reason
	case ctx.Err() != nil || errors.Is(err, janitor.ErrFenced):
		r.Outcome = janitor.Lost
	default:
		r.Outcome, r.Detail = janitor.Failed, err.Error()
	}
	maps.DeleteFunc(r.Kept, func(_ string, n int) bool { return n == 0 })
}

func (s *Set) passed(r *Result) {
	s.metrics.passed(r)
	if s.c.Passed != nil {
		s.c.Passed(*r)
	}
}

// A Result is what one pass of a rule did.
type Result struct {
	Rule     string
	Category string
	Outcome  janitor.Outcome
	Reason   string // if held: reference_lost, source, mass_failure, or a hold of the janitor
	Detail   string // if held or failed
	// Full: the pass read all candidates. Passes in between look only at marked ones, and make most
	// deletes.
	Full     bool
	DryRun   bool // also if the rule does not set delete
	Started  time.Time
	Duration time.Duration

	Scanned   int
	Condemned int // by this pass's last look
	Removed   int
	Kept      map[string]int
	Coverage  Coverage

	Waiting int // condemned; their grace is not over
	// Until is when the first of these graces ends, by this process's clock; zero: none.
	Until time.Time
	// Left is how many condemned candidates the cap leaves to later passes, which begin at once.
	Left int
}

// Coverage of the servers by a pass. One that is not Complete marks nothing.
type Coverage struct {
	Masters  int  `json:"masters"` // read to the end
	Of       int  `json:"of"`      // that exist
	Complete bool `json:"complete"`
}

func (s *Set) answer(r *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.Rule] = *r
}

// Asked returns the last requested pass of each rule that began at or after since, dry runs
// included.
func (s *Set) Asked(since time.Time) (passes []Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		if last := s.asked[r.Name]; last.Rule != "" && !last.Started.Before(since) {
			passes = append(passes, last)
		}
	}
	return passes
}

// Stats are the removals of this process.
type Stats struct {
	Categories   map[string]uint64 // candidates, by Rule.Category; without related keys
	Rules        map[string]uint64 // keys and members, by Rule.Name
	Keys         uint64            // keys and members
	CategoryKeys map[string]uint64 // the same, by Rule.Category
}

// Stats counts a delete with a lost reply once its outcome is known.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{Categories: map[string]uint64{}, Rules: map[string]uint64{}, CategoryKeys: map[string]uint64{}}
	for _, r := range s.rules {
		n := s.gone[r.Name]
		if stats.Rules[r.Name] = n; r.Of == "" { // a companion's is a key, and no candidate of its category
			stats.Categories[r.Category] += n
		}
		stats.CategoryKeys[r.Category] += n
	}
	for _, n := range s.gone { // those of rules that were taken out, too
		stats.Keys += n
	}
	return stats
}

// A Source reads documents from a database, as package mongodb does.
type Source interface {
	// Documents reads at most 500 documents by _id, and returns those found, with the requested fields
	// that exist. An error means that nothing is known. The implementation sets the deadline.
	Documents(ctx context.Context, q Query) (map[string]Document, error)
	// Empty reports whether a collection has no documents.
	Empty(ctx context.Context, collection string) (bool, error)
}

// A Query asks for documents of one collection.
type Query struct {
	Collection string
	IDs        []string
	ObjectIDs  bool     // IDs are hexadecimal ObjectIDs; else text
	Fields     []string // dotted
}

// A Document has the requested fields by dotted name: string, int64, float64, bool, time.Time, or
// another type that no condition matches.
type Document map[string]any

type metrics struct {
	removed, kept, held *prometheus.CounterVec
	condemned, last     *prometheus.GaugeVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"rule"})
	}
	return &metrics{
		removed: counter("orphan_removed_total", "Keys and members that went, by rule.", "rule"),
		kept: counter(
			"orphan_kept_total",
			"Candidates that a full pass kept, by rule and reason.",
			"rule",
			"reason",
		),
		held: counter("orphan_held_total",
			"Passes held because of the rule itself.", "rule", "reason"),
		condemned: gauge("orphan_condemned", "Candidates that the last pass found condemned, gone or waiting."),
		last:      gauge("orphan_last_success_timestamp_seconds", "When this process last finished a full pass."),
	}
}

// begin lets alerts see 0 before the first count.
func (m *metrics) begin(r *rule) {
	m.removed.WithLabelValues(r.Name)
	m.condemned.WithLabelValues(r.Name)
	for _, reason := range []string{
		alive, young, unreadable, unknown, foreign, large, waiting, noMark, capped, changed,
	} {
		m.kept.WithLabelValues(r.Name, reason)
	}
	for _, reason := range ownReasons {
		m.held.WithLabelValues(r.Name, reason)
	}
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m.removed, m.kept, m.held, m.condemned, m.last} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) passed(r *Result) {
	if slices.Contains(ownReasons, r.Reason) {
		m.held.WithLabelValues(r.Rule, r.Reason).Inc()
	}
	if r.Outcome != "done" {
		return
	}
	m.condemned.WithLabelValues(r.Rule).Set(float64(r.Condemned))
	if !r.Full {
		return
	}
	m.last.WithLabelValues(r.Rule).SetToCurrentTime()
	for reason, n := range r.Kept {
		m.kept.WithLabelValues(r.Rule, reason).Add(float64(n))
	}
}

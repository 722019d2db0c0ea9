package orphan

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

var errNotBuilt = errors.New("orphan: not built yet")

// Config configures a Set.
type Config struct {
	Rules  []Rule
	Client redis.UniversalClient // what sweeps read and delete through; the janitor's. Not closed here.
	Source Source                // nil: a rule that asks MongoDB is refused
	Layout guard.Layout          // of this worker's own keys; the registry's and the janitor's

	// Interval between two full passes of a rule. Default 5 m.
	Interval time.Duration

	// Passed is told of each full pass, from any goroutine; nil: nobody asks.
	Passed func(Result)

	Logger     *slog.Logger          // default slog.Default()
	Registerer prometheus.Registerer // nil: none are registered
}

// A Set is rules that are checked and ready to run. Safe for concurrent use.
type Set struct{}

// New checks the rules, and returns all that is wrong with them as a Faults error. It does not talk to
// Redis.
func New(c Config) (*Set, error) { return nil, errNotBuilt }

// Sweeps are the rules as sweeps of the janitor, one each, by the rule's name.
func (s *Set) Sweeps() []janitor.Sweeper { return nil }

// A Result says what one pass of a rule found and did.
type Result struct {
	Rule     string
	Category string
	Outcome  janitor.Outcome
	Reason   string // of a held pass: reference_lost, source, mass_failure, or a hold of the janitor
	DryRun   bool   // also where the rule does not say delete
	Started  time.Time
	Duration time.Duration

	Scanned   int            // candidates looked at
	Condemned int            // by the last look of this pass
	Removed   int            // candidates that went
	Keys      int            // keys and members that went, with related ones
	Kept      map[string]int // candidates by the reason they were kept for
	Coverage  Coverage
}

// Coverage says how much of the servers a pass has read. One that is not Complete marks nothing.
type Coverage struct {
	Masters  int  `json:"masters"` // that were read to the end
	Of       int  `json:"of"`      // masters that there are
	Complete bool `json:"complete"`
}

// Stats are what this process has removed, since it began.
type Stats struct {
	Categories map[string]uint64 // candidates that went, by Rule.Category
	Rules      map[string]uint64 // the same, by Rule.Name
	Keys       uint64            // keys and members that went, with related ones
}

// Stats returns what this process has removed. What a lost reply hid is counted when it is known.
func (s *Set) Stats() Stats { return Stats{} }

// A Finding is what a look says of one candidate.
type Finding struct {
	Rule    string   `json:"rule"`
	Name    string   `json:"name"`    // the key, or the key and its member
	Related []string `json:"related"` // keys that would go with it
	Verdict string   `json:"verdict"` // condemned, alive, young, unreadable, unknown, foreign
	Why     []string `json:"why"`     // each sign, and what it answered
	// Since is when it was first found condemned, from its mark; zero: it has none.
	Since time.Time `json:"since,omitzero"`
}

// A Plan is what a look at all candidates of a rule found.
type Plan struct {
	Rule     string         `json:"rule"`
	Held     string         `json:"held,omitempty"` // reference_lost, source: why nothing would go
	Detail   string         `json:"detail,omitempty"`
	Scanned  int            `json:"scanned"`
	Verdicts map[string]int `json:"verdicts"`
	Findings []Finding      `json:"findings"` // the first condemned ones, limit at most
	Coverage Coverage       `json:"coverage"`
}

// Plan looks once at every candidate of each rule, and writes nothing.
func (s *Set) Plan(ctx context.Context, limit int) ([]Plan, error) { return nil, errNotBuilt }

// Explain looks at one key now, and says what each rule that is about it finds.
func (s *Set) Explain(ctx context.Context, key string) ([]Finding, error) { return nil, errNotBuilt }

// Binned is something in a bin.
type Binned struct {
	ID      string    `json:"id"` // for Restore
	Rule    string    `json:"rule"`
	Name    string    `json:"name"` // as it was called
	Removed time.Time `json:"removed"`
	Until   time.Time `json:"until"` // when the bin drops it
}

// Bins lists what can be restored, of one rule or of all ("").
func (s *Set) Bins(ctx context.Context, rule string) ([]Binned, error) { return nil, errNotBuilt }

// Restore puts back what went under these ids, and returns those put back. It overwrites nothing: a
// name that is taken again is an error, with the others put back all the same.
func (s *Set) Restore(ctx context.Context, ids ...string) ([]Binned, error) { return nil, errNotBuilt }

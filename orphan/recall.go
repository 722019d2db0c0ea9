package orphan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
)

// The names of a rule's keys: its marks, the state of their chain, its bin (id -> JSON), the ids in
// the bin by the time (ms) to drop them, and what is under way on other servers of a Cluster.
func marksKey(l guard.Layout, rule string) string   { return l.Prefix + "orphan:marks:" + rule }
func stateKey(l guard.Layout, rule string) string   { return l.Prefix + "orphan:state:" + rule }
func binnedKey(l guard.Layout, rule string) string  { return l.Prefix + "orphan:binned:" + rule }
func dropsKey(l guard.Layout, rule string) string   { return l.Prefix + "orphan:drops:" + rule }
func intentsKey(l guard.Layout, rule string) string { return l.Prefix + "orphan:intents:" + rule }

// A hash: rule -> JSON of its last full pass. Tools read it without the rules.
func passesKey(l guard.Layout) string { return l.Prefix + "orphan:passes" }

// ReadPasses returns how the last full pass of each rule ended, removed rules included. Outcome ""
// means that the first one is under way.
func ReadPasses(
	ctx context.Context, client redis.UniversalClient, l guard.Layout,
) (map[string]janitor.Report, error) {
	texts, err := client.HGetAll(ctx, passesKey(l)).Result()
	if err != nil {
		return nil, fmt.Errorf("orphan: passes: %w", err)
	}
	all := make(map[string]janitor.Report, len(texts))
	for rule, text := range texts {
		var r janitor.Report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return nil, fmt.Errorf("orphan: pass of rule %q: %w", rule, err)
		}
		all[rule] = r
	}
	return all, nil
}

// A Mark records that a rule found a key or member condemned.
type Mark struct {
	Rule  string    `json:"rule"`
	Since time.Time `json:"since"` // by the server's clock
	// the rule only reports
	Reports bool `json:"reports,omitempty"`
}

// ReadMarks returns the marks of a key, or of a key, a space and a member, in all rules.
func ReadMarks(
	ctx context.Context, client redis.UniversalClient, l guard.Layout, name string,
) ([]Mark, error) {
	passes, err := ReadPasses(ctx, client, l)
	if err != nil {
		return nil, err
	}
	var marks []Mark
	for _, rule := range sorted(passes) {
		text, err := client.HGet(ctx, marksKey(l, rule), name).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("orphan: marks of rule %q: %w", rule, err)
		}
		m, ok := proof.ParseMark(text)
		if chain := client.HGet(ctx, stateKey(l, rule), "chain"); ok && chain.Val() == fmt.Sprint(m.Chain) {
			marks = append(marks, Mark{rule, m.At, passes[rule].DryRun})
		}
	}
	return marks, nil
}

// noteBegun makes a rule visible to ReadPasses before it deletes anything.
func (x *pass) noteBegun(ctx context.Context) error {
	return x.Call(ctx, func(ctx context.Context) error {
		return x.Client().HSetNX(ctx, passesKey(x.Layout()), x.r.Rule, "{}").Err()
	})
}

func (x *pass) notePass(ctx context.Context) error {
	text, err := json.Marshal(janitor.Report{
		Sweep: x.r.Rule, Epoch: x.Epoch(), Outcome: x.r.Outcome, Reason: x.r.Reason, Error: x.r.Detail,
		DryRun: x.r.DryRun, Scanned: x.r.Scanned, Condemned: x.r.Condemned, Evicted: x.r.Removed,
		Started: x.r.Started, Seconds: x.r.Duration.Seconds(),
	})
	if err != nil {
		return fmt.Errorf("orphan: pass of rule %q: %w", x.r.Rule, err)
	}
	return proof.Write(ctx, x.Pass, passesKey(x.Layout()), 0, map[string]string{x.r.Rule: string(text)}, nil)
}

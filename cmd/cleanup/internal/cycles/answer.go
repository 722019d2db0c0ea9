package cycles

import (
	"time"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
)

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

package janitor

import (
	"log/slog"
	"slices"
	"time"
)

// Outcome is how a pass ended.
type Outcome string

// The outcomes of a pass.
const (
	Done   Outcome = "done"   // nothing is left to do
	Held   Outcome = "held"   // nothing may be deleted for now; Report.Reason says why
	Failed Outcome = "failed" // Report.Error says why
	Lost   Outcome = "lost"   // the term ended under it
)

// A Request is what a pass is asked to be.
type Request struct {
	Owner  string // sweep only what this instance left; "": all
	DryRun bool   // judge and report, delete nothing

	asked bool // by somebody, and not by the clock
}

// A Report is the result of one pass. What a lost reply hid is not in it: that is counted, in the metrics and
// the log, when it becomes known.
type Report struct {
	Sweep     string             `json:"sweep"`
	Epoch     uint64             `json:"epoch"`
	Outcome   Outcome            `json:"outcome"`
	Reason    string             `json:"reason,omitempty"` // of a held pass
	Error     string             `json:"error,omitempty"`
	DryRun    bool               `json:"dry_run"`
	Owner     string             `json:"owner,omitempty"` // of the request
	Scanned   int                `json:"scanned"`         // elements looked at; a scan may meet one twice
	Condemned int                `json:"condemned"`       // handed to the guard, or would have been; see Config.DryRun
	Evicted   int                `json:"evicted"`         // deleted by the server
	Spared    map[SkipReason]int `json:"spared,omitempty"`
	Started   time.Time          `json:"started"`
	Seconds   float64            `json:"seconds"` // how long it took

	next time.Time // when the next pass is wanted, if that is before the interval is over
}

// known maps a doubt's reason to what is counted by it, since it comes from a key that anybody can write.
func known(reason string) string {
	if slices.Contains(heldReasons, reason) {
		return reason
	}
	return heldOther
}

// log writes the one line about a pass: loud if it changed something, or if being held begins or ends.
func (r *Report) log(log *slog.Logger, last Outcome, err error) {
	log = log.With("sweep", r.Sweep, "epoch", r.Epoch, "outcome", r.Outcome, "scanned", r.Scanned,
		"condemned", r.Condemned, "evicted", r.Evicted, "spared", r.Spared, "seconds", r.Seconds)
	if r.DryRun {
		log = log.With("dry_run", true)
	}
	if r.Owner != "" {
		log = log.With("owner", r.Owner)
	}
	switch {
	case r.Outcome == Failed:
		log.Warn("pass failed", "error", err)
	case r.Outcome == Held && last != Held:
		log.Info("pass held", "reason", r.Reason)
	case r.Evicted > 0:
		log.Info("pass evicted entries")
	case r.Outcome == Done && last == Held:
		log.Info("pass no longer held")
	default:
		log.Debug("pass over", "reason", r.Reason)
	}
}

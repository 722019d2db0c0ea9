package janitor

import (
	"log/slog"
	"slices"
	"time"
)

// Status is what a replica knows, without asking Redis for it.
type Status struct {
	Instance string `json:"instance"`
	Leading  bool   `json:"leading"`
	// Leader held the lease at the last tick of the witness; "": nobody, or not known. A replica that
	// does not contend knows neither that nor Paused, and its last tick is none.
	Leader string `json:"leader,omitempty"`
	// Epoch of this process' term, or of the newest one seen.
	Epoch   uint64        `json:"epoch,omitempty"`
	DryRun  bool          `json:"dry_run"`
	Paused  *Pause        `json:"paused,omitempty"`
	Witness WitnessStatus `json:"witness"`
	// Pace is how fast the leader sweeps; nil elsewhere.
	Pace *PaceStatus `json:"pace,omitempty"`
	// Passes are those under way.
	Passes []Progress `json:"passes,omitempty"`
	// Sweeps holds the last report of each sweep that had a pass in this process.
	Sweeps []Report `json:"sweeps,omitempty"`
	// FullScan is the last full scan that this leader finished; nil elsewhere, and before the first.
	FullScan *FullScanStatus `json:"full_scan,omitempty"`
	// Evicted is how many items this process has deleted, in all sweeps; exact while Unsettled is 0.
	Evicted uint64 `json:"evicted"`
	// Unsettled batches were asked for, and whether they were done is not known yet.
	Unsettled int `json:"unsettled"`
}

// FullScanStatus is about a full scan.
type FullScanStatus struct {
	Reason  string    `json:"reason"` // why it ran
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"` // how long it took, rest included
	Scanned int       `json:"scanned"` // entries read
	// NextBy is when the next one is due at the latest. It comes sooner where it can find something.
	NextBy time.Time `json:"next_by"`
}

// PaceStatus is how fast a leader sweeps.
type PaceStatus struct {
	Share   float64 `json:"redis_share"`         // of Redis' time that sweeping may take now
	Setting float64 `json:"redis_share_setting"` // and at most
	// why it is less than the setting: latency, heartbeat
	Throttled string `json:"throttled,omitempty"`
	PageSize  int    `json:"page_size"`  // elements asked for by one page of a scan
	BatchSize int    `json:"batch_size"` // most items of a batch
}

// WitnessStatus is how long Redis has been listened to, as of the last tick.
type WitnessStatus struct {
	Listening float64   `json:"listening_seconds"` // without a hold, up to now; 0: not known here
	HeldFor   float64   `json:"held_for_seconds"`  // until deletes may begin; 0: they may
	Reason    string    `json:"reason,omitempty"`  // of the last hold
	LastHold  time.Time `json:"last_hold,omitzero"`
	LastTick  time.Time `json:"last_tick,omitzero"`
	Evicted   uint64    `json:"evicted_total"` // by anybody, ever: the total beside the log
	Instances int64     `json:"instances"`     // on the roster
	// ChecksOff are holds that this server cannot raise; and, since their last try was refused,
	// log_size: the log is trimmed by number of records, and log_trim: it is not trimmed.
	ChecksOff []string `json:"checks_off,omitempty"`
	Error     string   `json:"error,omitempty"` // of the last tick
}

// Status returns what this replica knows. It does not wait for Redis.
func (j *Janitor) Status() Status {
	now, h := time.Now(), j.listener.heard()
	s := Status{
		Instance:  j.instance,
		Leader:    short(h.holder.Instance),
		Epoch:     h.holder.Epoch,
		DryRun:    j.cfg.DryRun,
		Paused:    h.paused,
		Witness:   h.status(now),
		Evicted:   j.evicted.Load(),
		Unsettled: j.unsettled.unknown(),
	}
	if j.logSize.Failing() {
		s.Witness.ChecksOff = append(s.Witness.ChecksOff, checkLogSize)
	}
	if j.logTrim.Failing() {
		s.Witness.ChecksOff = append(s.Witness.ChecksOff, checkLogTrim)
	}
	if term, ok := j.elector.Term(); ok {
		s.Leading, s.Leader, s.Epoch = true, j.instance, term.Epoch()
	}
	if t := j.termState.Load(); t != nil {
		s.Pace = &PaceStatus{Setting: j.cfg.RedisShare, PageSize: t.pages.Get(), BatchSize: t.batches.Get()}
		s.Pace.Share, s.Pace.Throttled = j.pace.Share()
		s.FullScan = t.fullScan.Load()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, sweep := range j.sweeps {
		if p := j.passes[sweep.Name()]; p != nil {
			s.Passes = append(s.Passes, p.progress(now))
		}
		if r, ok := j.reports[sweep.Name()]; ok {
			s.Sweeps = append(s.Sweeps, r)
		}
	}
	return s
}

func (h heard) status(now time.Time) WitnessStatus {
	held, _ := h.heldFor(now)
	s := WitnessStatus{
		Listening: h.listening(now).Seconds(),
		HeldFor:   held.Seconds(),
		Reason:    short(h.witness.Reason),
		LastHold:  h.witness.LastHold,
		LastTick:  h.at,
		Evicted:   h.witness.Evicted,
		Instances: h.witness.Instances,
		ChecksOff: slices.Clone(h.witness.ChecksOff),
	}
	if h.err != nil {
		s.Error = h.err.Error()
	}
	return s
}

// progressEvery is how often a pass under way says how far it is.
const progressEvery = 10 * time.Second

// Progress says how far a pass under way is.
type Progress struct {
	Sweep   string    `json:"sweep"`
	Owner   string    `json:"owner,omitempty"` // of the request
	DryRun  bool      `json:"dry_run"`
	Started time.Time `json:"started"`
	Scanned int       `json:"scanned"` // elements read so far; a scan may meet one twice
	// elements to be read, as counted at the beginning; 0: not known
	Total   int `json:"total"`
	Evicted int `json:"evicted"`
	// PerSecond is how many elements were read a second, in the last 10 to 20 s.
	PerSecond float64 `json:"per_second"`
	// SecondsLeft at that rate; 0: not known, or nothing.
	SecondsLeft float64 `json:"seconds_left"`
}

// Ratio is how much of the pass is done, 0 to 1; 0 also while its total is not known.
func (p Progress) Ratio() float64 {
	if p.Total == 0 {
		return 0
	}
	return min(1, float64(p.Scanned)/float64(p.Total))
}

// mark is how far a pass was at some time.
type mark struct {
	at      time.Time
	scanned int
}

// scanned counts n more elements, and says how far the pass is if it is time to log that.
func (p *Pass) scanned(n int, now time.Time) (at Progress, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Scanned += n
	at = p.progressLocked(now)
	if due = now.Sub(p.next.at) >= progressEvery; due {
		p.mark, p.next = p.next, mark{now, at.Scanned}
	}
	return at, due
}

// progress is how far the pass is, for any goroutine.
func (p *Pass) progress(now time.Time) Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progressLocked(now)
}

func (p *Pass) progressLocked(now time.Time) Progress {
	r := &p.report // only the counts may change meanwhile, under mu
	at := Progress{
		Sweep: r.Sweep, Owner: r.Owner, DryRun: r.DryRun, Started: r.Started,
		Scanned: r.Scanned, Total: p.total, Evicted: r.Evicted,
	}
	if took := now.Sub(p.mark.at).Seconds(); took > 0 {
		at.PerSecond = float64(at.Scanned-p.mark.scanned) / took
	}
	if left := at.Total - at.Scanned; left > 0 && at.PerSecond > 0 {
		at.SecondsLeft = float64(left) / at.PerSecond
	}
	return at
}

// Outcome is how a pass ended.
type Outcome string

// The outcomes of a pass.
const (
	Done   Outcome = "done"   // nothing is left to do
	Held   Outcome = "held"   // nothing may be deleted for now; Report.Reason says why
	Failed Outcome = "failed" // Report.Error says why
	Lost   Outcome = "lost"   // the term ended under it, or nobody waited for it any more
)

// A Request is what a pass is asked to be.
type Request struct {
	Sweep  string // only the sweep of this name; "": each
	Owner  string // sweep only what this instance left; "": all
	DryRun bool   // judge and report, delete nothing

	asked bool // by somebody, and not by the clock
}

// A Report is the result of one pass. What a lost reply hid is not in it: that is counted, in the
// metrics and the log, when it becomes known.
type Report struct {
	Sweep   string  `json:"sweep"`
	Epoch   uint64  `json:"epoch"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"` // of a held pass
	Error   string  `json:"error,omitempty"`
	DryRun  bool    `json:"dry_run"`
	Owner   string  `json:"owner,omitempty"` // of the request
	// elements read; a scan may meet one twice
	Scanned int `json:"scanned"`
	// handed to the guard, or would have been; see Config.DryRun
	Condemned int                `json:"condemned"`
	Evicted   int                `json:"evicted"` // deleted by the server
	Spared    map[SkipReason]int `json:"spared,omitempty"`
	Started   time.Time          `json:"started"`
	Seconds   float64            `json:"seconds"` // how long it took
}

// known maps a hold's reason to what is counted by it, since it comes from a key that anybody can
// write.
func known(reason string) string {
	if slices.Contains(heldReasons, reason) {
		return reason
	}
	return heldOther
}

// news says what an operator has to know of a pass: that it changed something or failed, or that
// being held begins or ends. "": nothing.
func (r *Report) news(last Outcome) string {
	switch {
	case r.Outcome == Failed:
		return "pass failed"
	case r.Outcome == Held && last != Held:
		return "pass held"
	case r.Evicted > 0:
		return "pass evicted entries"
	case r.Outcome == Done && last == Held:
		return "pass no longer held"
	}
	return ""
}

// log writes the one line about a pass: loud if it is news.
func (p *Pass) log(log *slog.Logger, last Outcome, err error) {
	r := &p.report
	log = log.With("sweep", r.Sweep, "epoch", r.Epoch, "outcome", r.Outcome, "scanned", r.Scanned,
		"condemned", r.Condemned, "evicted", r.Evicted, "spared", r.Spared, "seconds", r.Seconds)
	if len(p.from) > 0 {
		log = log.With("from", p.from)
	}
	if r.DryRun {
		log = log.With("dry_run", true)
	}
	if r.Owner != "" {
		log = log.With("owner", r.Owner)
	}
	switch news := r.news(last); {
	case r.Outcome == Failed:
		log.Warn(news, "error", err)
	case news != "":
		log.Info(news, "reason", r.Reason)
	default:
		log.Debug("pass over", "reason", r.Reason)
	}
}

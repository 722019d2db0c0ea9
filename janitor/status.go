package janitor

import (
	"log/slog"
	"slices"
	"time"
)

// Status is what a replica knows, without a call to Redis.
type Status struct {
	Instance string `json:"instance"`
	Leading  bool   `json:"leading"`
	// Leader held the lease at the last tick; "" if nobody did, or unknown. A replica that does not
	// contend knows neither Leader nor Paused.
	Leader string `json:"leader,omitempty"`
	// Epoch of this process' term, or the newest one seen.
	Epoch   uint64        `json:"epoch,omitempty"`
	DryRun  bool          `json:"dry_run"`
	Paused  *Pause        `json:"paused,omitempty"`
	Witness WitnessStatus `json:"witness"`
	Pace    *PaceStatus   `json:"pace,omitempty"`
	Passes  []Progress    `json:"passes,omitempty"`
	// Doubted are the owners whose entries this leader keeps although they are silent.
	Doubted []Doubt `json:"doubted,omitempty"`
	// Sweeps holds the last report of each sweep that has run in this process.
	Sweeps []Report `json:"sweeps,omitempty"`
	// FullScan is the last full scan that this leader finished, or nil.
	FullScan *FullScanStatus `json:"full_scan,omitempty"`
	// Evicted is how many items this process has deleted; exact while Unsettled is 0.
	Evicted uint64 `json:"evicted"`
	// Unsettled is the number of batches of unknown fate.
	Unsettled int `json:"unsettled"`
}

// A Doubt is why a silent owner's entries are kept.
type Doubt struct {
	Owner  string    `json:"owner"`
	Reason string    `json:"reason"` // most: it fell silent with most others; refused: Redis refuses clients
	Until  time.Time `json:"until"`  // at the latest
}

// FullScanStatus describes a full scan.
type FullScanStatus struct {
	Reason  string    `json:"reason"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"` // including rest
	Scanned int       `json:"scanned"`
	// NextBy is when the next one is due at the latest. It starts earlier if it can find something.
	NextBy time.Time `json:"next_by"`
}

// PaceStatus is a leader's pace.
type PaceStatus struct {
	Share   float64 `json:"redis_share"`         // current share of Redis' time
	Setting float64 `json:"redis_share_setting"` // and its limit
	// why it is below the setting: latency, heartbeat
	Throttled string `json:"throttled,omitempty"`
	PageSize  int    `json:"page_size"`
	BatchSize int    `json:"batch_size"`
}

// WitnessStatus is the witness as of the last tick.
type WitnessStatus struct {
	Listening float64   `json:"listening_seconds"` // without a hold, until now; 0: unknown
	HeldFor   float64   `json:"held_for_seconds"`  // until deletes may begin; 0: they may
	Reason    string    `json:"reason,omitempty"`
	LastHold  time.Time `json:"last_hold,omitzero"`
	LastTick  time.Time `json:"last_tick,omitzero"`
	Evicted   uint64    `json:"evicted_total"` // by anybody, ever: the total kept beside the log
	Instances int64     `json:"instances"`
	// ChecksOff lists what cannot be checked here: refused, restarted (this user may not INFO, or
	// the server does not offer it); log_size if the log is trimmed by number of records; log_trim
	// if it is not trimmed.
	ChecksOff []string `json:"checks_off,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// Status returns the current state.
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
		Unsettled: j.ledger.unknown(),
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
		s.Doubted = of(t.doubted.Load())
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

const progressEvery = 10 * time.Second

// Progress is the progress of a pass.
type Progress struct {
	Sweep   string    `json:"sweep"`
	Owner   string    `json:"owner,omitempty"` // of the request
	DryRun  bool      `json:"dry_run"`
	Started time.Time `json:"started"`
	Scanned int       `json:"scanned"` // elements read so far; a scan may repeat some
	// elements to read, as counted at the beginning; 0: unknown
	Total     int     `json:"total"`
	Evicted   int     `json:"evicted"`
	PerSecond float64 `json:"per_second"` // since it started
	// SecondsLeft is the time left at that rate; 0: unknown.
	SecondsLeft float64 `json:"seconds_left"`
}

// Ratio is the completed fraction, 0 while the total is unknown.
func (p Progress) Ratio() float64 {
	if p.Total == 0 {
		return 0
	}
	return min(1, float64(p.Scanned)/float64(p.Total))
}

func (p *Pass) scanned(n int, now time.Time) (at Progress, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Scanned += n
	if due = now.Sub(p.logged) >= progressEvery; due {
		p.logged = now
	}
	return p.progressLocked(now), due
}

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
	if took := now.Sub(r.Started).Seconds(); took > 0 {
		at.PerSecond = float64(at.Scanned) / took
	}
	if left := at.Total - at.Scanned; left > 0 && at.PerSecond > 0 {
		at.SecondsLeft = float64(left) / at.PerSecond
	}
	return at
}

// Outcome is the outcome of a pass.
type Outcome string

// The outcomes of a pass.
const (
	Done   Outcome = "done"
	Held   Outcome = "held"   // see Report.Reason
	Failed Outcome = "failed" // see Report.Error
	Lost   Outcome = "lost"   // the term ended, or the caller stopped waiting
)

// A Request selects a pass.
type Request struct {
	Sweep  string // only the sweep with this name; "": each
	Owner  string // only what this instance left; "": all
	DryRun bool

	asked bool // by somebody, rather than the clock
}

// A Report is the result of one pass. Deletes whose reply was lost are missing; the metrics and the
// log count them once known.
type Report struct {
	Sweep   string  `json:"sweep"`
	Epoch   uint64  `json:"epoch"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`
	Error   string  `json:"error,omitempty"`
	DryRun  bool    `json:"dry_run"`
	Owner   string  `json:"owner,omitempty"` // of the request
	// elements read; a scan may repeat some
	Scanned int `json:"scanned"`
	// passed to the guard, or in a dry run, would have been; see Config.DryRun
	Condemned int                `json:"condemned"`
	Evicted   int                `json:"evicted"`
	Spared    map[SkipReason]int `json:"spared,omitempty"`
	Started   time.Time          `json:"started"`
	Seconds   float64            `json:"seconds"`
}

// known restricts a hold's reason, which anybody can write into its key, to known labels.
func known(reason string) string {
	if slices.Contains(heldReasons, reason) {
		return reason
	}
	return heldOther
}

// news is "" unless the pass changed something or failed, or a hold began or ended.
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

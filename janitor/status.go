package janitor

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Status is what a replica knows, without asking Redis for it.
type Status struct {
	Instance string `json:"instance"`
	Leading  bool   `json:"leading"`
	// Leader is who held the lease at the last tick of the witness; "": nobody, or not known.
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
	// Evicted is how many items this process has deleted, in all sweeps; exact while Unsettled is 0.
	Evicted uint64 `json:"evicted"`
	// Unsettled batches were asked for, and whether they were done is not known yet.
	Unsettled int `json:"unsettled"`
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
	s := Status{
		Instance:  j.instance,
		DryRun:    j.cfg.DryRun,
		Evicted:   j.evicted.Load(),
		Unsettled: j.unsettled.unknown(),
		Witness:   j.listener.status(time.Now()),
	}
	s.Witness.ChecksOff = j.refusals.list(s.Witness.ChecksOff)
	j.listener.mu.Lock()
	s.Leader, s.Epoch, s.Paused = j.listener.holder.Instance, j.listener.holder.Epoch, j.listener.paused
	j.listener.mu.Unlock()
	if term, ok := j.elector.Term(); ok {
		s.Leading, s.Leader, s.Epoch = true, j.instance, term.Epoch()
	}
	if t := j.termState.Load(); t != nil {
		s.Pace = &PaceStatus{Setting: j.cfg.RedisShare, PageSize: t.pages.Get(), BatchSize: t.batches.Get()}
		s.Pace.Share, s.Pace.Throttled = j.pace.Share()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, sweep := range j.sweeps {
		if g := j.passes[sweep.Name()]; g != nil {
			s.Passes = append(s.Passes, g.get(time.Now()))
		}
	}
	for _, sweep := range j.sweeps {
		if r, ok := j.reports[sweep.Name()]; ok {
			s.Sweeps = append(s.Sweeps, r)
		}
	}
	return s
}

func (l *listener) status(now time.Time) WitnessStatus {
	listening := l.listening(now)
	warm, _ := l.heldFor(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := WitnessStatus{
		Listening: listening.Seconds(),
		HeldFor:   warm.Seconds(),
		Reason:    l.witness.Reason,
		LastHold:  l.witness.LastHold,
		LastTick:  l.at,
		Evicted:   l.witness.Evicted,
		Instances: l.witness.Instances,
		ChecksOff: l.witness.ChecksOff,
	}
	if l.err != nil {
		s.Error = l.err.Error()
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
	Scanned int       `json:"scanned"` // elements looked at so far; a scan may meet one twice
	// elements to be looked at, as counted at the beginning; 0: not known
	Total   int `json:"total"`
	Evicted int `json:"evicted"`
	// PerSecond is how many elements were looked at a second, in the last 10 to 20 s.
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

// progress counts on behalf of a pass, for those who look at it meanwhile.
type progress struct {
	log *slog.Logger

	mu         sync.Mutex
	p          Progress
	mark, next mark // the rate is taken since mark; next becomes it, each 10 s
}

type mark struct {
	at      time.Time
	scanned int
}

func newProgress(r *Report, log *slog.Logger) *progress {
	begun := mark{at: r.Started}
	return &progress{
		log:  log.With("sweep", r.Sweep, "epoch", r.Epoch),
		p:    Progress{Sweep: r.Sweep, Owner: r.Owner, DryRun: r.DryRun, Started: r.Started},
		mark: begun, next: begun,
	}
}

// expect, looked and evicted add to the counts.

func (g *progress) expect(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.p.Total += n
}

func (g *progress) evicted(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.p.Evicted += n
}

func (g *progress) looked(n int, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.p.Scanned += n
	if now.Sub(g.next.at) < progressEvery {
		return
	}
	p := g.at(now)
	g.mark, g.next = g.next, mark{now, g.p.Scanned}
	g.log.Info("pass under way", "scanned", p.Scanned, "total", p.Total, "evicted", p.Evicted,
		"per_second", int(p.PerSecond), "seconds_left", int(p.SecondsLeft))
}

func (g *progress) get(now time.Time) Progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at(now)
}

// at is get for who holds mu.
func (g *progress) at(now time.Time) Progress {
	p := g.p
	if took := now.Sub(g.mark.at).Seconds(); took > 0 {
		p.PerSecond = float64(p.Scanned-g.mark.scanned) / took
	}
	if left := p.Total - p.Scanned; left > 0 && p.PerSecond > 0 {
		p.SecondsLeft = float64(left) / p.PerSecond
	}
	return p
}

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
	// elements looked at; a scan may meet one twice
	Scanned int `json:"scanned"`
	// handed to the guard, or would have been; see Config.DryRun
	Condemned int                `json:"condemned"`
	Evicted   int                `json:"evicted"` // deleted by the server
	Spared    map[SkipReason]int `json:"spared,omitempty"`
	Started   time.Time          `json:"started"`
	Seconds   float64            `json:"seconds"` // how long it took

	next     time.Time // when the next pass is wanted, if that is before the interval is over
	fullScan bool      // it was one
}

// known maps a hold's reason to what is counted by it, since it comes from a key that anybody can
// write.
func known(reason string) string {
	if slices.Contains(heldReasons, reason) {
		return reason
	}
	return heldOther
}

// log writes the one line about a pass: loud if it changed something, or if being held begins or
// ends.
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

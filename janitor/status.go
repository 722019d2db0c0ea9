package janitor

import (
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
	Share     float64 `json:"redis_share"`         // of Redis' time that sweeping may take now
	Setting   float64 `json:"redis_share_setting"` // and at most
	Throttled string  `json:"throttled,omitempty"` // why it is less than the setting: latency, heartbeat
	PageSize  int     `json:"page_size"`           // elements asked for by one page of a scan
	BatchSize int     `json:"batch_size"`          // most items of a batch
}

// WitnessStatus is how long Redis has been listened to, as of the last tick.
type WitnessStatus struct {
	Listening float64   `json:"listening_seconds"` // without a doubt, up to now; 0: not known here
	WarmIn    float64   `json:"warm_in_seconds"`   // until deletes may begin; 0: they may
	Reason    string    `json:"reason,omitempty"`  // of the last doubt
	LastDoubt time.Time `json:"last_doubt,omitzero"`
	LastTick  time.Time `json:"last_tick,omitzero"`
	Evicted   uint64    `json:"evicted_total"` // by anybody, ever: the total beside the audit
	Instances int64     `json:"instances"`     // on the roster
	// ChecksOff are doubts that this server cannot raise; and, since their last try was refused,
	// audit_size: the audit is trimmed by number of records, and audit_trim: it is not trimmed.
	ChecksOff []string `json:"checks_off,omitempty"`
	Error     string   `json:"error,omitempty"` // of the last tick
}

// Status returns what this replica knows. It does not wait for Redis.
func (j *Janitor) Status() Status {
	s := Status{
		Instance:  j.instance,
		DryRun:    j.cfg.DryRun,
		Evicted:   j.evicted.Load(),
		Unsettled: j.ledger.unknown(),
		Witness:   j.listener.status(time.Now()),
	}
	s.Witness.ChecksOff = j.refusals.list(s.Witness.ChecksOff)
	j.listener.mu.Lock()
	s.Leader, s.Epoch, s.Paused = j.listener.holder.Instance, j.listener.holder.Epoch, j.listener.paused
	j.listener.mu.Unlock()
	if term, ok := j.elector.Term(); ok {
		s.Leading, s.Leader, s.Epoch = true, j.instance, term.Epoch()
	}
	if t := j.tenure.Load(); t != nil {
		s.Pace = &PaceStatus{Setting: j.cfg.RedisShare, PageSize: t.pages.get(), BatchSize: t.batches.get()}
		s.Pace.Share, s.Pace.Throttled = t.pace.share()
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
	warm, _ := l.warming(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := WitnessStatus{
		Listening: listening.Seconds(),
		WarmIn:    warm.Seconds(),
		Reason:    l.witness.Reason,
		LastDoubt: l.witness.LastDoubt,
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

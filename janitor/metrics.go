package janitor

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/internal/pacing"
	"github.com/rollcall-redis/rollcall/lease"
)

// A SkipReason is why a candidate was kept, as counted by janitor_spared_total.
type SkipReason string

// The guard's reasons are counted by Pass.Delete, SkipUnreadable by the sweep that could not read.
const (
	SkipAlive      SkipReason = "alive"      // its owner's heartbeat is there
	SkipReowned    SkipReason = "reowned"    // it names somebody else by now
	SkipFenced     SkipReason = "fenced"     // the term is over
	SkipHeld       SkipReason = "held"       // Redis has not been listened to for long enough
	SkipUnreadable SkipReason = "unreadable" // it, or its owner's liveness, cannot be read
)

// What holds a pass, as counted by janitor_held_total: the witness' holds, and a pause.
const (
	heldPaused       = "paused"
	heldPauseUnknown = "pause_unknown" // another server has the pause, and does not answer
	heldMassFailure  = "mass_failure"
	heldSelfCheck    = "self_check"
	heldOther        = "unknown" // the witness names a reason that this version does not know
)

var heldReasons = []string{
	"gap", "restarted", "redis_evicting", "redis_refusing", "settings", heldSelfCheck, heldMassFailure, heldPaused,
	heldPauseUnknown,
}

type metrics struct {
	transitions *prometheus.CounterVec
	spared      *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	passes      *prometheus.CounterVec
	success     *prometheus.GaugeVec
	held        *prometheus.CounterVec
	scanned     *prometheus.CounterVec
	throttled   *prometheus.CounterVec
	fullScans   *prometheus.CounterVec
}

// newMetrics makes the metrics. The series that alerts look at exist before they first count.
func newMetrics(sweeps []Sweeper) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		transitions: counter("janitor_lease_transitions_total", "Terms acquired, lost, released.", "event"),
		spared:      counter("janitor_spared_total", "Candidates that were kept, by reason.", "reason"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "janitor_pass_duration_seconds",
			Help:    "Duration of passes, rest included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 4 min
		}, []string{"sweep"}),
		passes: counter("janitor_passes_total", "Passes, by outcome: done, held, failed, lost.",
			"sweep", "outcome"),
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "janitor_last_success_timestamp_seconds",
			Help: "When this process last finished a pass.",
		}, []string{"sweep"}),
		held:    counter("janitor_held_total", "Passes held, by reason.", "reason"),
		scanned: counter("janitor_scanned_total", "Elements looked at.", "sweep"),
		throttled: counter("janitor_throttled_seconds_total",
			"Rest taken beyond what the configured share asks for, by reason.", "reason"),
		fullScans: counter("janitor_full_scans_total", "Full scans, by why they ran.", "reason"),
	}
	for _, ev := range []lease.Event{lease.Acquired, lease.Lost, lease.Released} {
		m.transitions.WithLabelValues(string(ev))
	}
	for _, r := range []SkipReason{SkipAlive, SkipReowned, SkipFenced, SkipHeld, SkipUnreadable} {
		m.spared.WithLabelValues(string(r))
	}
	for _, r := range heldReasons {
		m.held.WithLabelValues(r)
	}
	for _, r := range []string{pacing.Latency, pacing.Heartbeat} {
		m.throttled.WithLabelValues(r)
	}
	for _, s := range sweeps {
		m.scanned.WithLabelValues(s.Name())
		for _, o := range []Outcome{Done, Held, Failed, Lost} {
			m.passes.WithLabelValues(s.Name(), string(o))
		}
	}
	return m
}

// register registers the metrics with reg, or nowhere if it is nil. Gauges are read from Status at
// each scrape, so that a process woken from a pause never says what was true before it.
func (m *metrics) register(reg prometheus.Registerer, status func() Status, sweeps []Sweeper) error {
	if reg == nil {
		return nil
	}
	gauge := func(
		name, help string, labels prometheus.Labels, value func(s Status) float64,
	) prometheus.Collector {
		opts := prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}
		return prometheus.NewGaugeFunc(opts, func() float64 { return value(status()) })
	}
	all := []prometheus.Collector{
		m.transitions, m.spared, m.duration, m.passes, m.success, m.held, m.scanned, m.throttled, m.fullScans,
		gauge("janitor_leader", "1 while this process leads.", nil, func(s Status) float64 {
			if s.Leading {
				return 1
			}
			return 0
		}),
		gauge("janitor_lease_epoch", "Epoch of the newest term known here.", nil,
			func(s Status) float64 { return float64(s.Epoch) }),
		gauge("janitor_witness_seconds",
			"How long Redis has been listened to without a hold; 0 if this process does not know.", nil,
			func(s Status) float64 { return s.Witness.Listening }),
		gauge("janitor_redis_share",
			"Share of Redis' time that sweeping may take now; 0 unless this process leads.", nil,
			func(s Status) float64 {
				if !s.Leading || s.Pace == nil {
					return 0
				}
				return s.Pace.Share
			}),
		gauge("janitor_full_scan_due_timestamp_seconds",
			"When the next full scan is due at the latest; 0 unless this process leads.", nil,
			func(s Status) float64 {
				if s.FullScan == nil {
					return 0
				}
				return float64(s.FullScan.NextBy.UnixMilli()) / 1e3
			}),
	}
	for _, sweep := range sweeps {
		all = append(all, gauge("janitor_pass_progress_ratio",
			"How much of the pass under way is done; 0 between passes.",
			prometheus.Labels{"sweep": sweep.Name()},
			func(s Status) float64 {
				var p Progress
				if i := slices.IndexFunc(s.Passes, func(p Progress) bool { return p.Sweep == sweep.Name() }); i >= 0 {
					p = s.Passes[i]
				}
				return p.Ratio()
			}))
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// passed counts a finished pass.
func (m *metrics) passed(p *Pass) {
	r := &p.report
	m.passes.WithLabelValues(r.Sweep, string(r.Outcome)).Inc()
	if !p.idle { // else those that had work to do could not be told from the others
		m.duration.WithLabelValues(r.Sweep).Observe(r.Seconds)
	}
	if p.scan.Reason != "" {
		m.fullScans.WithLabelValues(p.scan.Reason).Inc()
	}
	switch r.Outcome {
	case Done:
		m.success.WithLabelValues(r.Sweep).SetToCurrentTime()
	case Held:
		m.held.WithLabelValues(r.Reason).Inc()
	}
}

// throttledFor counts rest that the setting does not ask for.
func (m *metrics) throttledFor(reason string, seconds float64) {
	m.throttled.WithLabelValues(reason).Add(seconds)
}

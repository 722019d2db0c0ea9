package janitor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/janitor/internal/pacing"
	"github.com/rollcall-redis/rollcall/lease"
)

// A SkipReason is the reason why a candidate was kept, a label of janitor_spared_total.
type SkipReason string

// Pass.Delete counts the guard's reasons, a sweep SkipUnreadable.
const (
	SkipAlive      SkipReason = "alive"   // its owner has a heartbeat
	SkipReowned    SkipReason = "reowned" // it now names somebody else
	SkipFenced     SkipReason = "fenced"
	SkipHeld       SkipReason = "held"       // Redis has not been observed for long enough
	SkipUnreadable SkipReason = "unreadable" // it, or its owner's liveness, cannot be read
	SkipDoubted    SkipReason = "doubted"    // its owner is silent, which proves nothing yet
)

// Reasons of held passes, a label of janitor_held_total: the witness' holds, and a pause.
const (
	heldPaused       = "paused"
	heldPauseUnknown = "pause_unknown" // the server that has the pause does not answer
	heldSelfCheck    = "self_check"
	heldEvicting     = "redis_evicting" // sweeps that judge no owner
	heldOther        = "unknown"        // a reason that this version does not know
)

var heldReasons = []string{
	"gap", "restarted", "settings", heldSelfCheck, heldEvicting, heldPaused, heldPauseUnknown,
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
	died        prometheus.Counter
}

func newMetrics(sweeps []Sweeper) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		transitions: counter("janitor_lease_transitions_total", "Terms, by what happened.", "event"),
		spared:      counter("janitor_spared_total", "Candidates that were kept, by reason.", "reason"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "janitor_pass_duration_seconds",
			Help:    "Duration of passes, including rest.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), // 1 ms to 4 min
		}, []string{"sweep"}),
		passes: counter("janitor_passes_total", "Passes, by outcome.",
			"sweep", "outcome"),
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "janitor_last_success_timestamp_seconds",
			Help: "When this process last finished a pass.",
		}, []string{"sweep"}),
		held:    counter("janitor_held_total", "Passes held, by reason.", "reason"),
		scanned: counter("janitor_scanned_total", "Elements scanned.", "sweep"),
		throttled: counter("janitor_throttled_seconds_total",
			"Rest beyond what the configured share requires, by reason.", "reason"),
		fullScans: counter("janitor_full_scans_total", "Full scans, by reason.", "reason"),
		died: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "janitor_owners_died_total",
			Help: "Owners that fell silent without a goodbye, as this process saw while it led.",
		}),
	}
	for _, ev := range []lease.Event{lease.Acquired, lease.Lost, lease.Released} {
		m.transitions.WithLabelValues(string(ev))
	}
	for _, r := range []SkipReason{SkipAlive, SkipReowned, SkipFenced, SkipHeld, SkipUnreadable, SkipDoubted} {
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

// Gauges are read from Status at each scrape, so that a process that wakes from a pause never
// reports old values.
func (m *metrics) register(cfg Config, status func() Status, sweeps []Sweeper) error {
	reg := cfg.Registerer
	if reg == nil {
		return nil
	}
	if cfg.Namespace != "" {
		reg = prometheus.WrapRegistererWithPrefix(cfg.Namespace+"_", reg)
	}
	gauge := func(
		name, help string, labels prometheus.Labels, value func(s Status) float64,
	) prometheus.Collector {
		opts := prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}
		return prometheus.NewGaugeFunc(opts, func() float64 { return value(status()) })
	}
	all := []prometheus.Collector{
		m.transitions, m.spared, m.duration, m.passes, m.success, m.held, m.scanned, m.throttled, m.fullScans,
		m.died,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "janitor_evicted_total",
			Help: "Items that this process deleted.",
		}, func() float64 { return float64(status().Evicted) }),
		gauge("janitor_leader", "1 while this process leads.", nil,
			func(s Status) float64 { return truth(s.Leading) }),
		gauge("janitor_lease_epoch", "Epoch of the newest term known here.", nil,
			func(s Status) float64 { return float64(s.Epoch) }),
		gauge("janitor_witness_seconds",
			"How long Redis has been observed without a hold; 0 if this process does not know.", nil,
			func(s Status) float64 { return s.Witness.Listening }),
		gauge("janitor_redis_full", "1 while Redis refuses ticks because its memory is full.", nil,
			func(s Status) float64 { return truth(strings.Contains(s.Witness.Error, "OOM command not allowed")) }),
		gauge("janitor_dry_run", "1 while this process leads and only reports.", nil,
			func(s Status) float64 { return truth(s.Leading && s.DryRun) }),
		gauge("janitor_redis_share",
			"Share of Redis' time that sweeping may take now; 0 unless this process leads.", nil,
			func(s Status) float64 { return truth(s.Leading) * of(s.Pace).Share }),
		gauge("janitor_full_scan_due_timestamp_seconds",
			"When the next full scan is due at the latest; 0 unless this process leads.", nil,
			func(s Status) float64 { return max(0, float64(of(s.FullScan).NextBy.UnixMilli())/1e3) }),
	}
	for _, reason := range []doubt.Doubt{doubt.Most, doubt.Refused} {
		all = append(all, gauge("janitor_doubted_owners",
			"Silent owners whose entries are kept, by reason: most fell silent together, or Redis refuses clients.",
			prometheus.Labels{"reason": string(reason)},
			func(s Status) (n float64) {
				for _, d := range s.Doubted {
					n += truth(d.Reason == string(reason))
				}
				return n
			}))
	}
	for _, sweep := range sweeps {
		all = append(all, gauge("janitor_pass_progress_ratio",
			"Completed fraction of the current pass; 0 between passes.",
			prometheus.Labels{"sweep": sweep.Name()},
			func(s Status) float64 {
				for _, p := range s.Passes {
					if p.Sweep == sweep.Name() {
						return p.Ratio()
					}
				}
				return 0
			}))
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// of returns what p points to, or nothing.
func of[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func (m *metrics) passed(p *Pass) {
	r := &p.report
	m.passes.WithLabelValues(r.Sweep, string(r.Outcome)).Inc()
	if !p.idle { // otherwise they would drown those that had work to do
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

func (m *metrics) throttledFor(reason string, seconds float64) {
	m.throttled.WithLabelValues(reason).Add(seconds)
}

// often is the interval below which a pass that found nothing is quiet.
const often = 10 * time.Second

func (j *Janitor) span(ctx context.Context, name string, attrs ...slog.Attr) (
	_ context.Context, end func(err error, attrs ...slog.Attr),
) {
	if j.cfg.StartSpan == nil {
		return ctx, func(error, ...slog.Attr) {}
	}
	return j.cfg.StartSpan(ctx, name, attrs...)
}

// ofOwner adds the owner's name, if there is one.
func ofOwner(owner string, attrs ...slog.Attr) []slog.Attr {
	if owner != "" {
		attrs = append(attrs, slog.String("owner", owner))
	}
	return attrs
}

func (t *termState) spanPass(ctx context.Context, s Sweeper, req Request) (
	_ context.Context, end func(r *Report, last Outcome),
) {
	ctx, done := t.j.span(ctx, "pass", ofOwner(req.Owner,
		slog.String("sweep", s.Name()), slog.Uint64("epoch", t.term.Epoch()))...)
	seldom := req.asked || cmp.Or(s.Interval(), t.j.cfg.Interval) >= often
	return ctx, func(r *Report, last Outcome) {
		var err error
		if r.Outcome == Failed {
			err = errors.New(r.Error)
		}
		attrs := []slog.Attr{
			slog.String("outcome", string(r.Outcome)), slog.Int("scanned", r.Scanned),
			slog.Int("condemned", r.Condemned), slog.Int("evicted", r.Evicted),
			slog.String("reason", r.Reason), slog.Bool("dry_run", r.DryRun),
		}
		if !seldom && r.Condemned == 0 && r.news(last) == "" {
			attrs = append(attrs, slog.Bool("quiet", true))
		}
		done(err, attrs...)
	}
}

func (j *Janitor) spanBatch(ctx context.Context, sweep string, b Batch) (
	_ context.Context, end func(id guard.BatchID, a guard.Answer, err error),
) {
	ctx, done := j.span(ctx, "batch", ofOwner(b.Owner, slog.String("sweep", sweep), slog.Int("items", len(b.Items)))...)
	return ctx, func(id guard.BatchID, a guard.Answer, err error) {
		var attrs []slog.Attr
		if id.N > 0 {
			attrs = append(attrs, slog.String("batch", id.String()))
		}
		if a.Verdict != "" {
			attrs = append(attrs, slog.String("verdict", string(a.Verdict)), slog.Int("deleted", a.Deleted))
		}
		held, isHeld := errors.AsType[*HeldError](err)
		if isHeld {
			attrs = append(attrs, slog.String("held", held.Reason))
		}
		if isHeld || errors.Is(err, ErrFenced) || ctx.Err() != nil {
			err = nil
		}
		done(err, attrs...)
	}
}

package availability

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	drift, reads, heartbeats, badKeys *prometheus.CounterVec

	applyFailed, fed, seeds, computed, offline, mirrored prometheus.Counter
}

func newMetrics() *metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		drift: vec(
			"availability_drift_total",
			"States that a comparison found to differ, and healed.",
			"kind",
		),
		reads: vec(
			"availability_reads_total",
			"Reads by operation, and where the answer came from; error: nobody knew.",
			"op",
			"source",
		),
		heartbeats: vec("availability_heartbeats_total", "Heartbeats by what became of them.", "result"),
		badKeys: vec(
			"availability_bad_keys_total",
			"Keys of the mirror that held something else.",
			"key",
			"outcome",
		),
		applyFailed: counter(
			"availability_apply_failed_total",
			"Writes that did not reach Redis at once; the feed brings them.",
		),
		fed: counter(
			"availability_fed_total",
			"States that the feed brought to Redis, because no writer had.",
		),
		seeds:    counter("availability_seeds_total", "Complete seedings by this process."),
		computed: counter("availability_snapshots_total", "Snapshots that this process computed."),
		offline: counter(
			"availability_auto_offline_total",
			"Mitras that this process set offline for their silence.",
		),
		mirrored: counter(
			"availability_heartbeats_mirrored_total",
			"Heartbeats that this process brought to the source.",
		),
	}
	for _, kind := range []string{Behind, Differs, Ahead, Unknown, Base} {
		m.drift.WithLabelValues(kind) // lets an alert see 0 before the first
	}
	for _, key := range append([]string{capacityKeys, heartbeatKeys}, sharedKeys...) {
		m.badKeys.WithLabelValues(key, rebuilt)
		m.badKeys.WithLabelValues(key, kept)
	}
	for _, beat := range []Beat{BeatKept, BeatUnseeded, BeatNotOnline, BeatDeactivated, "error"} {
		m.heartbeats.WithLabelValues(string(beat))
	}
	return m
}

func (m *metrics) register(reg prometheus.Registerer, health func() Health) error {
	if reg == nil {
		return nil
	}
	whole := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "availability_mirror_whole",
		Help: "1 while the mirror was whole at the last look; 0: reads fall back.",
	}, func() float64 { return float64(bit(health().Whole)) })
	behind := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "availability_feed_behind_seconds",
		Help: "For how long Redis may have missed what Postgres committed.",
	}, func() float64 { return health().Behind.Seconds() })
	for _, c := range []prometheus.Collector{
		m.drift, m.reads, m.heartbeats, m.badKeys, m.applyFailed, m.fed, m.seeds, m.computed, m.offline,
		m.mirrored, whole, behind,
	} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

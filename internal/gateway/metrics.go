package gateway

import "github.com/prometheus/client_golang/prometheus"

// metrics counts what the sockets do.
type metrics struct {
	handshakes  *prometheus.CounterVec // by outcome
	luhn        prometheus.Counter
	authority   prometheus.Counter
	frames      *prometheus.CounterVec // by codec and outcome
	records     *prometheus.CounterVec // by codec
	disconnects *prometheus.CounterVec // by reason
	in, out     prometheus.Counter     // bytes
	dead        prometheus.Counter     // dead letters
	slowed      prometheus.Counter     // frames
	stray       prometheus.Counter     // responses
	latency     prometheus.Histogram   // of acknowledgements
}

func newMetrics(reg prometheus.Registerer, g *Gateway) *metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		handshakes: vec("ingest_handshakes_total",
			"Handshakes, by outcome: accepted, refused (no IMEI), incomplete (closed or too slow), unknown_device (not in the set), undecided (Redis did not say whether it is).", "outcome"),
		luhn: prometheus.NewCounter(prometheus.CounterOpts{Name: "ingest_imei_luhn_failures_total",
			Help: "Devices accepted although the check digit of their IMEI is wrong."}),
		authority: prometheus.NewCounter(prometheus.CounterOpts{Name: "ingest_authority_failures_total",
			Help: "Questions which devices may be served that Redis did not answer."}),
		frames: vec("ingest_frames_total",
			"Frames, by codec and outcome: acknowledged, dead (kept as a dead letter), command (never acknowledged), failed (Redis did not take it), unanswered (stored, but the device was gone), abandoned (the socket ended while the frame waited because its device sends too much), rejected (framing or CRC, codec empty).",
			"codec", "outcome"),
		records: vec("ingest_records_total", "Records stored, by codec.", "codec"),
		disconnects: vec("ingest_disconnects_total",
			"Sockets ended, by reason: refused, crowded, unknown_device, undecided, untrusted, proxy, tls, closed, idle, incomplete, framing, unknown, store, superseded, moved, draining, network.", "reason"),
	}
	bytes := vec("ingest_bytes_total", "Bytes of devices, without TLS and PROXY headers, by direction: in, out.", "direction")
	m.in, m.out = bytes.WithLabelValues("in"), bytes.WithLabelValues("out")
	m.dead = prometheus.NewCounter(prometheus.CounterOpts{Name: "ingest_dead_letters_total",
		Help: "Frames kept as dead letters."})
	m.slowed = prometheus.NewCounter(prometheus.CounterOpts{Name: "ingest_slowed_frames_total",
		Help: "Frames that waited before they were stored, because their device sent more than one device may."})
	m.stray = prometheus.NewCounter(prometheus.CounterOpts{Name: "ingest_stray_responses_total",
		Help: "Responses of devices that no command waited for: further frames of an answer, late answers, data of their own."})
	m.latency = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "ingest_acknowledgement_seconds",
		Help:    "Time from a whole frame to its acknowledgement, which is sent after Redis has the records; without the time that a frame waits because its device sends too much.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 2.5, 10}})
	if reg != nil {
		reg.MustRegister(m.handshakes, m.luhn, m.authority, m.frames, m.records, m.disconnects, bytes, m.dead, m.slowed, m.stray, m.latency,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ingest_connections",
				Help: "Device sockets open now."}, func() float64 { return float64(g.Connections()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ingest_unidentified",
				Help: "Sockets open now of which no IMEI has come."}, func() float64 { return float64(g.admission.count()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ingest_registrations",
				Help: "Devices being registered now; at the bound further ones wait for their answer."}, func() float64 { return float64(len(g.admission.slots)) }))
	}
	return m
}

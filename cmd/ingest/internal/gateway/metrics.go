package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

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
	messages    prometheus.Counter     // stored
	lost        prometheus.Counter     // messages
	latency     prometheus.Histogram   // of acknowledgements
}

func newMetrics(reg prometheus.Registerer, g *Gateway) *metrics {
	auto := promauto.With(reg) // nil: registers nothing
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, value func() int) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	gauge("ingest_connections", "Device sockets open now.", g.Connections)
	gauge("ingest_connections_limit", "Sockets of devices that may be open.", func() int { return g.cfg.MaxConns })
	gauge("ingest_unidentified", "Open sockets that have not sent an IMEI.",
		func() int { all, _ := g.hall.Size(); return all })
	gauge("ingest_unproven", "Sockets open now that named an IMEI and have had no record stored within 65 minutes.",
		func() int { _, plain := g.places.Size(); return plain })
	gauge("ingest_largest_network", "Most sockets of one network (a /24 of IPv4, a /64 of IPv6) that have had "+
		"records stored within 65 minutes.", g.places.Largest)
	gauge("ingest_registrations",
		"Devices being registered now.",
		func() int { return len(g.turns) })
	gauge("ingest_messages_waiting", "Messages of devices that wait for Redis.",
		func() int { return g.Messages().Waiting })
	if certificate := g.cfg.Certificate; certificate != nil {
		gauge("ingest_certificate_ends_seconds", "When the certificate of INGEST_TLS_CERT expires, in Unix time.",
			func() int { return int(certificate().Leaf.NotAfter.Unix()) })
	}
	messages := vec("ingest_messages_total", "Messages that devices sent unasked in codecs 12 to 15, by outcome.", "outcome")
	bytes := vec("ingest_bytes_total",
		"Bytes of devices, without TLS and PROXY headers.", "direction")
	return &metrics{
		handshakes: vec("ingest_handshakes_total", "Handshakes, by outcome.", "outcome"),
		luhn: counter("ingest_imei_luhn_failures_total",
			"Devices accepted although the check digit of their IMEI is wrong."),
		authority: counter("ingest_authority_failures_total",
			"Questions which devices may be served that Redis did not answer."),
		frames: vec("ingest_frames_total", "Frames, by codec and outcome.",
			"codec", "outcome"),
		records:     vec("ingest_records_total", "Records stored, by codec.", "codec"),
		disconnects: vec("ingest_disconnects_total", "Sockets ended, by reason.", "reason"),
		in:          bytes.WithLabelValues("in"),
		out:         bytes.WithLabelValues("out"),
		dead:        counter("ingest_dead_letters_total", "Frames kept as dead letters."),
		slowed:      counter("ingest_slowed_frames_total", "Frames that waited because their device sends too much."),
		stray: counter("ingest_stray_responses_total", "Responses of devices that no command waited for: "+
			"further frames of an answer, late answers, data of their own."),
		messages: messages.WithLabelValues("stored"),
		lost:     messages.WithLabelValues("lost"),
		latency: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "ingest_acknowledgement_seconds",
			Help:    "Time from a whole frame to its acknowledgement, without that of slowed frames.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 2.5, 10},
		}),
	}
}

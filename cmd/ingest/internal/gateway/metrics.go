package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

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

func (s *session) beginSpan(ctx context.Context) {
	if start := s.g.cfg.StartSpan; start != nil {
		// named_after is the time before the span: how fast the device was.
		_, s.endSpan = start(ctx, "registration", slog.Duration("named_after", time.Since(s.came)))
	}
}

// greeted ends the span once the registration has landed, maybe after the device's answer.
func (s *session) greeted(work context.Context, err error) {
	end := s.endSpan
	if end == nil { // tracing is off, or no IMEI came
		return
	}
	s.endSpan = nil
	outcome := slog.String("outcome", handshakeOutcome(err))
	if s.claim == nil {
		end(err, outcome)
		return
	}
	answered := slog.Duration("answered_after", time.Since(s.came))
	s.g.serving.Go(func() {
		// It ends with the socket at the latest: that releases the claim.
		landed := s.claim.Wait(work)
		end(landed, outcome, answered, slog.Bool("landed", landed == nil))
	})
}

const (
	// manyNotes bounds the notes and their dead letters together.
	manyNotes = 10_000
	shareMost = 100
	// shareBytes are ten of the largest frames.
	shareBytes = 320 << 10
)

// notes is the memory of odd devices whose sockets have ended. At the bound an arbitrary one is
// forgotten: then a line is logged, or a frame kept, once more.
type notes struct {
	mu    sync.Mutex
	of    map[string]*note // by IMEI
	count int
}

type note struct {
	letters []letter  // the newest dead letters, oldest first
	faults  uint16    // bits of the kinds that were logged
	faulted time.Time // when the last fault was stored
	talks   uint8     // bits of codecs: see commandState.unsure
}

type letter struct {
	frame string // id
	entry string // in the stream
	size  int
}

func newNotes() *notes { return &notes{of: make(map[string]*note)} }

func (n *notes) change(imei string, do func(*note)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of := n.of[imei]
	if of == nil {
		of = new(note)
		n.count++
	}
	delete(n.of, imei) // so that it is not the one forgotten
	before := len(of.letters)
	do(of)
	n.count += len(of.letters) - before
	for any, victim := range n.of {
		if n.count <= manyNotes {
			break
		}
		delete(n.of, any)
		n.count -= 1 + len(victim.letters)
	}
	n.of[imei] = of
}

func (n *notes) talks(imei string) uint8 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of := n.of[imei]; of != nil {
		return of.talks
	}
	return 0
}

// letter returns the entry of a frame's dead letter.
func (n *notes) letter(imei, frame string) (entry string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of := n.of[imei]; of != nil {
		for _, l := range of.letters {
			if l.frame == frame {
				entry = l.entry
			}
		}
	}
	return entry
}

// surplus returns the entries that a device gives up for a letter of this size.
func (n *notes) surplus(imei string, size, share int) (entries []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of := n.of[imei]; of != nil {
		for _, l := range of.letters[:of.beyond(size, share)] {
			entries = append(entries, l.entry)
		}
	}
	return entries
}

// beyond returns how many of the oldest letters leave no room for another one.
func (n *note) beyond(size, share int) int {
	i := len(n.letters)
	for room := share - 1; i > 0 && room > 0 && size+n.letters[i-1].size <= shareBytes; i, room = i-1, room-1 {
		size += n.letters[i-1].size
	}
	return i
}

func (n *notes) addLetter(imei string, l letter, share int) {
	n.change(imei, func(of *note) {
		of.letters = append([]letter(nil), append(of.letters[of.beyond(l.size, share):], l)...)
	})
}

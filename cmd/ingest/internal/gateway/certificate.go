package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// certificateAge is how often authorities are compared.
const certificateAge = time.Second

// ParseClientCAs makes a pool for Config.ClientCAs from certificates in PEM. None, or a damaged
// one, is an error: a pool must not lack an authority because only half of a file was read.
func ParseClientCAs(text string) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", n+1, err)
		}
		pool.AddCert(cert)
		n++
	}
	if began := strings.Count(text, "-----BEGIN"); n == 0 || began != n {
		return nil, fmt.Errorf("%d certificates in PEM begin, and %d can be read", began, n)
	}
	return pool, nil
}

// ParseCertificate makes a certificate for Config.Certificate from it and its key in PEM. One that
// has expired is an error unless expired is set.
func ParseCertificate(cert, key string, expired bool) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, err
	}
	if ends := pair.Leaf.NotAfter; !expired && time.Now().After(ends) {
		return nil, fmt.Errorf("it expired at %s", ends.Format(time.RFC3339))
	}
	return &pair, nil
}

// verifyDevice takes the first certificate for the client's; the others may be intermediates.
func verifyDevice(certs []*x509.Certificate, cas *x509.CertPool) error {
	if len(certs) == 0 {
		return fmt.Errorf("%w: none came", errCertificate)
	}
	between := x509.NewCertPool()
	for _, cert := range certs[1:] {
		between.AddCert(cert)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots: cas, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errCertificate, err)
	}
	return nil
}

func (g *Gateway) clientCAs() *x509.CertPool {
	if g.cfg.ClientCAs == nil {
		return nil
	}
	return g.cfg.ClientCAs()
}

// checkCertificate compares the name: the TLS handshake has verified the rest.
func (s *session) checkCertificate(imei string) error {
	certs, asked := s.certificates()
	if !asked {
		return nil
	}
	err := fmt.Errorf("%w: it names another device", errCertificate)
	if len(certs) > 0 {
		name := certs[0].Subject.CommonName
		if name == imei || slices.Contains(certs[0].DNSNames, imei) {
			return nil
		}
		err = fmt.Errorf("%w: %q", err, printable.Clip(name))
	}
	s.logRefusal(imei, err)
	return err
}

// certificates blocks during the TLS handshake: call it later.
func (s *session) certificates() (certs []*x509.Certificate, asked bool) {
	if s.tls == nil || s.g.cfg.ClientCAs == nil {
		return nil, false
	}
	return s.tls.ConnectionState().PeerCertificates, true
}

func (s *session) vouched() bool {
	certs, asked := s.certificates()
	return !asked || verifyDevice(certs, s.g.clientCAs()) == nil
}

func (g *Gateway) recheckCertificates(ctx context.Context) {
	last := g.clientCAs()
	for wait.For(ctx, certificateAge) {
		now := g.clientCAs()
		if now == last {
			continue
		}
		last = now
		for _, imei := range g.devices() {
			if s := g.newestSocket(imei); s != nil && !s.vouched() {
				s.end(endCertificate)
			}
		}
	}
}

// logRefusal logs one line a minute. imei is empty if the device did not send one.
func (s *session) logRefusal(imei string, err error) {
	if n, before := s.g.refusals.next(); n == 1 {
		s.g.cfg.Logger.Warn("device refused for its certificate", "imei", imei,
			"peer", s.conn.RemoteAddr().String(), "error", err, "refused_since_last_line", max(0, before-1))
	}
}

// Allowed is the default name of the set of allowed devices.
const Allowed = "devices:allowed"

const (
	// askAgain is the pause before the next query about a device with no known answer.
	askTime, askAgain = time.Second, time.Second
	// undecidedTime is short of the 30 s after which a device gives up.
	undecidedTime = 25 * time.Second
	recheckTime   = time.Minute
	// askPage takes Redis less than a millisecond.
	askPage   = 1000
	manyKnown = 100_000
	// mostQueries at once leave connections for records.
	mostQueries = 16
)

// authority allows the members of a set in Redis. It asks at each handshake, so changes apply at
// once. While Redis cannot answer, former members are served from memory. Only members are
// remembered, so invented IMEIs cannot fill it.
type authority struct {
	client   redis.UniversalClient
	set      string
	asks     *streak.Streak
	failures prometheus.Counter
	turns    chan struct{} // one taken per query

	mu     sync.Mutex
	known  map[string]struct{} // by Redis' last answer
	failed time.Time           // the last query
}

func newAuthority(
	client redis.UniversalClient, set string, log *slog.Logger, failures prometheus.Counter,
) *authority {
	return &authority{
		client: client, set: set, failures: failures,
		asks: streak.New(log, "Redis does not say which devices may be served: known ones are, others wait",
			"Redis says again which devices may be served", "set", set),
		known: make(map[string]struct{}), turns: make(chan struct{}, mostQueries),
	}
}

// decide also returns errUnknownDevice, or errUndecided if the device's patience or ctx ends first.
// A nil authority allows every device.
func (a *authority) decide(ctx context.Context, imei string) error {
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, undecidedTime)
	defer cancel()
	for {
		are, err := a.inTurn(ctx, imei)
		switch {
		case err == nil && are[0], err != nil && a.knows(imei):
			return nil
		case err == nil:
			return errUnknownDevice
		}
		if !wait.For(ctx, askAgain) {
			return errUndecided
		}
	}
}

func (a *authority) knows(imei string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.known[imei]
	return known
}

// inTurn asks no more for a while after a failure, so that remembered devices are served at once.
func (a *authority) inTurn(ctx context.Context, imei string) ([]bool, error) {
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	a.mu.Lock()
	failing := time.Since(a.failed) < askAgain
	a.mu.Unlock()
	if failing {
		return nil, errUndecided
	}
	return a.ask(ctx, imei)
}

// recheck expels devices that have left the set, until ctx ends. A failure expels none.
func (a *authority) recheck(ctx context.Context, connected func() []string, expel func(imei string)) {
	for wait.For(ctx, recheckTime) {
		for page := range slices.Chunk(connected(), askPage) {
			are, err := a.ask(ctx, page...)
			if err != nil {
				break
			}
			for i, imei := range page {
				if !are[i] {
					expel(imei)
				}
			}
		}
	}
}

func (a *authority) ask(ctx context.Context, imeis ...string) ([]bool, error) {
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	args := make([]any, len(imeis))
	for i, imei := range imeis {
		args[i] = imei
	}
	are, err := a.client.SMIsMember(asking, a.set, args...).Result()
	if err == nil && len(are) != len(imeis) {
		err = fmt.Errorf("gateway: asked about %d devices, got %d answers", len(imeis), len(are))
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	a.asks.Note(err)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed = time.Now()
		a.failures.Inc()
		return nil, err
	}
	for i, is := range are {
		a.learn(imeis[i], is)
	}
	return are, nil
}

// The caller holds mu.
func (a *authority) learn(imei string, is bool) {
	delete(a.known, imei)
	for other := range a.known {
		if !is || len(a.known) < manyKnown {
			break
		}
		delete(a.known, other)
	}
	if is {
		a.known[imei] = struct{}{}
	}
}

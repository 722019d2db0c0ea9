package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/printable"
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

package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// ParseClientCAs makes a pool for Config.ClientCAs from certificates in PEM. None, or a damaged
// one, is an error: a pool must not lack an authority because only half of a file was read.
func ParseClientCAs(text string) (*x509.CertPool, error) {
	pool, rest := x509.NewCertPool(), []byte(text)
	n := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("block %d is not a certificate", n+1)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", n+1, err)
		}
		pool.AddCert(cert)
		n++
	}
	switch began := strings.Count(text, "-----BEGIN"); {
	case began == 0:
		return nil, errors.New("the file has no certificate in PEM")
	case began != n:
		return nil, fmt.Errorf("%d certificates begin, and %d can be read", began, n)
	}
	return pool, nil
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

func names(cert *x509.Certificate, imei string) bool {
	return cert.Subject.CommonName == imei || slices.Contains(cert.DNSNames, imei)
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
	if !asked || len(certs) > 0 && names(certs[0], imei) {
		return nil
	}
	err := fmt.Errorf("%w: it names another device", errCertificate)
	if len(certs) > 0 {
		err = fmt.Errorf("%w: %s", err, subject(certs[0]))
	}
	s.logRefusal(imei, err)
	return err
}

// certificates blocks during the TLS handshake: call it later.
func (s *session) certificates() (certs []*x509.Certificate, asked bool) {
	conn, overTLS := s.conn.(*tls.Conn)
	if !overTLS || s.g.cfg.ClientCAs == nil {
		return nil, false
	}
	return conn.ConnectionState().PeerCertificates, true
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

func subject(cert *x509.Certificate) string {
	const most = 3
	all := append([]string{cert.Subject.CommonName}, cert.DNSNames...)
	more := ""
	if len(all) > most {
		all, more = all[:most], " ..."
	}
	for i, name := range all {
		all[i] = strconv.QuoteToASCII(name[:min(len(name), 64)])
	}
	return strings.Join(all, ", ") + more
}

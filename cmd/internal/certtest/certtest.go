// Package certtest makes authorities, and certificates of devices, for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes a root.
func New(t *testing.T, name string) *Authority { return made(t, name, nil) }

// Under makes an Authority for which a vouches.
func (a *Authority) Under(t *testing.T, name string) *Authority { return made(t, name, a) }

func made(t *testing.T, name string, by *Authority) *Authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	a := &Authority{Cert: template, key: newKey(t)}
	if by == nil {
		by = a
	}
	a.Cert = by.sign(t, template, a.key)
	return a
}

// Device returns a certificate with a device as its common name, for an hour from now on, unless
// change makes it another one. A NotAfter that it sets moves NotBefore, too.
func (a *Authority) Device(t *testing.T, imei string, change ...func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: imei}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	key := newKey(t)
	return &tls.Certificate{Certificate: [][]byte{a.sign(t, template, key).Raw}, PrivateKey: key}
}

// Itself returns the Authority's certificate for a peer to show.
func (a *Authority) Itself() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{a.Cert.Raw}, PrivateKey: a.key}
}

// Files writes a certificate and its key into a folder.
func Files(t *testing.T, dir string, pair *tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return certFile, keyFile
}

// PEM returns the Authority's certificate.
func (a *Authority) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw}))
}

// Pool returns the certificates of these authorities.
func Pool(all ...*Authority) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, a := range all {
		pool.AddCert(a.Cert)
	}
	return pool
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func (a *Authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	template.NotBefore = template.NotAfter.Add(-2 * time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, key.Public(), a.key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert
}

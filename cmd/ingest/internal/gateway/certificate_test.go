package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/certtest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// vouched is a gateway that requires device certificates of these authorities.
type vouched struct {
	*bench
	cas atomic.Pointer[x509.CertPool]
	log process.Buffer
}

func (d *vouched) trust(all ...*certtest.Authority) { d.cas.Store(certtest.Pool(all...)) }

func asking(t *testing.T, wrap func(*bench, net.Listener) net.Listener, all ...*certtest.Authority) *vouched {
	t.Helper()
	d := &vouched{}
	d.trust(all...)
	secured := overTLS(t)
	d.bench = listening(t, func(b *bench, ln net.Listener) net.Listener {
		if wrap != nil {
			ln = wrap(b, ln)
		}
		return secured(b, ln)
	}, func(c *Config) {
		c.ClientCAs = d.cas.Load
		c.Logger = slog.New(slog.NewTextHandler(&d.log, nil))
	})
	return d
}

// comes connects a device with a certificate, or none, before any TLS data is sent.
func (d *vouched) comes(t *testing.T, cert *tls.Certificate, version uint16, change ...func(*tls.Config)) *wire {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, MaxVersion: version}
	if cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	for _, f := range change {
		f(config)
	}
	return &wire{t, tls.Client(d.dial(t).Conn, config)}
}

var versions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func TestADeviceIsServedByACertificateThatNamesIt(t *testing.T) {
	t.Parallel()
	ca, root := certtest.New(t, "devices"), certtest.New(t, "root")
	d := asking(t, nil, certtest.New(t, "other devices"), ca, root)
	between := root.Under(t, "between")
	chain := between.Device(t, imei)
	chain.Certificate = append(chain.Certificate, between.Cert.Raw)
	for name, cert := range map[string]*tls.Certificate{
		"of an intermediate authority": chain,
		"by its common name":           ca.Device(t, imei),
		"by a DNS name": ca.Device(t, "fleet 7", func(c *x509.Certificate) {
			c.DNSNames = []string{"fleet.example", otherIMEI, imei}
		}),
		"for any use": ca.Device(t, imei, func(c *x509.Certificate) { c.ExtKeyUsage = nil }),
	} {
		for version, number := range versions {
			t.Run(name+", TLS "+version, func(t *testing.T) {
				w := d.comes(t, cert, number)
				w.login(imei)
				w.send(frame(2))
				w.expect("00000002")
				require.NoError(t, w.Close())
			})
		}
	}
	require.Empty(t, d.log.String())
}

// A refusal has no effects: no device is registered, no place among the identified ones is taken,
// and nobody is displaced.
func TestADeviceWithoutACertificateOfItsOwnIsRefused(t *testing.T) {
	t.Parallel()
	ca, other := certtest.New(t, "devices"), certtest.New(t, "devices")
	for name, cert := range map[string]*tls.Certificate{
		"none":                 nil,
		"of another authority": other.Device(t, imei),
		"self-signed":          certtest.New(t, imei).Itself(),
		"expired": ca.Device(t, imei, func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Minute)
		}),
		"not yet valid": ca.Device(t, imei, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(3 * time.Hour) }),
		"of a server": ca.Device(t, imei, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}),
		"of another device": ca.Device(t, otherIMEI),
		"of no device":      ca.Device(t, ""),
		"that begins with the IMEI": ca.Device(t, imei+"0", func(c *x509.Certificate) {
			c.DNSNames = []string{imei + ".example", "*.example", "www." + imei}
		}),
		"with the IMEI elsewhere": ca.Device(t, "", func(c *x509.Certificate) {
			c.Subject.Organization, c.Subject.SerialNumber = []string{imei}, imei
			c.EmailAddresses = []string{imei + "@example.com"}
		}),
	} {
		for version, number := range versions {
			t.Run(name+", TLS "+version, func(t *testing.T) {
				t.Parallel()
				d := asking(t, nil, ca)
				held := d.comes(t, ca.Device(t, imei), 0)
				held.login(imei)

				w := d.comes(t, cert, number)
				if w.Conn.(*tls.Conn).Handshake() == nil { // TLS 1.3 learns of it later
					_, _ = w.Write(handshake(imei))
					answer := make([]byte, 1)
					if n, _ := w.Read(answer); n == 1 {
						require.Equal(t, teltonika.Refuse, answer[0])
					}
				}
				d.awaitEnds(t, 1, endCertificate)
				require.Len(t, d.registrar.all(), 1)
				requireCount(t, 1, d.metrics.handshakes.WithLabelValues("refused"))
				require.Contains(t, d.log.String(), "device refused for its certificate")
				held.send(frame(1)) // it was not displaced
				held.expect("00000001")
			})
		}
	}
}

func TestAnAuthorityThatIsTakenOutVouchesForNobody(t *testing.T) {
	t.Parallel()
	for version, number := range versions {
		t.Run("TLS "+version, func(t *testing.T) {
			t.Parallel()
			former, latter := certtest.New(t, "former"), certtest.New(t, "latter")
			d := asking(t, nil, former, latter)
			cache := tls.NewLRUClientSessionCache(0)
			resumes := func(c *tls.Config) { c.ClientSessionCache, c.ServerName = cache, "ingest" }
			revoked, kept := former.Device(t, imei), latter.Device(t, otherIMEI)
			first := d.comes(t, revoked, number, resumes)
			first.login(imei)
			stays := d.comes(t, kept, number)
			stays.login(otherIMEI)

			again := d.comes(t, revoked, number, resumes)
			again.login(imei)
			require.True(t, again.Conn.(*tls.Conn).ConnectionState().DidResume, "the case under test")

			d.trust(latter)
			again.expectEnd() // which was open
			d.awaitEnds(t, 1, endCertificate)
			w := d.comes(t, revoked, number, resumes)
			_, _ = w.Write(handshake(imei))
			n, _ := w.Read(make([]byte, 1))
			require.Zero(t, n)
			d.awaitEnds(t, 2, endCertificate)
			require.Len(t, d.registrar.all(), 3)
			stays.reports()
		})
	}
}

// The change comes after the handshake has used the former authorities, and before the claim.
func TestAnAuthorityThatIsTakenOutDuringAHandshakeVouchesForNobody(t *testing.T) {
	t.Parallel()
	former := certtest.New(t, "former")
	d := asking(t, nil, former)
	w := d.comes(t, former.Device(t, imei), tls.VersionTLS12)
	require.NoError(t, w.Conn.(*tls.Conn).Handshake())
	d.trust(certtest.New(t, "latter"))
	w.send(handshake(imei))
	w.expectEnd()
	d.awaitEnds(t, 1, endCertificate)
}

func TestCertificatesCountBehindAProxyToo(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t, "devices")
	d := asking(t, proxied("127.0.0.0/8"), ca)
	d.dial(t) // sends nothing, not even a header, and delays nobody
	from := &net.TCPAddr{IP: net.ParseIP("203.0.113.7"), Port: 4711}
	header := proxyproto.HeaderProxyFromAddrs(2, from, &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 5027})
	through := func(cert *tls.Certificate) *wire {
		under := d.dial(t)
		_, err := header.WriteTo(under)
		require.NoError(t, err)
		config := &tls.Config{InsecureSkipVerify: true}
		if cert != nil {
			config.Certificates = []tls.Certificate{*cert}
		}
		return &wire{t, tls.Client(under.Conn, config)}
	}
	w := through(ca.Device(t, imei))
	w.login(imei)
	w.send(frame(2))
	w.expect("00000002")
	require.NoError(t, w.Close())
	w = through(ca.Device(t, "a\nb\x1b[31m", func(c *x509.Certificate) { c.DNSNames = []string{otherIMEI} }))
	w.refused(imei)
	w.expectEnd()
	w = through(nil)
	_, _ = w.Write(handshake(imei))
	n, _ := w.Read(make([]byte, 1))
	require.Zero(t, n)

	d.awaitEnds(t, 2, endCertificate)
	log := d.log.String()
	require.Contains(t, log, "peer=203.0.113.7:4711", "not the proxy's")
	require.Contains(t, log, "imei="+imei)
	require.Equal(t, 1, strings.Count(log, "\n"), "refusals are logged once in a while")
	require.NotContains(t, log, "\x1b")

	// Without a header no TLS data is read.
	w = d.comes(t, ca.Device(t, imei), 0)
	require.Error(t, w.Conn.(*tls.Conn).Handshake())
	d.awaitEnds(t, 1, endProxy)
	require.Len(t, d.registrar.all(), 1)
}

func TestClientCAsAreReadWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	first, second := certtest.New(t, "first"), certtest.New(t, "second")
	both := "# those of 2026\n" + first.PEM() + "\nSubject: second\n" + second.PEM()
	pool, err := ParseClientCAs(both)
	require.NoError(t, err)
	for _, a := range []*certtest.Authority{first, second} {
		cert, err := x509.ParseCertificate(a.Device(t, imei).Certificate[0])
		require.NoError(t, err)
		require.NoError(t, verifyDevice([]*x509.Certificate{cert}, pool))
	}
	_, err = ParseClientCAs(both + "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
	require.EqualError(t, err, "3 certificates in PEM begin, and 2 can be read")
	for end := 1; end < len(both)-1; end++ { // a file that is being written
		if pool, err := ParseClientCAs(both[:end]); err == nil {
			require.True(t, pool.Equal(certtest.Pool(first)), "a whole first certificate, at %d", end)
		}
	}
	for text, want := range map[string]string{
		"": "0 certificates", "nothing": "0 certificates",
		first.PEM() + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})): "block 2: x509",
	} {
		_, err := ParseClientCAs(text)
		require.ErrorContains(t, err, want, fmt.Sprintf("%.40q", text))
	}
}

func TestAnExpiredCertificateIsUsedOnlyIfASettingAllowsIt(t *testing.T) {
	t.Parallel()
	text := func(file string) string {
		p, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(p)
	}
	late := certtest.New(t, "authority").Device(t, "late", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	cert, key := certtest.Files(t, t.TempDir(), late)
	_, err := ParseCertificate(text(cert), text(key), false)
	require.ErrorContains(t, err, "expired at")
	pair, err := ParseCertificate(text(cert), text(key), true)
	require.NoError(t, err)
	require.Equal(t, "late", pair.Leaf.Subject.CommonName)
	_, other := certtest.Files(t, t.TempDir(), certtest.New(t, "other").Itself())
	_, err = ParseCertificate(text(cert), text(other), true)
	require.Error(t, err)
}

package main

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/certtest"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestDevicesComeByTLSWithCertificatesAndThroughProxiesAndOnlyThoseOfTheSet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	former, latter := certtest.New(t, "former"), certtest.New(t, "latter")
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, []byte(former.PEM()), 0o600))
	cert, key := selfSigned(t)
	p := serving(t, on(server, "--device-authority=set", "--ingest-tls-addr=127.0.0.1:0",
		"--ingest-tls-cert="+cert, "--ingest-tls-key="+key, "--ingest-tls-client-ca="+file,
		"--ingest-proxy-addr=127.0.0.1:0", "--ingest-proxy-trusted=127.0.0.0/8")...)
	const plain, byTLS = "listening for devices", "listening for devices by TLS"
	const behind = "listening for devices behind proxies"
	p.Await(func() bool { return p.Addr(byTLS) != "" && p.Addr(behind) != "" })
	require.Contains(t, p.Log.String(), "devices may still connect without a certificate")
	p.Await(func() bool {
		_, page := p.Get("/")
		return strings.Contains(page, "the set devices:allowed is empty: no device is served")
	}, "the page names it")
	require.NoError(t, server.Client().SAdd(t.Context(), gateway.Allowed, imei, "352093081452251").Err())

	dial := func(listener string) net.Conn {
		conn, err := net.Dial("tcp", p.Addr(listener))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		return conn
	}
	// answered returns the replica's answer to a device, or 0xFF for none.
	answered := func(conn net.Conn, prefix, imei string) byte {
		hello, err := teltonika.AppendIMEI([]byte(prefix), imei)
		require.NoError(t, err)
		answer := []byte{0xFF}
		if _, err := conn.Write(hello); err == nil {
			_, _ = conn.Read(answer)
		}
		return answer[0]
	}
	const header = "PROXY TCP4 203.0.113.9 192.0.2.1 4711 5027\r\n"
	require.Equal(t, teltonika.Accept, answered(dial(behind), header, imei))
	require.Equal(t, teltonika.Refuse, answered(dial(plain), "", "490154203237518"))

	answer := func(by *tls.Certificate) (byte, *tls.Conn) {
		conn := tls.Client(dial(byTLS), &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{*by}, MaxVersion: tls.VersionTLS12,
		})
		return answered(conn, "", imei), conn
	}
	answers := func(by *tls.Certificate, how byte) { got, _ := answer(by); require.Equal(t, how, got) }
	own, next := former.Device(t, imei), latter.Device(t, imei)
	got, open := answer(own)
	require.Equal(t, teltonika.Accept, got)
	answers(former.Device(t, "352093081452251"), teltonika.Refuse)
	answers(next, 0xFF)

	require.NoError(t, os.WriteFile(file, []byte(former.PEM()[:200]), 0o600)) // half of it
	p.Await(func() bool { return strings.Contains(p.Log.String(), "the former value stands") })
	require.NoError(t, os.WriteFile(file, []byte(latter.PEM()), 0o600))
	_, err := open.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the open socket of a device for which nobody vouches any more")
	answers(own, 0xFF)
	answers(next, teltonika.Accept)

	newCert, newKey := certtest.Files(t, t.TempDir(), certtest.New(t, "second").Itself())
	require.NoError(t, os.Rename(newCert, cert))
	require.NoError(t, os.Rename(newKey, key))
	p.Await(func() bool {
		_, conn := answer(next)
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName == "second"
	})
}

// selfSigned writes a certificate and its key.
func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	return certtest.Files(t, t.TempDir(), certtest.New(t, "ingest").Itself())
}

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

func TestDevicesComeByTLSAndThroughProxiesAndOnlyThoseOfTheSet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client().SAdd(t.Context(), gateway.Allowed, imei).Err())
	cert, key := selfSigned(t)
	p := serving(t, "--redis-url=redis://"+server.Addr(), "--device-authority=set",
		"--ingest-tls-addr=127.0.0.1:0", "--ingest-tls-cert="+cert, "--ingest-tls-key="+key,
		"--ingest-proxy-addr=127.0.0.1:0", "--ingest-proxy-trusted=127.0.0.0/8")
	p.Await(func() bool { return p.Addr("listening for devices behind proxies") != "" })

	dial := func(listener string) net.Conn {
		conn, err := net.Dial("tcp", p.Addr(listener))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		return conn
	}
	answered := func(conn net.Conn, prefix, imei string) byte {
		hello, err := teltonika.AppendIMEI([]byte(prefix), imei)
		require.NoError(t, err)
		_, err = conn.Write(hello)
		require.NoError(t, err)
		answer := make([]byte, 1)
		_, err = io.ReadFull(conn, answer)
		require.NoError(t, err)
		return answer[0]
	}
	// self-signed
	byTLS := tls.Client(dial("listening for devices by TLS"), &tls.Config{InsecureSkipVerify: true})
	require.Equal(t, teltonika.Accept, answered(byTLS, "", imei))
	const header = "PROXY TCP4 203.0.113.9 192.0.2.1 4711 5027\r\n"
	require.Equal(t, teltonika.Accept, answered(dial("listening for devices behind proxies"), header, imei))
	require.Equal(t, teltonika.Refuse, answered(dial("listening for devices"), "", "352093081452251"))
}

func TestDevicesShowCertificatesOfAuthoritiesInAFileThatIsReadAgain(t *testing.T) {
	t.Parallel()
	former, latter := certtest.New(t, "former"), certtest.New(t, "latter")
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, []byte(former.PEM()), 0o600))
	cert, key := selfSigned(t)
	p := serving(t, "--redis-url=redis://"+redistest.Start(t).Addr(), "--ingest-tls-addr=127.0.0.1:0",
		"--ingest-tls-cert="+cert, "--ingest-tls-key="+key, "--ingest-tls-client-ca="+file)
	p.Await(func() bool { return p.Addr("listening for devices by TLS") != "" })
	require.Contains(t, p.Log.String(), "devices may still connect without a certificate")
	hello, err := teltonika.AppendIMEI(nil, imei)
	require.NoError(t, err)
	// answer returns the replica's answer to a device, or 0xFF for none.
	answer := func(by *tls.Certificate) (byte, *tls.Conn) {
		conn, err := tls.Dial("tcp", p.Addr("listening for devices by TLS"), &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{*by}, MaxVersion: tls.VersionTLS12,
		})
		if err != nil {
			return 0xFF, nil
		}
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = conn.Write(hello)
		require.NoError(t, err)
		answer := make([]byte, 1)
		_, err = io.ReadFull(conn, answer)
		require.NoError(t, err)
		return answer[0], conn
	}
	own, next := former.Device(t, imei), latter.Device(t, imei)
	got, open := answer(own)
	require.Equal(t, teltonika.Accept, got)
	got, _ = answer(former.Device(t, "352093081452251"))
	require.Equal(t, teltonika.Refuse, got)
	got, _ = answer(next)
	require.Equal(t, byte(0xFF), got)

	require.NoError(t, os.WriteFile(file, []byte(former.PEM()[:200]), 0o600)) // half of it
	p.Await(func() bool { return strings.Contains(p.Log.String(), "the former value stands") })
	require.NoError(t, os.WriteFile(file, []byte(latter.PEM()), 0o600))
	_, err = open.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the open socket of a device for which nobody vouches any more")
	got, _ = answer(own)
	require.Equal(t, byte(0xFF), got)
	got, _ = answer(next)
	require.Equal(t, teltonika.Accept, got)

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

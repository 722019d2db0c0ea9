package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// selfSigned writes a certificate and its key.
func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certFile, keyFile
}

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

func TestACertificateThatCannotBeReadIsAFailureAtStart(t *testing.T) {
	t.Parallel()
	p := start(t, "--ingest-tls-addr=127.0.0.1:0", "--ingest-tls-cert=/nowhere/cert.pem", "--ingest-tls-key=/nowhere/key.pem")
	require.Equal(t, exitFailed, p.Ends())
	require.Contains(t, p.Log.String(), "INGEST_TLS_CERT, INGEST_TLS_KEY: gateway: open /nowhere/cert.pem")
}

package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
	"github.com/rollcall-redis/rollcall/cmd/internal/certtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

func written(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// loaded is what a program reads of its arguments.
func loaded(args ...string) (*Redis, error) {
	r := &Redis{}
	c := &cli.Command{Name: "program", Settings: r.Table()}
	return r, c.Load(args, nil)
}

// insider is a program's clients, with files that are watched.
type insider struct {
	*Clients
	log   *process.Buffer
	files *reload.Files
}

func inside(t *testing.T, args ...string) *insider {
	t.Helper()
	r, err := loaded(args...)
	require.NoError(t, err)
	c, err := Open(t.Context(), r, time.Second)
	require.NoError(t, err)
	i := &insider{Clients: c, log: &process.Buffer{}}
	i.files = reload.New(slog.New(slog.NewTextHandler(i.log, nil)), prometheus.NewRegistry(), c.Files...)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return i
}

// reaches asks by each client.
func (i *insider) reaches(ctx context.Context) (errs error) {
	for _, c := range []redis.UniversalClient{i.Data, i.Blocking, i.Control} {
		errs = errors.Join(errs, c.Echo(ctx, "x").Err())
	}
	return errs
}

func (i *insider) awaitLog(t *testing.T, text string, n int) {
	t.Helper()
	waittest.Until(t, 5*time.Millisecond, func() bool {
		i.files.Status()
		return strings.Count(i.log.String(), text) == n
	}, text)
}

func (i *insider) awaitReach(t *testing.T) {
	t.Helper()
	waittest.Until(t, time.Millisecond, func() bool { return i.reaches(t.Context()) == nil })
}

const (
	inUse = "its new value is in use"
	kept  = "the former value stands"
)

func TestTheOrderInWhichAPasswordIsChangedDoesNotMatter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := server.Client().Conn()
	t.Cleanup(func() { _ = conn.Close() })
	do := func(args ...any) {
		t.Helper()
		require.NoError(t, conn.Do(t.Context(), args...).Err())
	}
	do("ACL", "SETUSER", "ann", "on", ">one", "+@all", "~*", "&*")
	path := written(t, filepath.Join(t.TempDir(), "password"), "one\n")
	i := inside(t, "--redis-url=redis://ann@"+server.Addr(), "--redis-password-file="+path)
	require.NoError(t, i.reaches(t.Context()))

	// The file first: until Redis accepts it, the former one is used, also by new connections.
	written(t, path, "two\n")
	i.awaitLog(t, kept, 1)
	require.Contains(t, i.log.String(), "WRONGPASS")
	do("CLIENT", "KILL", "USER", "ann")
	i.awaitReach(t)
	do("ACL", "SETUSER", "ann", ">two", "<one")
	i.awaitLog(t, inUse, 1)
	do("CLIENT", "KILL", "USER", "ann")
	i.awaitReach(t)

	// The server first.
	do("ACL", "SETUSER", "ann", ">three")
	written(t, path, "three")
	i.awaitLog(t, inUse, 2)
	do("ACL", "SETUSER", "ann", "<two")
	do("CLIENT", "KILL", "USER", "ann")
	i.awaitReach(t)
	i.awaitLog(t, kept, 1)

	// A user who may not even PING is in.
	do("ACL", "SETUSER", "ann", ">four", "-ping")
	written(t, path, "four")
	i.awaitLog(t, inUse, 3)
	for _, secret := range []string{"one", "two", "three", "four"} {
		require.NotContains(t, strings.Fields(i.log.String()), secret)
	}
}

func TestAPasswordIsTriedOnEveryMasterOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	var nodes []*redis.Conn
	require.NoError(t, cluster.Client().ForEachMaster(t.Context(),
		func(ctx context.Context, c *redis.Client) error {
			return c.Do(ctx, "ACL", "SETUSER", "ann", "on", ">one", "+@all", "~*", "&*").Err()
		}))
	for addr := range strings.SplitSeq(strings.Join(cluster.Options().Addrs, ","), ",") {
		c := redis.NewClient(&redis.Options{Addr: addr})
		conn := c.Conn()
		t.Cleanup(func() { _ = conn.Close(); _ = c.Close() })
		nodes = append(nodes, conn)
	}
	path := written(t, filepath.Join(t.TempDir(), "password"), "one\n")
	url := strings.Replace(cluster.URL(), "redis://", "redis://ann@", 1)
	i := inside(t, "--redis-url="+url, "--redis-password-file="+path)
	require.NoError(t, i.reaches(t.Context()))
	written(t, path, "two\n")
	for n, node := range nodes {
		i.awaitLog(t, kept, 1)
		require.Zero(t, strings.Count(i.log.String(), inUse), n)
		require.NoError(t, node.Do(t.Context(), "ACL", "SETUSER", "ann", ">two", "<one").Err())
	}
	i.awaitLog(t, inUse, 1)
	require.NoError(t, i.reaches(t.Context()))
}

// secured is the TLS of a server, which asks clients for a certificate of the same authority.
func secured(t *testing.T, a *certtest.Authority) *tls.Config {
	t.Helper()
	pair := a.Device(t, "redis", func(c *x509.Certificate) {
		c.ExtKeyUsage, c.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	return &tls.Config{Certificates: []tls.Certificate{*pair}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: certtest.Pool(a)}
}

// folder has the files of a client.
type folder struct {
	t   *testing.T
	dir string
}

// put writes a new certificate of an authority, and the authorities that are trusted.
func (f folder) put(a *certtest.Authority, trusted ...*certtest.Authority) {
	f.t.Helper()
	text := ""
	for _, t := range append(trusted, a) {
		text += t.PEM()
	}
	written(f.t, filepath.Join(f.dir, "ca.pem"), text)
	certtest.Files(f.t, f.dir, a.Device(f.t, "client"))
}

// flags name the files: of the authority, and of the client's own.
func (f folder) flags() (ca, cert, key string) {
	return "--redis-tls-ca-file=" + filepath.Join(f.dir, "ca.pem"), "--redis-tls-cert-file=" +
		filepath.Join(f.dir, "cert.pem"), "--redis-tls-key-file=" + filepath.Join(f.dir, "key.pem")
}

// terminator is TLS before a Redis that has none.
type terminator struct {
	config atomic.Pointer[tls.Config]
	addr   string

	mu    sync.Mutex
	conns []net.Conn
}

func terminate(t *testing.T, server *redistest.Server, config *tls.Config) *terminator {
	t.Helper()
	p := &terminator{}
	p.config.Store(config)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return p.config.Load(), nil },
	})
	require.NoError(t, err)
	p.addr = ln.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(conn, server.Addr()) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); p.cut(); wg.Wait() })
	return p
}

func (p *terminator) serve(conn net.Conn, to string) {
	defer conn.Close()
	if conn.(*tls.Conn).Handshake() != nil {
		return
	}
	back, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer back.Close()
	p.mu.Lock()
	p.conns = append(p.conns, conn, back)
	p.mu.Unlock()
	go func() { _, _ = io.Copy(back, conn); _ = back.Close() }()
	_, _ = io.Copy(conn, back)
}

// cut ends every connection.
func (p *terminator) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func TestCertificatesOfRedisAreReadAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first, second := certtest.New(t, "first"), certtest.New(t, "second")
	p := terminate(t, server, secured(t, first))
	files := folder{t, t.TempDir()}
	files.put(first)
	ca, cert, key := files.flags()
	url := "--redis-url=rediss://" + p.addr
	require.Error(t, inside(t, url, ca).reaches(t.Context()), "it asks for a certificate")
	require.Error(t, inside(t, url, cert, key).reaches(t.Context()), "who vouches for the server's?")
	i := inside(t, url, ca, cert, key)
	require.NoError(t, i.reaches(t.Context()))
	ends := i.Status(true).CertificateEnds
	require.WithinDuration(t, time.Now().Add(time.Hour), ends, time.Minute, "of the server's certificate")
	anew := func(says string, n int) {
		t.Helper()
		i.awaitLog(t, says, n)
		p.cut()
		i.awaitReach(t)
	}

	files.put(first) // a new certificate of the same authority
	anew(inUse, 1)
	files.put(second, first) // too early: the server does not know that authority
	anew(kept, 1)
	p.config.Store(secured(t, second))
	anew(inUse, 2)
	written(t, filepath.Join(files.dir, "key.pem"), "half a k")
	anew(kept, 2)
}

func TestAPasswordAndAnAuthorityMayChangeTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	require.NoError(t, rdb.ConfigSet(t.Context(), "requirepass", "first").Err())
	first, second := certtest.New(t, "first"), certtest.New(t, "second")
	p := terminate(t, server, secured(t, first))
	files := folder{t, t.TempDir()}
	password := written(t, filepath.Join(files.dir, "password"), "first")
	files.put(first)
	ca, cert, key := files.flags()
	i := inside(t, "--redis-url=rediss://"+p.addr, ca, cert, key, "--redis-password-file="+password)
	require.NoError(t, i.reaches(t.Context()))

	// As a Redis that is built anew.
	require.NoError(t, rdb.ConfigSet(t.Context(), "requirepass", "second").Err())
	p.config.Store(secured(t, second))
	p.cut()
	files.put(second)
	written(t, password, "second")
	i.awaitLog(t, inUse, 2)
	i.awaitReach(t)
}

func TestSettingsOfFilesThatCannotBeRightAreRefusedByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string { return written(t, filepath.Join(dir, name), text) }
	a := certtest.New(t, "ca")
	pw, ca := file("pw", "geheim\n"), file("ca", a.PEM())
	cert, key := certtest.Files(t, t.TempDir(), a.Device(t, "client"))
	_, other := certtest.Files(t, t.TempDir(), a.Device(t, "client"))
	calltest.Tells(t, func(args ...string) (int, string) {
		_, err := loaded(args...)
		var faults cli.Faults
		require.ErrorAs(t, err, &faults)
		require.NotContains(t, strings.ReplaceAll(err.Error(), dir, ""), "geheim")
		return len(faults), err.Error()
	}, `
		1 --redis-url=redis://ann:geheim@h:1 $PW ~ REDIS_PASSWORD_FILE: expected a REDIS_URL of a server, without a password
		1 --redis-url=embedded $PW ~ REDIS_PASSWORD_FILE: expected a REDIS_URL of a server, without
		1 --redis-url=redis://h:1 --redis-password-file=$EMPTY ~ expected the path of a file .*\(the file is empty\)
		1 --redis-url=redis://h:1 --redis-password-file=$LINES ~ expected the path of a file .*\(the file has more
		1 --redis-url=redis://h:1 --redis-password-file=geheim ~ --redis-password-file: .*\(the file cannot be
		1 --redis-url=redis://h:1 $CA ~ REDIS_TLS_CA_FILE, REDIS_TLS_CERT_FILE, REDIS_TLS_KEY_FILE: expected a REDIS_URL that
		1 --redis-url=rediss://h:1 $CERT ~ REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE: expected both, got one
		1 --redis-url=rediss://h:1 $CERT --redis-tls-key-file=$OTHERS ~ tls: private key does not match public key
		1 --redis-url=rediss://h:1?skip_verify=true $CA ~ REDIS_TLS_CA_FILE: expected a REDIS_URL without skip_verify=true
		1 --redis-url=rediss://h:1?master_name=m&skip_verify=1 $CA ~ REDIS_TLS_CA_FILE: expected a REDIS_URL without skip
		1 --redis-url=rediss://h:1 --redis-tls-ca-file=$NONE ~ REDIS_TLS_CA_FILE has no certificate in PEM`,
		"$PW", "--redis-password-file="+pw, "$EMPTY", file("empty", "\n"), "$LINES", file("lines", "geheim\ngeheim\n"),
		"$CA", "--redis-tls-ca-file="+ca, "$CERT", "--redis-tls-cert-file="+cert, "$OTHERS", other, "$NONE", pw)
	for _, url := range []string{"rediss://h:1", "rediss://h:1?addr=g:2", "rediss://h:1?master_name=m"} {
		r, err := loaded("--redis-url="+url, "--redis-password-file="+pw, "--redis-tls-ca-file="+ca,
			"--redis-tls-cert-file="+cert, "--redis-tls-key-file="+key)
		require.NoError(t, err)
		c, err := Open(t.Context(), r, time.Second)
		require.NoError(t, err)
		require.Len(t, c.Files, 2)
		require.NoError(t, c.Close())
		require.NoError(t, os.Rename(pw, pw+".gone"))
		_, err = Open(t.Context(), r, time.Second)
		require.ErrorContains(t, err,
			"REDIS_PASSWORD_FILE: the file cannot be read: no such file or directory")
		require.NoError(t, os.Rename(pw+".gone", pw))
	}
}

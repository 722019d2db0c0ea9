package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/internal/replies"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

type loginFiles struct{ password, ca, cert, key string }

// Table returns the rows, REDIS_URL first.
func (r *Redis) Table() []cli.Setting {
	return append([]cli.Setting{
		{Name: "REDIS_URL", Secret: true, Required: true,
			Value: func(v string) error { return r.Parse(v) },
			Shown: func() string { return r.String() },
			Meaning: "`redis://`, `rediss://` (TLS) or `unix://`. With `master_name=` and `addr=`: " +
				"Sentinel; user and password before the @ are then the sentinels', `username=` and " +
				"`password=` the servers'. With `addr=` alone: a Redis Cluster, " +
				"`redis://host:6379?addr=host2:6379`. `embedded`: a Redis inside the process, for trying out.",
			Consequence: "**Never** set `embedded` in production: each replica would be alone."},
	}, r.fileTable()...)
}

func (r *Redis) fileTable() []cli.Setting {
	f := &r.files
	readable := func(path string) error {
		_, err := reload.Read(func([]string) (struct{}, error) { return struct{}{}, nil }, path)
		return err
	}
	password := cli.File(&f.password, "REDIS_PASSWORD_FILE", func(path string) error {
		_, err := reload.Read(reload.Line, path)
		return err
	})
	password.Meaning = "File of Redis' password; the user stays in the URL: `redis://rollcall@host:6379/0`. " +
		"With Sentinel it is the servers' password, not the sentinels'."
	password.Consequence = "Read again when it changes, and used once Redis has accepted it: [how to rotate a " +
		"password](operate.md#rotate-a-password)."
	password.Check = func(in *cli.Input) {
		if f.password != "" && in.Understood("REDIS_URL") && (r.Embedded() || r.password() != "") {
			in.Fault("REDIS_PASSWORD_FILE: expected a REDIS_URL of a server, without a password")
		}
	}
	ca := cli.File(&f.ca, "REDIS_TLS_CA_FILE", readable)
	ca.Meaning = "File of the CA certificates, in PEM, that Redis' certificate is checked against. Empty: " +
		"the system's."
	ca.Consequence = "With `rediss://` only. Read again when it changes."
	cert := cli.File(&f.cert, "REDIS_TLS_CERT_FILE", readable)
	cert.Meaning = "File of the client's certificate, in PEM, for a Redis that asks for one."
	cert.Consequence = "As the CA's, together with its key."
	key := cli.File(&f.key, "REDIS_TLS_KEY_FILE", readable)
	key.Meaning = "File of its key, in PEM."
	ca.Check = func(in *cli.Input) {
		names := []string{"REDIS_TLS_CA_FILE", "REDIS_TLS_CERT_FILE", "REDIS_TLS_KEY_FILE"}
		switch {
		case f.ca == "" && f.cert == "" && f.key == "" || !in.Understood(names...):
		case in.Understood("REDIS_URL") && !r.tls():
			in.Fault("%s: expected a REDIS_URL that begins with rediss://", strings.Join(names, ", "))
		case f.ca != "" && r.unverified():
			in.Fault("REDIS_TLS_CA_FILE: expected a REDIS_URL without skip_verify=true, by which nobody's " +
				"certificate is checked")
		case (f.cert == "") != (f.key == ""):
			in.Fault("REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE: expected both, got one")
		default:
			if _, err := reload.Read(f.material, f.pki()...); err != nil {
				in.Fault("%v", err)
			}
		}
	}
	return []cli.Setting{password, ca, cert, key}
}

func (r *Redis) password() string {
	switch {
	case r.Single != nil:
		return r.Single.Password
	case r.Sentinel != nil:
		return r.Sentinel.Password
	case r.Cluster != nil:
		return r.Cluster.Password
	}
	return ""
}

// Secrets returns the passwords, for a writer that must let none through.
func (r *Redis) Secrets() (all []string) {
	all = append(all, r.password())
	if r.Sentinel != nil {
		all = append(all, r.Sentinel.SentinelPassword)
	}
	if r.files.password != "" {
		if text, err := reload.Read(reload.Line, r.files.password); err == nil {
			all = append(all, text)
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

func (r *Redis) tls() bool {
	return r.Single != nil && r.Single.TLSConfig != nil || r.Sentinel != nil && r.Sentinel.TLSConfig != nil ||
		r.Cluster != nil && r.Cluster.TLSConfig != nil
}

func (r *Redis) unverified() bool {
	skips := func(c *tls.Config) bool { return c != nil && c.InsecureSkipVerify }
	return r.Single != nil && skips(r.Single.TLSConfig) || r.Sentinel != nil && skips(r.Sentinel.TLSConfig) ||
		r.Cluster != nil && skips(r.Cluster.TLSConfig)
}

// login is what the files last had.
type login struct {
	password func() string // nil: the URL's
	tls      func() *material
	refused  *refusals                  // nil: a trial
	ends     *atomic.Pointer[time.Time] // of Redis' certificate
}

type material struct {
	roots *x509.CertPool // nil: the system's
	pair  *tls.Certificate
}

// openLogin reads the files. Later contents are used once Redis has let a connection in with them,
// so it does not matter whether a password is changed in the file or on the server first.
//
// Open connections keep their credentials, as Redis allows. go-redis could also send AUTH on them
// (StreamingCredentialsProvider), but a connection that waits for that is useless meanwhile, and
// sometimes it waits for as long as PoolTimeout (https://github.com/redis/go-redis/issues/4027).
//
// A trial connects to the server that target names at that time.
func openLogin(target *Redis) (l login, watched []reload.Watched, err error) {
	files := target.files
	l.refused, l.ends = &refusals{}, &atomic.Pointer[time.Time]{}
	var (
		password *reload.File[string]
		pki      *reload.File[*material]
	)
	if files.password != "" {
		if password, err = reload.Open("REDIS_PASSWORD_FILE", reload.Line, files.password); err != nil {
			return l, nil, fmt.Errorf("connect: %w", err)
		}
		l.password = password.Get
		watched = append(watched, password)
	}
	if files.ca != "" || files.cert != "" {
		name := "REDIS_TLS_CA_FILE"
		if files.cert != "" {
			name = "REDIS_TLS_CERT_FILE"
		}
		if pki, err = reload.Open(name, files.material, files.pki()...); err != nil {
			return l, nil, fmt.Errorf("connect: %w", err)
		}
		l.tls = pki.Get
		watched = append(watched, pki)
	}
	if password != nil {
		password.Prove(func(ctx context.Context, v string) error {
			return target.try(ctx, login{password: func() string { return v }, tls: l.tls})
		})
	}
	if pki != nil {
		pki.Prove(func(ctx context.Context, v *material) error {
			err := target.try(ctx, login{password: l.password, tls: func() *material { return v }})
			if redis.IsAuthError(err) { // the password may have changed too; it is tried next, with this
				return nil
			}
			return err
		})
	}
	return l, watched, nil
}

// try opens a connection, to each master of a Cluster.
func (r Redis) try(ctx context.Context, l login) error {
	client := r.client(l, false, tryTimeout, 1)
	defer client.Close() // nothing is left unsent
	ping := func(ctx context.Context, c redis.Cmdable) error {
		err := c.Ping(ctx).Err()
		if redis.HasErrorPrefix(err, "NOPERM") { // it is in
			return nil
		}
		return err
	}
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx,
			func(ctx context.Context, node *redis.Client) error { return ping(ctx, node) })
	}
	return ping(ctx, client)
}

const tryTimeout = 2 * time.Second

func (f loginFiles) pki() (paths []string) {
	if f.ca != "" {
		paths = append(paths, f.ca)
	}
	if f.cert != "" {
		paths = append(paths, f.cert, f.key)
	}
	return paths
}

func (f loginFiles) material(texts []string) (*material, error) {
	m := &material{}
	if f.ca != "" {
		m.roots = x509.NewCertPool()
		if !m.roots.AppendCertsFromPEM([]byte(texts[0])) {
			return nil, errors.New("REDIS_TLS_CA_FILE has no certificate in PEM")
		}
		texts = texts[1:]
	}
	if f.cert != "" {
		pair, err := tls.X509KeyPair([]byte(texts[0]), []byte(texts[1]))
		if err != nil {
			return nil, fmt.Errorf("REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE: %w", err)
		}
		m.pair = &pair
	}
	return m, nil
}

// credentials returns nil without a file.
func (l login) credentials(user string) func(context.Context) (string, string, error) {
	if l.password == nil {
		return nil
	}
	return func(context.Context) (string, string, error) { return user, l.password(), nil }
}

// dialer returns nil where go-redis' own will do.
func (l login) dialer(base *tls.Config, timeout time.Duration, mostReply int64) replies.DialFunc {
	plain := &net.Dialer{KeepAliveConfig: dialKeepAlive}
	if base != nil && l.ends != nil {
		base = base.Clone()
		base.VerifyConnection = func(c tls.ConnectionState) error {
			l.ends.Store(&c.PeerCertificates[0].NotAfter)
			return nil
		}
	}
	if l.tls == nil || base == nil {
		if mostReply <= 0 {
			return nil
		}
		plain.Timeout = timeout
		if base == nil {
			return replies.Bounding(plain.DialContext, mostReply)
		}
		return replies.Bounding((&tls.Dialer{NetDialer: plain, Config: base}).DialContext, mostReply)
	}
	return replies.Bounding(func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		m, config := l.tls(), base.Clone()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		config.RootCAs = m.roots
		if m.pair != nil {
			config.Certificates = []tls.Certificate{*m.pair}
		}
		return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, network, addr)
	}, mostReply)
}

// dialKeepAlive is go-redis' own.
var dialKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second,
	Count: 3}

// These errors end the program. One node of a Cluster refuses most keys, and unreadable entries
// must not pass for dead. Open recognises such a node unless it did not answer then, or its
// URL is only valid for a single server: with a database, for example. Servers that do not know
// each other are not asked.
var (
	errOneNode = errors.New("connect: REDIS_URL names one node of a Redis Cluster, and was not " +
		"recognised at the start; start again while that node answers, or name the Cluster by two of its " +
		"nodes, such as redis://host:6379?addr=host2:6379, without a database or a socket's path")
	errNoCluster = errors.New("connect: REDIS_URL names a Redis Cluster, and the server is in none")
)

const (
	checkAgain = 2 * time.Second
	checkCall  = 2 * time.Second
)

const unverified = "Redis' certificate is not checked, so anybody on the way can read and change all that " +
	"is sent: take skip_verify=true out of REDIS_URL, and set REDIS_TLS_CA_FILE"

// Check asks the server once, by INFO. The error means that it must not be used: it is a node of a
// Cluster that [Open] did not recognise, or of none although a Cluster was named. A server that
// does not answer is not an error; known is true if it did, or if this user may not ask.
func (c *Clients) Check(ctx context.Context) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkCall)
	defer cancel()
	text, err := c.Data.Info(ctx).Result()
	_, cluster := c.Data.(*redis.ClusterClient)
	switch {
	case err != nil && strings.Contains(err.Error(), "cluster support disabled"):
		return true, fmt.Errorf("%w: %s", errNoCluster, c.Server)
	case err == nil && !cluster && inCluster(text):
		return true, fmt.Errorf("%w: %s", errOneNode, c.Server)
	}
	return err == nil || redis.IsPermissionError(err), nil
}

// Watch repeats Check until the server is known, or ctx ends.
func (c *Clients) Watch(ctx context.Context) error {
	for wait.For(ctx, checkAgain) {
		if known, err := c.Check(ctx); known {
			return err
		}
	}
	return nil
}

func inCluster(info string) bool {
	return strings.Contains(info, "\ncluster_enabled:1") || strings.Contains(info, "\nredis_mode:cluster")
}

// RedisStatus describes the server.
type RedisStatus struct {
	// Server has no credentials.
	Server string `json:"server"`
	// Embedded is for trying out.
	Embedded bool `json:"embedded"`
	// Reachable means that the last heartbeat landed and no later one failed.
	Reachable bool `json:"reachable"`
	// Warnings are risks of the settings for the registry.
	Warnings []string `json:"warnings,omitempty"`
	// CertificateEnds is when the certificate expires that the server has shown.
	CertificateEnds time.Time `json:"certificate_ends,omitzero"`
}

// Status returns what is known.
func (c *Clients) Status(reachable bool) RedisStatus {
	s := RedisStatus{Server: c.Server, Embedded: c.Embedded != "", Reachable: reachable}
	if c.ends != nil && c.ends.Load() != nil {
		s.CertificateEnds = *c.ends.Load()
	}
	if s.Embedded {
		s.Warnings = append(s.Warnings, EmbeddedNotice)
	}
	if c.Unverified {
		s.Warnings = append(s.Warnings, unverified)
	}
	return s
}

const (
	// After a refused login, or one client too many, the process opens one connection in
	// refusedPause until none was refused for refusedFor. Otherwise each command of each device
	// would bring one more.
	refusedPause = time.Second
	refusedFor   = 3 * refusedPause
)

// refusals is shared by a process' clients.
type refusals struct {
	mu   sync.Mutex
	err  error
	at   time.Time // of the last one
	next time.Time // when the next connection may be opened
}

func (r *refusals) note(err error) {
	// Redis answers a long command without a login by a protocol error, which names no cause: the next
	// short one is told it.
	if !redis.IsAuthError(err) && !redis.IsMaxClientsError(err) || errors.As(err, new(refusedBefore)) || strings.Contains(err.Error(), "unauthenticated") {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.at.IsZero() || now.Sub(r.at) >= refusedFor {
		r.next = now.Add(refusedPause)
	}
	r.err, r.at = err, now
}

// dial returns the last refusal if no connection may be opened now.
func (r *refusals) dial() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case r.err == nil:
		return nil
	case now.Sub(r.at) >= refusedFor:
		r.err = nil
		return nil
	case now.Before(r.next):
		return r.err
	}
	r.next = now.Add(refusedPause)
	return nil
}

// watch adds the hook to a client, or to each node of a Cluster.
func (r *refusals) watch(client redis.UniversalClient) redis.UniversalClient {
	if r == nil {
		return client
	}
	if c, ok := client.(*redis.ClusterClient); ok {
		c.OnNewNode(func(node *redis.Client) { node.AddHook(refusalHook{r}) })
		return client
	}
	client.AddHook(refusalHook{r})
	return client
}

// refusedBefore is an earlier refusal.
type refusedBefore struct{ error }

func (e refusedBefore) Unwrap() error { return e.error }

type refusedConn struct {
	net.Conn
	err error
}

func (c refusedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c refusedConn) Write([]byte) (int, error) { return 0, c.err }

// SyscallConn fails, so that no pool gives the connection out again: without a password a refused
// HELLO is no reason for it not to.
func (c refusedConn) SyscallConn() (syscall.RawConn, error) { return nil, c.err }

type refusalHook struct{ *refusals }

func (h refusalHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := h.dial(); err != nil {
			// The pool would count a failed dial against the server, and then stop dialling itself.
			ours, _ := net.Pipe()
			return refusedConn{ours, refusedBefore{err}}, nil
		}
		return next(ctx, network, addr)
	}
}

func (h refusalHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.note(err)
		return err
	}
}

func (h refusalHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.note(err)
		return err
	}
}

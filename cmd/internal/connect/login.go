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
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/internal/replies"
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

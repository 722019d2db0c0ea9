// Package connect makes a program's clients of Redis from its settings.
//
// REDIS_URL has no default: a misspelt variable must not start a replica that is alone with a Redis
// of its own. No error or log line repeats a URL's password.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/lease"
)

// EmbeddedRedis names a server inside the process, for trying out: its data is lost at the end, no
// other machine sees it, and the checks that need memory, evictions or a run id are off.
const EmbeddedRedis = "embedded"

// EmbeddedNotice is logged and shown where that server is in use.
const EmbeddedNotice = "embedded Redis: for trying out only; nothing survives a restart, " +
	"and no other machine can join"

// Redis is one of these three, or the embedded server.
type Redis struct {
	// Single has one address.
	Single *redis.Options
	// Sentinel has sentinels that fail over.
	Sentinel *redis.FailoverOptions
	// Cluster is named by some of its nodes.
	Cluster *redis.ClusterOptions
	// MostReply bounds a reply's bytes; 0: 16 MB.
	MostReply int64
	// Within bounds a call, unless the URL does; 0: ten seconds.
	Within time.Duration

	// ifCluster is Single as a node of a Cluster; nil: it cannot be one.
	ifCluster *redis.ClusterOptions
	embedded  bool
	files     loginFiles
}

// Embedded reports whether the embedded server was named.
func (r Redis) Embedded() bool { return r.embedded }

// String returns no credentials.
func (r Redis) String() string {
	switch {
	case r.Single != nil:
		return fmt.Sprintf("%s/%d", r.Single.Addr, r.Single.DB)
	case r.Sentinel != nil:
		f := r.Sentinel
		return fmt.Sprintf("%s/%d by sentinels %s", f.MasterName, f.DB, strings.Join(f.SentinelAddrs, ", "))
	case r.Cluster != nil:
		return "Cluster " + strings.Join(r.Cluster.Addrs, ", ")
	case r.embedded:
		return EmbeddedRedis
	}
	return "none"
}

// Parse reads a REDIS_URL. Its errors state the expected form and repeat nothing of it.
func (r *Redis) Parse(raw string) error {
	files, within := r.files, r.Within
	defer func() { r.files, r.Within = files, within }() // other settings
	switch raw {
	case "":
		return errors.New("the URL of your Redis, such as redis://host:6379/0; for trying out " +
			EmbeddedRedis + ", a Redis inside the process")
	case EmbeddedRedis:
		*r = Redis{embedded: true}
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil || strings.ContainsRune(raw, '#') { // it would be ignored
		// The parser's own error repeats the URL, password and all.
		return errors.New("a URL such as redis://user:password@host:6379/0, " +
			"special characters of the password escaped")
	}
	if !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || u.Opaque != "" {
		return errors.New("a URL that begins with redis://, rediss:// or unix://")
	}
	query := u.Query()
	switch {
	case query.Has("master_name"):
		return r.parseSentinel(raw)
	case query.Has("addr"):
		return r.parseCluster(u, raw)
	}
	opt, err := redis.ParseURL(raw)
	if err != nil {
		return detail(raw, "redis://user:password@host:port/database", err)
	}
	if opt.DB < 0 || opt.Network == "tcp" && cli.CheckAddress(opt.Addr) != nil {
		return errors.New("a port from 0 to 65535 and a database number from 0 up")
	}
	var node Redis
	_ = node.parseCluster(u, raw) // the URL may be for one server alone: one with a database
	*r = Redis{Single: opt, ifCluster: node.Cluster}
	return nil
}

func (r *Redis) parseCluster(u *url.URL, raw string) error {
	opt, err := redis.ParseClusterURL(raw)
	if err != nil {
		return detail(raw, "redis://user:password@host:6379?addr=host2:6379", err)
	}
	if opt.ReadOnly || opt.RouteByLatency || opt.RouteRandomly {
		return errors.New("reads from the masters: none of read_only, route_by_latency, route_randomly")
	}
	if db := strings.Trim(u.Path, "/"); db != "" && db != "0" {
		return errors.New("no database number but 0: a Cluster has no other")
	}
	if slices.ContainsFunc(opt.Addrs, noAddress) {
		return errors.New("ports from 0 to 65535")
	}
	*r = Redis{Cluster: opt}
	return nil
}

func noAddress(addr string) bool { return cli.CheckAddress(addr) != nil }

func (r *Redis) parseSentinel(raw string) error {
	opt, err := redis.ParseFailoverURL(raw)
	if err != nil {
		return detail(raw, "redis://sentinel:26379?master_name=NAME&addr=sentinel2:26379", err)
	}
	if opt.MasterName == "" {
		return errors.New("a name in master_name=")
	}
	if opt.RouteByLatency || opt.RouteRandomly || opt.ReplicaOnly {
		// A heartbeat that a lagging replica has not seen is not a death.
		return errors.New("reads from the primary: none of route_by_latency, route_randomly, replica_only")
	}
	if opt.DB < 0 || slices.ContainsFunc(opt.SentinelAddrs, noAddress) {
		return errors.New("ports from 0 to 65535 and a database number from 0 up")
	}
	*r = Redis{Sentinel: opt}
	return nil
}

// detail adds the library's reason only if the URL can hold no secret: a password with an unescaped
// character may be in any part of it.
func detail(raw, expected string, err error) error {
	if strings.ContainsRune(raw, '@') || strings.Contains(raw, "%40") || strings.Contains(raw, "password") {
		return errors.New(expected + " (the reason is withheld, as it may repeat the password)")
	}
	return errors.New(expected + " (" + err.Error() + ")")
}

// mostReply is several times what any program needs of one reply: the largest are pages of scans.
// Without a bound, a value that somebody else made large would end every process that reads it.
const mostReply = 16 << 20

// A read may take as long as an acknowledgement may be delayed; shorter calls have a context.
const (
	dialTimeout = 3 * time.Second
	ioTimeout   = 10 * time.Second
)

// client makes a client of the URL's options, but: no retries, since a retried write may run twice;
// contexts honoured; deadlines everywhere. A control client has the options of package lease, and
// deadlines of at most within. Any other has a pool of its own size if pool is not 0.
func (r Redis) client(l login, control bool, within time.Duration, pool int) redis.UniversalClient {
	io, most := cmp.Or(r.Within, ioTimeout), cmp.Or(r.MostReply, mostReply)
	deadlines := func(dial *time.Duration, others ...*time.Duration) {
		*dial = min(cmp.Or(*dial, dialTimeout), io, within)
		for _, d := range others {
			*d = min(cmp.Or(*d, io), within)
		}
	}
	var o redis.Options
	if r.Single != nil {
		o = *r.Single
	}
	o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1, true, 1
	// A server that announces maintenance would make the deadlines longer.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if r.Sentinel != nil {
		f := *r.Sentinel
		f.MaxRetries, f.ContextTimeoutEnabled = o.MaxRetries, o.ContextTimeoutEnabled
		f.DialerRetries = o.DialerRetries
		deadlines(&f.DialTimeout, &f.ReadTimeout, &f.WriteTimeout, &f.PoolTimeout)
		if pool > 0 {
			f.PoolSize, f.MinIdleConns = pool, 0
		}
		if control {
			f = *lease.FailoverOptions(&f)
		}
		f.CredentialsProviderContext = l.credentials(f.Username)
		f.Dialer = l.dialer(f.TLSConfig, f.DialTimeout, most)
		return l.refused.watch(redis.NewFailoverClient(&f))
	}
	if r.Cluster != nil {
		c := *r.Cluster
		c.MaxRetries, c.ContextTimeoutEnabled = o.MaxRetries, o.ContextTimeoutEnabled
		c.DialerRetries, c.MaintNotificationsConfig = o.DialerRetries, o.MaintNotificationsConfig
		deadlines(&c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout, &c.PoolTimeout)
		if pool > 0 {
			c.PoolSize, c.MinIdleConns = pool, 0
		}
		safe := lease.ClusterOptions(&c)
		if control {
			c = *safe
		}
		c.MaxRedirects, c.ClusterStateReloadInterval = safe.MaxRedirects, safe.ClusterStateReloadInterval
		c.NewClient = safe.NewClient
		c.CredentialsProviderContext = l.credentials(c.Username)
		c.Dialer = l.dialer(c.TLSConfig, c.DialTimeout, most)
		return l.refused.watch(redis.NewClusterClient(&c))
	}
	deadlines(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	if pool > 0 {
		o.PoolSize, o.MinIdleConns = pool, 0
	}
	if control {
		o = *lease.Options(&o)
	}
	o.CredentialsProviderContext = l.credentials(o.Username)
	o.Dialer = l.dialer(o.TLSConfig, o.DialTimeout, most)
	return l.refused.watch(redis.NewClient(&o))
}

// Clients open no connection while unused.
type Clients struct {
	Data     redis.UniversalClient // for the load
	Control  redis.UniversalClient // for lease, ticks and heartbeats: no load can starve it
	Blocking redis.UniversalClient // for reads that wait, which hold up only each other

	Server   string // without credentials
	Embedded string // its address, if used
	// Unverified means that Redis' certificate is not checked.
	Unverified bool
	// Files have the credentials.
	Files []reload.Watched

	mini *miniredis.Miniredis
	ends *atomic.Pointer[time.Time] // of Redis' certificate
}

const blockingPool = 2

// blockingReply is several times the largest page of a waiting read.
const blockingReply = 1 << 20

// Open makes the clients, and starts the embedded server if it was named. Calls of the control
// client have deadlines of at most within. If a server with one address reports within two seconds
// that it is a node of a Cluster, *named names that Cluster afterwards. A server that does not
// answer is not an error: [Clients.Watch] finds out later. The error is of a file, or of the
// embedded server.
func Open(ctx context.Context, named *Redis, within time.Duration) (*Clients, error) {
	clients, _, err := open(ctx, named, within, checkCall)
	return clients, err
}

// Once is [Open] for a program that ends before [Clients.Watch] finds out. It fails if the server
// does not report in time whether it is a node of a Cluster, unless nobody may ask.
func Once(ctx context.Context, named *Redis, within time.Duration) (*Clients, error) {
	clients, unknown, err := open(ctx, named, within, cmp.Or(named.Within, ioTimeout))
	if err != nil || unknown == nil || redis.IsPermissionError(unknown) || redis.HasErrorPrefix(unknown, "unknown command") {
		return clients, err
	}
	_ = clients.Close()
	return nil, fmt.Errorf("connect: ask Redis whether it is a node of a Cluster: %w", unknown)
}

func open(
	ctx context.Context, named *Redis, within, asks time.Duration,
) (c *Clients, unknown, err error) {
	l, files, err := openLogin(named)
	if err != nil {
		return nil, nil, err
	}
	unknown = named.recognise(ctx, l, asks)
	target := *named
	c = &Clients{Server: target.String(), Files: files, Unverified: target.unverified(), ends: l.ends}
	if target.Embedded() {
		c.mini = miniredis.NewMiniRedis()
		if err := c.mini.StartAddr("127.0.0.1:0"); err != nil {
			return nil, nil, fmt.Errorf("connect: embedded Redis: %w", err)
		}
		runClock(c.mini)
		c.Embedded = c.mini.Addr()
		c.Server = "embedded at " + c.Embedded
		target = Redis{Single: &redis.Options{Addr: c.Embedded}}
	}
	c.Data = target.client(l, false, math.MaxInt64, 0)
	waits := target
	waits.MostReply = min(cmp.Or(waits.MostReply, blockingReply), blockingReply)
	c.Blocking = waits.client(l, false, math.MaxInt64, blockingPool)
	c.Control = target.client(l, true, within, 0)
	return c, unknown, nil
}

// runClock makes TTLs run: without it no heartbeat expires, and nothing dead is swept. Time passes
// between two commands, as in Redis, and by one clock: the rest of a TTL must not run by the
// monotonic one. Otherwise PEXPIRETIME of one key changes from call to call, and entries that look
// changed are not swept either.
func runClock(mini *miniredis.Miniredis) {
	wall := func() time.Time { return time.Now().Round(0) }
	mini.SetTime(wall())
	mini.ClockTTL(true)
	tick := time.NewTicker(time.Millisecond)
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				mini.SetTime(wall())
			case <-mini.Ctx.Done():
				return
			}
		}
	}()
}

// recognise makes r name its server's Cluster, or returns why the server did not answer.
func (r *Redis) recognise(ctx context.Context, l login, within time.Duration) error {
	if r.ifCluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	client := r.client(l, false, within, 1)
	defer client.Close()
	text, err := client.Info(ctx).Result()
	if err == nil && inCluster(text) {
		r.Cluster, r.Single, r.ifCluster = r.ifCluster, nil, nil
	}
	return err
}

// Close ends every connection, and the embedded server with its data.
func (c *Clients) Close() error {
	var errs []error
	for _, client := range []redis.UniversalClient{c.Data, c.Blocking, c.Control} {
		// It may have been closed before, to end calls that hung or wait.
		if err := client.Close(); !errors.Is(err, redis.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if c.mini != nil {
		c.mini.Server().Close() // first: answering while it closes makes miniredis panic
		c.mini.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("connect: close Redis clients: %w", err)
	}
	return nil
}

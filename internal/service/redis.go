package service

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/rollcall-redis/rollcall/lease"
)

// EmbeddedRedis is the REDIS_URL that names a server inside the process. It is for trying out:
// everything is gone when the process ends, no other machine sees it, and it reports neither memory
// nor evictions nor a run id, so that the checks that rest on those are off.
const EmbeddedRedis = "embedded"

// EmbeddedNotice is what log and status say wherever the embedded server is in use.
const EmbeddedNotice = "embedded Redis: for trying out only; nothing survives a restart, and no other machine can join"

// Redis says which Redis to use: one of the two, or the embedded server. The
// zero value names none.
type Redis struct {
	// Single is a server with one address.
	Single *redis.Options
	// Sentinel is a server that sentinels know, and fail over.
	Sentinel *redis.FailoverOptions

	embedded bool
}

// Embedded reports whether the server inside the process was named.
func (r Redis) Embedded() bool { return r.embedded }

// String names the server without its credentials, for logs and status.
func (r Redis) String() string {
	switch {
	case r.Single != nil:
		return r.Single.Addr + "/" + strconv.Itoa(r.Single.DB)
	case r.Sentinel != nil:
		return r.Sentinel.MasterName + "/" + strconv.Itoa(r.Sentinel.DB) + " by sentinels " + strings.Join(r.Sentinel.SentinelAddrs, ", ")
	case r.embedded:
		return EmbeddedRedis
	}
	return "none"
}

// Parse reads a REDIS_URL: a URL or [EmbeddedRedis]. Its errors say what was
// expected and repeat nothing of the URL.
func (r *Redis) Parse(raw string) error {
	switch raw {
	case "":
		return errors.New("the URL of your Redis, such as redis://host:6379/0; for trying out " + EmbeddedRedis + ", a Redis inside the process")
	case EmbeddedRedis:
		*r = Redis{embedded: true}
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil || strings.ContainsRune(raw, '#') { // what is behind it would be ignored
		// The parser's own error repeats the URL, password and all.
		return errors.New("a URL such as redis://user:password@host:6379/0, special characters of the password escaped")
	}
	if !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || u.Opaque != "" {
		return errors.New("a URL that begins with redis://, rediss:// or unix://")
	}
	query := u.Query()
	switch {
	case query.Has("master_name"):
		return r.parseSentinel(raw)
	case query.Has("addr"):
		return errors.New("a single server, or sentinels with master_name=; several addr= alone mean a Cluster, which is not supported yet")
	}
	opt, err := redis.ParseURL(raw)
	if err != nil {
		return detail(raw, "redis://user:password@host:port/database", err)
	}
	if opt.DB < 0 || opt.Network == "tcp" && address(opt.Addr) != nil {
		return errors.New("a port from 0 to 65535 and a database number from 0 up")
	}
	*r = Redis{Single: opt}
	return nil
}

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
	if opt.DB < 0 || slices.ContainsFunc(opt.SentinelAddrs, func(a string) bool { return address(a) != nil }) {
		return errors.New("ports from 0 to 65535 and a database number from 0 up")
	}
	*r = Redis{Sentinel: opt}
	return nil
}

// detail adds the library's reason to what was expected, but only if the URL
// can hold no secret: a password with an unescaped character ends up in any
// part of a URL, and so in any reason.
func detail(raw, expected string, err error) error {
	if strings.ContainsRune(raw, '@') || strings.Contains(raw, "%40") || strings.Contains(raw, "password") {
		return errors.New(expected + " (the reason is withheld, as it may repeat the password)")
	}
	return errors.New(expected + " (" + err.Error() + ")")
}

// Deadlines of a client that carries load, where the URL does not set its own. Reads may
// take as long as an acknowledgement may be delayed; a call that should take less has a
// context, and the client honours it.
const (
	dialTimeout = 3 * time.Second
	ioTimeout   = 10 * time.Second
)

// client makes a client with the options of the URL, but: no retries, since a retried write may run
// twice; contexts honoured; deadlines everywhere. Then change may change them.
func (r Redis) client(change func(*redis.Options)) *redis.Client {
	var o redis.Options
	f := r.Sentinel
	if f == nil {
		o = *r.Single
	} else { // those that we or lease.Options set
		o = redis.Options{
			DialTimeout: f.DialTimeout, ReadTimeout: f.ReadTimeout, WriteTimeout: f.WriteTimeout, PoolTimeout: f.PoolTimeout,
			PoolSize: f.PoolSize, PipelinePoolSize: f.PipelinePoolSize, MaxConcurrentDials: f.MaxConcurrentDials,
			MaxActiveConns: f.MaxActiveConns, MinIdleConns: f.MinIdleConns, MaxIdleConns: f.MaxIdleConns,
		}
	}
	o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1, true, 1
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = cmp.Or(o.ReadTimeout, ioTimeout), cmp.Or(o.WriteTimeout, ioTimeout), cmp.Or(o.PoolTimeout, ioTimeout)
	// A server that announces maintenance would stretch the deadlines.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	change(&o)
	if f == nil {
		return redis.NewClient(&o)
	}
	c := *f
	c.MaxRetries, c.ContextTimeoutEnabled, c.DialerRetries = o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries
	c.DialTimeout, c.ReadTimeout, c.WriteTimeout, c.PoolTimeout = o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout
	c.PoolSize, c.PipelinePoolSize, c.MaxConcurrentDials = o.PoolSize, o.PipelinePoolSize, o.MaxConcurrentDials
	c.MaxActiveConns, c.MinIdleConns, c.MaxIdleConns = o.MaxActiveConns, o.MinIdleConns, o.MaxIdleConns
	return redis.NewFailoverClient(&c)
}

// Clients are a program's ways to Redis. A client that is not used opens no connection.
type Clients struct {
	Data     *redis.Client // for the load
	Control  *redis.Client // for lease, ticks and heartbeats: no load can starve it
	Blocking *redis.Client // for reads that wait, which hold up nobody but themselves

	Server   string // its name, without credentials
	Embedded string // the address of the embedded server; "": it is another

	mini *miniredis.Miniredis
}

// blockingPool is enough for one reader, and for a connection that is given up.
const blockingPool = 2

// Connect makes the clients, and starts the embedded server if it was named. Calls of the control
// client have deadlines of at most within. Connect does not speak to Redis.
func Connect(target Redis, within time.Duration) (*Clients, error) {
	c := &Clients{Server: target.String()}
	if target.Embedded() {
		c.mini = miniredis.NewMiniRedis()
		// Without this its TTLs stand still, no heartbeat ever expires, and nothing
		// dead is ever swept.
		c.mini.ClockTTL(true)
		if err := c.mini.StartAddr("127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("service: embedded Redis: %w", err)
		}
		c.Embedded = c.mini.Addr()
		c.Server = "embedded at " + c.Embedded
		target = Redis{Single: &redis.Options{Addr: c.Embedded}}
	}
	c.Data = target.client(func(*redis.Options) {})
	c.Blocking = target.client(func(o *redis.Options) { o.PoolSize, o.MinIdleConns = blockingPool, 0 })
	c.Control = target.client(func(o *redis.Options) {
		o.DialTimeout, o.ReadTimeout = min(o.DialTimeout, within), min(o.ReadTimeout, within)
		o.WriteTimeout, o.PoolTimeout = min(o.WriteTimeout, within), min(o.PoolTimeout, within)
		*o = *lease.Options(o)
	})
	return c, nil
}

// Close ends every connection, and the embedded server with its data.
func (c *Clients) Close() error {
	var errs []error
	for _, client := range []*redis.Client{c.Data, c.Blocking, c.Control} {
		// It may have been closed before, to end calls that hung or wait.
		if err := client.Close(); !errors.Is(err, redis.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if c.mini != nil {
		c.mini.Close()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("service: close Redis clients: %w", err)
	}
	return nil
}

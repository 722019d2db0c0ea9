package settings

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// EmbeddedRedis is the REDIS_URL that names the server inside the process.
const EmbeddedRedis = "embedded"

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

// Deadlines of the data client, where the URL does not set its own. Reads may
// take as long as an acknowledgement may be delayed; whoever wants less gives a
// context, and the client honours it.
const (
	dialTimeout = 3 * time.Second
	ioTimeout   = 10 * time.Second
)

// ParseRedis reads a REDIS_URL: a URL or [EmbeddedRedis]. The options that it
// returns are those of a data client: retries are off, since a retried write
// may run twice, and contexts are honoured. Its errors say what was expected
// and repeat nothing of the URL.
func ParseRedis(raw string) (Redis, error) {
	switch raw {
	case "":
		return Redis{}, errors.New("the URL of your Redis, such as redis://host:6379/0; for trying out " + EmbeddedRedis + ", a Redis inside the process")
	case EmbeddedRedis:
		return Redis{embedded: true}, nil
	}
	u, err := url.Parse(raw)
	if err != nil || strings.ContainsRune(raw, '#') { // what is behind it would be ignored
		// The parser's own error repeats the URL, password and all.
		return Redis{}, errors.New("a URL such as redis://user:password@host:6379/0, special characters of the password escaped")
	}
	if !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || u.Opaque != "" {
		return Redis{}, errors.New("a URL that begins with redis://, rediss:// or unix://")
	}
	query := u.Query()
	switch {
	case query.Has("master_name"):
		return parseSentinel(raw)
	case query.Has("addr"):
		return Redis{}, errors.New("a single server, or sentinels with master_name=; several addr= alone mean a Cluster, which is not supported yet")
	}
	opt, err := redis.ParseURL(raw)
	if err != nil {
		return Redis{}, detail(raw, "redis://user:password@host:port/database", err)
	}
	if opt.DB < 0 || opt.Network == "tcp" && address(opt.Addr) != nil {
		return Redis{}, errors.New("a port from 0 to 65535 and a database number from 0 up")
	}
	opt.MaxRetries = -1
	opt.ContextTimeoutEnabled = true
	opt.DialerRetries = 1
	opt.DialTimeout = cmp.Or(opt.DialTimeout, dialTimeout)
	opt.ReadTimeout = cmp.Or(opt.ReadTimeout, ioTimeout)
	opt.WriteTimeout = cmp.Or(opt.WriteTimeout, ioTimeout)
	opt.PoolTimeout = cmp.Or(opt.PoolTimeout, ioTimeout)
	// A server that announces maintenance would stretch the deadlines.
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return Redis{Single: opt}, nil
}

func parseSentinel(raw string) (Redis, error) {
	opt, err := redis.ParseFailoverURL(raw)
	if err != nil {
		return Redis{}, detail(raw, "redis://sentinel:26379?master_name=NAME&addr=sentinel2:26379", err)
	}
	if opt.MasterName == "" {
		return Redis{}, errors.New("a name in master_name=")
	}
	if opt.RouteByLatency || opt.RouteRandomly || opt.ReplicaOnly {
		// A heartbeat that a lagging replica has not seen is not a death.
		return Redis{}, errors.New("reads from the primary: none of route_by_latency, route_randomly, replica_only")
	}
	if opt.DB < 0 || slices.ContainsFunc(opt.SentinelAddrs, func(a string) bool { return address(a) != nil }) {
		return Redis{}, errors.New("ports from 0 to 65535 and a database number from 0 up")
	}
	opt.MaxRetries = -1
	opt.ContextTimeoutEnabled = true
	opt.DialerRetries = 1
	opt.DialTimeout = cmp.Or(opt.DialTimeout, dialTimeout)
	opt.ReadTimeout = cmp.Or(opt.ReadTimeout, ioTimeout)
	opt.WriteTimeout = cmp.Or(opt.WriteTimeout, ioTimeout)
	opt.PoolTimeout = cmp.Or(opt.PoolTimeout, ioTimeout)
	return Redis{Sentinel: opt}, nil
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

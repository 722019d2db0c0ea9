package registry

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/lease"
)

const (
	// DefaultHeartbeatInterval is what a zero Config.HeartbeatInterval means.
	DefaultHeartbeatInterval = 30 * time.Second
	// DefaultHeartbeatTTL is what a zero Config.HeartbeatTTL means.
	DefaultHeartbeatTTL = 90 * time.Second

	defaultDrain = 10 * time.Second
	// leastInterval is what Redis counts expiries by.
	leastInterval = time.Millisecond
	// mostTTL: the witness takes a GRACE of more than two days for no setting (guard/settings.lua).
	mostTTL = 24 * time.Hour
)

// Config of a Registry. Zero means default.
type Config struct {
	// Client carries registrations, releases, heals and look-ups. Required: a *redis.Client with
	// MaxRetries -1 and ContextTimeoutEnabled, or New refuses it. A write that the client repeats
	// could land after the write that mended it.
	Client redis.UniversalClient
	// Control carries the heartbeat, so that a storm cannot starve it: a client made from
	// lease.Options (behind Sentinel lease.FailoverOptions). Required. Both must be at the same
	// primary and database: see ErrClientsDiffer.
	Control redis.UniversalClient
	// Instance names this replica: at most 200 bytes of printable UTF-8, without spaces and "/". The
	// janitor takes an id with control characters, or of more than 256 bytes, for rubbish, and never
	// sweeps what names it. Empty: host name and a random part, unique per process start. If
	// an operator fixes it the newest process of that name wins, and hands back at start what its
	// former life left.
	Instance string
	// Unique: no earlier process had this Instance, as one of UniqueInstance. Then Run looks for
	// nothing that it left. An empty Instance is unique.
	Unique bool
	// Layout names the keys; all replicas and readers share it. On a Redis Cluster its Prefix has a
	// hash tag.
	Layout Layout
	// HeartbeatInterval is the time between beats (default 30s), HeartbeatTTL how long one lasts
	// (default 90s, at least three intervals: with two, one lost beat kills; at most 24h). Shorter: the dead are
	// found sooner, and a shorter stall of Redis or of this process makes it look dead. All
	// replicas must agree.
	HeartbeatInterval, HeartbeatTTL time.Duration
	// Drain is how long Run goes on beating after its context ended, for claims to be released
	// (default 10s).
	Drain time.Duration
	// OnSuperseded, if set, is told of a claim whose device has registered again here: the device
	// has a newer socket, and the one that holds the older claim is to be closed. The Register that
	// made the newer claim calls it; see there for a claim whose socket is not known yet. It must
	// not call Register, and several goroutines may call it at once.
	OnSuperseded func(older *Claim)
	// OnDisplaced, if set, is told of a device held here that another instance, owner, heard later
	// than this one did: most likely it has a newer socket there, and the one here is half open.
	// Find out, by a minute of silence say, and if it is, release its claim: only then is the
	// device routable where the entry still names this instance. A device that speaks here all the
	// same is taken back. The call comes within moments of the other's registration where Redis
	// lets this user publish and subscribe, else within one of the janitor's intervals and eleven
	// heartbeat intervals; for one claim not again within five minutes, unless the device was heard
	// here meanwhile. It must not block, and several goroutines may call it at once. Without it
	// nothing is asked about sockets here: a parked device whose entry names this instance by mistake
	// is routable again only when the socket here ends.
	OnDisplaced func(imei, owner string)
	// NoReverseIndex saves the index' memory (61 bytes an entry): a dead owner is then swept by the
	// full scan alone.
	NoReverseIndex bool
	// Logger: give it the attribute "instance", as the default, slog.Default(), gets it here.
	// Registerer nil: metrics are counted but not registered.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Namespace is what the metrics' names begin with: <namespace>_registry_failures_total,
	// _registry_devices and _registry_healed_total. Empty: nothing.
	Namespace string
}

func (c Config) withDefaults() Config {
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, DefaultHeartbeatInterval)
	c.HeartbeatTTL = cmp.Or(c.HeartbeatTTL, DefaultHeartbeatTTL)
	c.Drain = cmp.Or(c.Drain, defaultDrain)
	if c.Instance == "" {
		c.Instance, c.Unique = UniqueInstance(), true
	}
	c.Logger = cmp.Or(c.Logger, slog.Default().With("instance", c.Instance))
	return c
}

func (c Config) check() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	err := lease.CheckClient(c.Client, 0)
	wrong(err != nil, "unfit Client: %w", err)
	err = lease.CheckClient(c.Control, c.HeartbeatInterval)
	wrong(err != nil, "unfit Control: %w", err)
	_, clusterData := c.Client.(*redis.ClusterClient)
	_, clusterControl := c.Control.(*redis.ClusterClient)
	wrong((clusterData || clusterControl) && !c.Layout.OneSlot(),
		"Layout.Prefix %q has no hash tag, such as {rollcall}:, which a Redis Cluster needs", c.Layout.Prefix)
	wrong(c.HeartbeatInterval < leastInterval, "HeartbeatInterval is %s, must be at least %s",
		c.HeartbeatInterval, leastInterval)
	wrong(c.HeartbeatTTL > mostTTL, "HeartbeatTTL is %s, must be at most %s", c.HeartbeatTTL, mostTTL)
	wrong(c.HeartbeatTTL/3 < c.HeartbeatInterval, // three times the longest interval has no duration
		"HeartbeatTTL is %s, must be at least three times HeartbeatInterval (%s)",
		c.HeartbeatTTL, c.HeartbeatInterval)
	wrong(c.Drain < 0, "negative Drain: %s", c.Drain)
	wrong(c.Instance != "" && !validInstance(c.Instance),
		"bad Instance %q: at most 200 bytes of printable characters, without '/' and spaces", c.Instance)
	return errors.Join(errs...)
}

func validInstance(id string) bool {
	bad := func(c rune) bool { return c == '/' || c == ' ' || !unicode.IsPrint(c) }
	return id != "" && len(id) <= 200 && utf8.ValidString(id) && !strings.ContainsFunc(id, bad)
}

// UniqueInstance is what an empty Config.Instance becomes: the host's name and eight random hex
// digits. It is for those who have to know the id before New.
func UniqueInstance() string {
	host, err := os.Hostname()
	if err != nil || !validInstance(host) || len(host) > 64 {
		host = "instance"
	}
	return fmt.Sprintf("%s-%08x", host, rand.Uint32())
}

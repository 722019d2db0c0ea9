package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting is one row of the table: a name, what stands if nobody sets it, what
// it means, and how its text becomes a field.
type setting struct {
	name     string // of the environment variable; the flag is derived
	def      string // in the same syntax as a value; parsed like one
	help     string
	required bool // there is no default
	secret   bool // the value appears nowhere
	toggle   bool // the flag alone means true
	// set stores a value that it understands; its error says what was expected,
	// and does not repeat the value.
	set func(*Settings, string) error
}

// flag is the setting's name on the command line, without dashes.
func (s *setting) flag() string {
	return strings.ReplaceAll(strings.ToLower(s.name), "_", "-")
}

// leastShare is janitor.LeastShare: no package below imports the janitor.
const leastShare = 0.005

const (
	janitorInterval   = "JANITOR_INTERVAL"
	janitorIntervalMS = "JANITOR_INTERVAL_MS"

	ingestTLSAddr      = "INGEST_TLS_ADDR"
	ingestTLSCert      = "INGEST_TLS_CERT"
	ingestTLSKey       = "INGEST_TLS_KEY"
	ingestProxyAddr    = "INGEST_PROXY_ADDR"
	ingestProxyTrusted = "INGEST_PROXY_TRUSTED"
)

// table is every setting there is, in the order in which help shows them.
var table = []setting{
	{name: "REDIS_URL", secret: true, required: true,
		help: "redis://, rediss:// or unix://; with master_name= Sentinel (user and password before the @ are then the sentinels', username= and password= the servers'); embedded: a Redis inside this process, for trying out",
		set: func(s *Settings, v string) (err error) {
			s.Redis, err = ParseRedis(v)
			return err
		}},
	text("INSTANCE_ID", "", "name of this replica; empty: host name and a random part, new at every start",
		func(s *Settings) *string { return &s.InstanceID }, instanceID),
	text("INGEST_ADDR", ":5027", "where devices connect; off: not in plain; with INGEST_TLS_ADDR and INGEST_PROXY_ADDR off too: no device sockets, only the janitor",
		func(s *Settings) *string { return &s.IngestAddr }, addressOrOff),
	number("INGEST_MAX_CONNS", "100000", "most device sockets at once; further ones wait in the backlog",
		func(s *Settings) *int { return &s.IngestMaxConns }, 1, 10_000_000),
	text(ingestTLSAddr, Off, "where devices connect by TLS; off: nowhere",
		func(s *Settings) *string { return &s.IngestTLSAddr }, addressOrOff),
	text(ingestTLSCert, "", "file of the certificate, and of those that lead from it to its root, in PEM; read again when it changes",
		func(s *Settings) *string { return &s.IngestTLSCert }, anything),
	text(ingestTLSKey, "", "file of its key, in PEM; read again when it changes",
		func(s *Settings) *string { return &s.IngestTLSKey }, anything),
	text(ingestProxyAddr, Off, "where load balancers connect that speak the PROXY protocol, in front of devices; off: nowhere",
		func(s *Settings) *string { return &s.IngestProxyAddr }, addressOrOff),
	{name: ingestProxyTrusted, help: "addresses of those load balancers, CIDRs separated by commas; connections from elsewhere are closed",
		set: func(s *Settings, v string) error {
			for part := range strings.SplitSeq(v, ",") {
				prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
				if err != nil {
					return errors.New("CIDRs separated by commas, such as 10.0.0.0/8,192.0.2.7/32")
				}
				s.IngestProxyTrusted = append(s.IngestProxyTrusted, prefix.Masked().String())
			}
			return nil
		}},
	{name: "DEVICE_AUTHORITY", def: Everybody, help: "which devices are served. everybody: all with a well-formed IMEI; set: members of the Redis set devices:allowed",
		set: func(s *Settings, v string) error {
			s.DeviceAuthority = v
			if v != Everybody && v != AllowedSet {
				return errors.New("everybody or set")
			}
			return nil
		}},
	text("HTTP_ADDR", "127.0.0.1:8080", "where metrics, health, status and admin are served",
		func(s *Settings) *string { return &s.HTTPAddr }, address),
	{name: "ADMIN_TOKEN", secret: true,
		help: "bearer token for sweep, pause, resume and resign, of at least 16 characters; empty: those are off",
		set: func(s *Settings, v string) error {
			s.AdminToken = Secret(v)
			return token(v)
		}},
	duration("HEARTBEAT_INTERVAL", "30s", "time between two heartbeats",
		func(s *Settings) *time.Duration { return &s.HeartbeatInterval }, 50*time.Millisecond, time.Hour),
	duration("HEARTBEAT_TTL", "90s", "how long a heartbeat stands; at least three times the interval",
		func(s *Settings) *time.Duration { return &s.HeartbeatTTL }, 150*time.Millisecond, 24*time.Hour),
	duration(janitorInterval, "60s", "time between two audits of the whole registry",
		func(s *Settings) *time.Duration { return &s.JanitorInterval }, 50*time.Millisecond, 24*time.Hour),
	{name: janitorIntervalMS, help: "the same in milliseconds, for deployments that set it so; not both",
		set: func(s *Settings, v string) error {
			ms, err := strconv.ParseInt(v, 10, 64)
			if err != nil || ms < 50 || ms > 24*time.Hour.Milliseconds() {
				return errors.New("a whole number of milliseconds from 50 to 86400000")
			}
			s.JanitorInterval = time.Duration(ms) * time.Millisecond
			return nil
		}},
	duration("JANITOR_LEASE_TTL", "15s", "how long leadership outlives a leader that died",
		func(s *Settings) *time.Duration { return &s.JanitorLeaseTTL }, 300*time.Millisecond, 10*time.Minute),
	number("JANITOR_SCAN_COUNT", "1000", "entries a page of an audit",
		func(s *Settings) *int { return &s.JanitorScanCount }, 1, 20_000),
	number("JANITOR_DELETE_BATCH", "500", "entries a guarded delete",
		func(s *Settings) *int { return &s.JanitorDeleteBatch }, 1, 1000),
	number("JANITOR_EXISTS_CONCURRENCY", "8", "bound on liveness checks under way",
		func(s *Settings) *int { return &s.JanitorExistsConcurrency }, 1, 1024),
	{name: "JANITOR_REDIS_SHARE", def: "0.25", help: "most of Redis' time that sweeping may take",
		set: func(s *Settings, v string) error {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil || !(f >= leastShare && f <= 1) { // written so that NaN fails
				return fmt.Errorf("a number from %v to 1; with less an audit of a million entries would not end in time", leastShare)
			}
			s.JanitorRedisShare = f
			return nil
		}},
	boolean("JANITOR_DRY_RUN", "false", "judge and report, delete nothing",
		func(s *Settings) *bool { return &s.JanitorDryRun }),
	boolean("REGISTRY_REVERSE_INDEX", "true", "keep the set of devices of each instance",
		func(s *Settings) *bool { return &s.ReverseIndex }),
	{name: "TELEMETRY_MAXLEN", def: "1000000", help: "approximate cap of the telemetry stream, in entries; dead letters: at most 10,000, or this if it is less",
		set: func(s *Settings, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 1 || n > 1e12 {
				return errors.New("a whole number from 1 to 1000000000000")
			}
			s.TelemetryMaxLen = n
			return nil
		}},
	duration("SHUTDOWN_GRACE", "10s", "most time for a graceful stop; a second SIGTERM leaves at once",
		func(s *Settings) *time.Duration { return &s.ShutdownGrace }, 100*time.Millisecond, 10*time.Minute),
	{name: "LOG_LEVEL", def: "info", help: "debug, info, warn or error",
		set: func(s *Settings, v string) error {
			// slog would also take "INFO+3"; one spelling is enough.
			if !slices.Contains([]string{"debug", "info", "warn", "error"}, v) {
				return errors.New("debug, info, warn or error")
			}
			return s.LogLevel.UnmarshalText([]byte(v))
		}},
	{name: "LOG_FORMAT", def: "text", help: "text or json",
		set: func(s *Settings, v string) error {
			s.LogJSON = v == "json"
			if v != "json" && v != "text" {
				return errors.New("text or json")
			}
			return nil
		}},
}

func text(name, def, help string, field func(*Settings) *string, check func(string) error) setting {
	return setting{name: name, def: def, help: help, set: func(s *Settings, v string) error {
		*field(s) = v
		return check(v)
	}}
}

func number(name, def, help string, field func(*Settings) *int, least, most int) setting {
	return setting{name: name, def: def, help: help, set: func(s *Settings, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > most {
			return fmt.Errorf("a whole number from %d to %d", least, most)
		}
		*field(s) = n
		return nil
	}}
}

func duration(name, def, help string, field func(*Settings) *time.Duration, least, most time.Duration) setting {
	return setting{name: name, def: def, help: help, set: func(s *Settings, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least || d > most {
			return fmt.Errorf("a duration with its unit, such as 30s or 1m30s, from %v to %v", least, most)
		}
		*field(s) = d
		return nil
	}}
}

func boolean(name, def, help string, field func(*Settings) *bool) setting {
	return setting{name: name, def: def, help: help, toggle: true, set: func(s *Settings, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("true or false")
		}
		*field(s) = b
		return nil
	}}
}

// instanceID accepts what can stand in a key, in the lease's value (which a
// slash would cut in two) and in a metric's label without surprises.
func instanceID(v string) error {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:", r)
	}
	if len(v) > 128 || strings.ContainsFunc(v, func(r rune) bool { return !ok(r) }) {
		return errors.New("at most 128 letters, digits, '-', '_', '.' or ':'")
	}
	return nil
}

func address(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("host:port, or :port for every interface")
	}
	return nil
}

func anything(string) error { return nil }

func addressOrOff(v string) error {
	if v != Off && address(v) != nil {
		return errors.New("host:port, :port for every interface, or off")
	}
	return nil
}

// leastToken is the fewest characters of a token that cannot be guessed.
const leastToken = 16

// token accepts what a client can send in an Authorization header; a trailing
// line break from a secrets file would otherwise lock every administrator out.
func token(v string) error {
	if len(v) < leastToken {
		return fmt.Errorf("at least %d characters, so that nobody guesses it; openssl rand -hex 16 makes some", leastToken)
	}
	if len(v) > 1024 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("visible ASCII characters without spaces or line breaks, at most 1024")
	}
	return nil
}

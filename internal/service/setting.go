package service

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is a row of a command's table.
type Setting struct {
	// Name in the environment. The flag is made of it: HEARTBEAT_TTL is --heartbeat-ttl. A name in
	// lower case is a flag alone.
	Name string
	// Default in the syntax of a value. If it is empty nothing is stored.
	Default string
	// Meaning is for -h and the page, Consequence for the page alone: what an operator should know
	// before he changes the setting. Both are Markdown.
	Meaning, Consequence string
	// Required: there is no default.
	Required bool
	// Secret: the value appears in no fault and no log.
	Secret bool
	// Switch: the flag alone means true.
	Switch bool
	// Value stores a text that it understands. Its error says what was expected, and does not
	// repeat the text.
	Value func(text string) error
	// Shown, if not nil, is what logs say of it after it was stored.
	Shown func() string
}

// Off is the value of an address at which nobody listens.
const Off = "off"

func (s Setting) isFlagAlone() bool { return s.Name == strings.ToLower(s.Name) }

// flag is the setting's name on the command line, without dashes.
func (s Setting) flag() string { return strings.ReplaceAll(strings.ToLower(s.Name), "_", "-") }

// defaultText is the default as help and page show it.
func (s Setting) defaultText() string {
	switch {
	case s.Required:
		return "none, required"
	case s.Default == "":
		return "empty"
	}
	return s.Default
}

// Text takes any text that the checks accept.
func Text(p *string, checks ...func(string) error) func(string) error {
	return func(v string) error {
		*p = v
		for _, check := range checks {
			if err := check(v); err != nil {
				return err
			}
		}
		return nil
	}
}

// Number takes a whole number; least must not be negative.
func Number[T int | int64 | uint64](p *T, least, most T) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil || n < uint64(least) || n > uint64(most) {
			return fmt.Errorf("a whole number from %d to %d", least, most)
		}
		*p = T(n)
		return nil
	}
}

// Share takes a number from least to 1.
func Share(p *float64, least float64) func(string) error {
	return func(v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f >= least && f <= 1) { // written so that NaN fails
			return fmt.Errorf("a number from %v to 1", least)
		}
		*p = f
		return nil
	}
}

// Duration takes a duration with its unit.
func Duration(p *time.Duration, least, most time.Duration) func(string) error {
	return func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < least || d > most {
			return fmt.Errorf("a duration with its unit, such as 30s or 1m30s, from %v to %v", least, most)
		}
		*p = d
		return nil
	}
}

// Bool takes true or false.
func Bool(p *bool) func(string) error {
	return func(v string) (err error) {
		if *p, err = strconv.ParseBool(v); err != nil {
			return errors.New("true or false")
		}
		return nil
	}
}

// OneOf takes one of these words, at least two.
func OneOf(p *string, words ...string) func(string) error {
	last := len(words) - 1
	return Text(p, func(v string) error {
		if !slices.Contains(words, v) {
			return errors.New(strings.Join(words[:last], ", ") + " or " + words[last])
		}
		return nil
	})
}

// Address takes host:port.
func Address(p *string) func(string) error { return Text(p, address) }

// AddressOrOff takes host:port or [Off].
func AddressOrOff(p *string) func(string) error {
	return Text(p, func(v string) error {
		if v != Off && address(v) != nil {
			return errors.New("host:port, :port for every interface, or off")
		}
		return nil
	})
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

// Seed is the row of a seed, which is drawn unless somebody gives it.
func Seed(p *uint64) Setting {
	return Setting{
		Name: "seed", Default: "drawn", Meaning: "number that decides what is drawn",
		Value: func(v string) (err error) {
			if v == "drawn" {
				*p = rand.Uint64()
			} else if *p, err = strconv.ParseUint(v, 10, 64); err != nil {
				return errors.New("a whole number")
			}
			return nil
		},
	}
}

// Secret is a string that prints as whether it is set, so that it can stand in a struct that is
// logged.
type Secret string

// String says whether the secret is set, and nothing else of it.
func (s Secret) String() string {
	if s == "" {
		return "(empty)"
	}
	return "(set)"
}

// GoString keeps %#v from printing what String hides.
func (s Secret) GoString() string { return s.String() }

// MarshalText keeps JSON and other encoders from writing what String hides.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Base are the settings that every program has that serves.
type Base struct {
	Redis         Redis
	InstanceID    string // empty: the registry chooses one
	HTTPAddr      string
	AdminToken    Secret // empty: requests that change something are off
	ShutdownGrace time.Duration
	LogLevel      slog.Level
	LogFormat     string
}

// Table returns the rows of the base, which are stored in b.
func (b *Base) Table() []Setting {
	return []Setting{
		{Name: "REDIS_URL", Secret: true, Required: true, Value: b.Redis.Parse,
			Shown: func() string { return b.Redis.String() },
			Meaning: "`redis://`, `rediss://` (TLS) or `unix://`. With `master_name=` and `addr=`: " +
				"Sentinel; user and password before the @ are then the sentinels', `username=` and " +
				"`password=` the servers'. `embedded`: a Redis inside the process, for trying out.",
			Consequence: "**Never** set `embedded` in production: each replica would be alone with its " +
				"own registry, and lose it on restart."},
		{Name: "INSTANCE_ID", Value: Text(&b.InstanceID, instanceID),
			Meaning: "Names this replica in the registry. Empty: host name and a random part, new at " +
				"every start.",
			Consequence: "If you fix it (StatefulSet), the newest process of that name wins, and reads " +
				"the whole registry once at its start, to hand back what its former life left there: half a " +
				"second of Redis' time for a million entries, once for each replica. At most 128 letters, " +
				"digits, `-`, `_`, `.` or `:`. **Never** give two running replicas the same one: each start " +
				"ends the other."},
		{Name: "HTTP_ADDR", Default: "127.0.0.1:8080", Value: Address(&b.HTTPAddr),
			Meaning: "Where metrics, health, status and admin are served, in plain HTTP.",
			Consequence: "In a container set `:8080`, or neither probes nor Prometheus reach it. " +
				"**Never** open it to the world."},
		{Name: "ADMIN_TOKEN", Secret: true, Value: func(v string) error { b.AdminToken = Secret(v); return token(v) },
			Meaning: "Bearer token for sweep, pause, resume and resign, of at least 16 characters. " +
				"Empty: those are off (403).",
			Consequence: "`openssl rand -hex 16` makes some."},
		{Name: "SHUTDOWN_GRACE", Default: "10s", Value: Duration(&b.ShutdownGrace, 100*time.Millisecond, 10*time.Minute),
			Meaning: "Most time for a graceful stop. A second SIGTERM leaves at once."},
		{Name: "LOG_LEVEL", Default: "info", Meaning: "`debug`, `info`, `warn` or `error`.",
			Value: func(v string) error {
				// slog would also take "INFO+3"; one spelling is enough.
				if err := OneOf(new(string), "debug", "info", "warn", "error")(v); err != nil {
					return err
				}
				return b.LogLevel.UnmarshalText([]byte(v))
			},
			Consequence: "At `debug` there is a line for each pass, so one a second on the leader, and " +
				"for each device socket that ends."},
		{Name: "LOG_FORMAT", Default: "text", Value: OneOf(&b.LogFormat, "text", "json"), Meaning: "`text` or `json`."},
	}
}

// instanceID accepts what can stand in a key, in the lease's value (which a slash would cut in two)
// and in a metric's label without surprises.
func instanceID(v string) error {
	const allowed = "0123456789-_.:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if len(v) > 128 || strings.ContainsFunc(v, func(r rune) bool { return !strings.ContainsRune(allowed, r) }) {
		return errors.New("at most 128 letters, digits, '-', '_', '.' or ':'")
	}
	return nil
}

// leastToken is the fewest characters of a token that cannot be guessed.
const leastToken = 16

// token accepts what a client can send in an Authorization header; a trailing line break from a
// secrets file would otherwise lock every administrator out.
func token(v string) error {
	if len(v) < leastToken {
		return fmt.Errorf("at least %d characters, so that nobody guesses it; openssl rand -hex 16 makes some", leastToken)
	}
	if len(v) > 1024 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("visible ASCII characters without spaces or line breaks, at most 1024")
	}
	return nil
}

package service

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/reload"
)

// Base are the settings that every program has that serves.
type Base struct {
	Redis         Redis
	InstanceID    string // chosen by Serving if none was given
	Unique        bool   // it was: no other process has had it
	HTTPAddr      string
	AdminToken    Secret // as at the start; empty: requests that change something are off
	ShutdownGrace time.Duration
	LogLevel      slog.Level
	LogFormat     string

	adminTokenFile string
}

// Table returns the rows of the base, which are stored in b.
func (b *Base) Table() []Setting {
	return slices.Concat(b.RedisTable(), []Setting{
		{Name: "INSTANCE_ID", Value: Text(&b.InstanceID, instanceID),
			Meaning: "Names this replica in the registry. Empty: host name and a random part, new at " +
				"every start.",
			Consequence: "If you fix it (StatefulSet), the newest process of that name wins, and reads " +
				"the whole registry once at its start, to hand back what its former life left there: " +
				"half a second of Redis' time for a million entries, once for each replica. At most 128 " +
				"letters, digits, `-`, `_`, `.` or `:`. **Never** give two running replicas the same " +
				"one: each start ends the other."},
		{Name: "HTTP_ADDR", Default: "127.0.0.1:8080", Value: Address(&b.HTTPAddr),
			Meaning: "Where metrics, health, status and admin are served, in plain HTTP.",
			Consequence: "In a container set `:8080`, or neither probes nor Prometheus reach it. " +
				"**Never** open it to the world."},
	}, b.TokenTable(), []Setting{
		{Name: "SHUTDOWN_GRACE", Default: "10s",
			Value:   Duration(&b.ShutdownGrace, 100*time.Millisecond, 10*time.Minute),
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
		{Name: "LOG_FORMAT", Default: "text", Value: OneOf(&b.LogFormat, "text", "json"),
			Meaning: "`text` or `json`."},
	})
}

// RedisTable returns the rows about Redis, REDIS_URL first.
func (b *Base) RedisTable() []Setting {
	return append([]Setting{
		{Name: "REDIS_URL", Secret: true, Required: true,
			Value: func(v string) error { return b.Redis.Parse(v) },
			Shown: func() string { return b.Redis.String() },
			Meaning: "`redis://`, `rediss://` (TLS) or `unix://`. With `master_name=` and `addr=`: " +
				"Sentinel; user and password before the @ are then the sentinels', `username=` and " +
				"`password=` the servers'. With `addr=` alone: a Redis Cluster, " +
				"`redis://host:6379?addr=host2:6379`; one address will do while that node answers at the " +
				"start. `embedded`: a Redis inside the process, for trying out.",
			Consequence: "**Never** set `embedded` in production: each replica would be alone with its " +
				"own registry, and lose it on restart."},
	}, b.Redis.fileTable()...)
}

// TokenTable returns the rows of the administrator's token.
func (b *Base) TokenTable() []Setting {
	file := File(&b.adminTokenFile, "ADMIN_TOKEN_FILE", func(path string) error {
		v, err := reload.Read(tokenLine, path)
		b.AdminToken = Secret(v)
		return err
	})
	file.Meaning = "File of the same, in its place. It is read again when it changes; no restart."
	file.Consequence = "A token that is too short, or a file that cannot be read, leaves the former token " +
		"standing, with a warning and `settings_file_failing`; at start it is a failure."
	file.Check = func(in *Input) { in.NotBoth("ADMIN_TOKEN", "ADMIN_TOKEN_FILE") }
	return []Setting{
		{Name: "ADMIN_TOKEN", Secret: true,
			Value: func(v string) error { b.AdminToken = Secret(v); return token(v) },
			Meaning: "Bearer token for sweep, pause, resume and resign, of at least 16 characters. " +
				"Empty: those are off (403).",
			Consequence: "`openssl rand -hex 16` makes some."},
		file,
	}
}

// Token returns the administrator's token as it is now, and the file in which it stands, if it
// does, to be watched.
func (b *Base) Token() (now func() string, file []reload.Watched, err error) {
	if b.adminTokenFile == "" {
		return func() string { return string(b.AdminToken) }, nil, nil
	}
	f, err := reload.Open("ADMIN_TOKEN_FILE", tokenLine, b.adminTokenFile)
	if err != nil {
		return nil, nil, fmt.Errorf("service: %w", err)
	}
	return f.Get, []reload.Watched{f}, nil
}

// tokenLine is the token that stands in a file.
func tokenLine(texts []string) (string, error) {
	v, err := reload.Line(texts)
	if err == nil {
		err = token(v)
	}
	if err != nil {
		return "", err
	}
	return v, nil
}

// instanceID accepts what is safe in a key, in the lease's value (which has a slash behind it) and
// in a metric's label.
func instanceID(v string) error {
	const allowed = "0123456789-_.:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if len(v) > 128 || strings.Trim(v, allowed) != "" {
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
		return fmt.Errorf("at least %d characters, so that nobody guesses it; "+
			"openssl rand -hex 16 makes some", leastToken)
	}
	if len(v) > 1024 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("visible ASCII characters without spaces or line breaks, at most 1024")
	}
	return nil
}

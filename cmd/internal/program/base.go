package program

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
)

// Base has the settings of every program that serves.
type Base struct {
	Redis         connect.Redis
	InstanceID    string // chosen by Serving if not given
	Unique        bool   // chosen so: no other process has had it
	HTTPAddr      string
	HTTPHosts     []string   // further names
	AdminToken    cli.Secret // at the start; empty: nothing can be changed
	ShutdownGrace time.Duration
	LogLevel      slog.Level
	LogFormat     string

	adminTokenFile string
}

// Table returns the rows, which are stored in b.
func (b *Base) Table() []cli.Setting {
	return slices.Concat(b.Redis.Table(), []cli.Setting{
		{Name: "INSTANCE_ID", Value: cli.Text(&b.InstanceID, instanceID),
			Meaning: "Name of this replica. Empty: host name and a random part, new at every start.",
			Consequence: "If fixed (StatefulSet), the newest process of that name wins, and reads the " +
				"whole registry once. At most 128 letters, digits, `-`, `_`, `.` or `:`. **Never** give two " +
				"running replicas the same one: each start ends the other."},
		{Name: "HTTP_ADDR", Default: "127.0.0.1:8080", Value: cli.Address(&b.HTTPAddr),
			Meaning: "Where metrics, health, status and admin are served, in plain HTTP.",
			Consequence: "In a container set `:8080`. " +
				"**Never** open it to the world."},
		{Name: "HTTP_HOSTS", Value: b.hosts,
			Meaning: "Host names of an Ingress or proxy in front, with commas. Addresses, names without a dot, " +
				"the host's own and `.svc`, `.internal`, `.local` need not be named. `*`: any name.",
			Consequence: "Another name gets 421, so that no foreign page can read this one in your browser."},
	}, b.TokenTable(), []cli.Setting{
		{Name: "SHUTDOWN_GRACE", Default: "10s",
			Value:   cli.Duration(&b.ShutdownGrace, 100*time.Millisecond, 10*time.Minute),
			Meaning: "Most time for a graceful stop. A second SIGTERM leaves at once."},
		{Name: "LOG_LEVEL", Default: "info", Meaning: "`debug`, `info`, `warn` or `error`.",
			Value: func(v string) error {
				// slog would also take "INFO+3"; one spelling is enough.
				if err := cli.OneOf(new(string), "debug", "info", "warn", "error")(v); err != nil {
					return err
				}
				return b.LogLevel.UnmarshalText([]byte(v))
			},
			Consequence: "`debug`: a line for each pass, one a second, and for each device socket that ends."},
		{Name: "LOG_FORMAT", Default: "text", Value: cli.OneOf(&b.LogFormat, "text", "json"),
			Meaning: "`text` or `json`."},
	})
}

func (b *Base) hosts(v string) error {
	b.HTTPHosts = strings.Split(v, ",")
	for _, name := range b.HTTPHosts {
		if name != "*" && !hostName.MatchString(name) {
			return errors.New("names such as rollcall.example.com, without ports, separated by commas; or *")
		}
	}
	return nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// TokenTable returns the rows of the administrator's token.
func (b *Base) TokenTable() []cli.Setting {
	file := cli.File(&b.adminTokenFile, "ADMIN_TOKEN_FILE", func(path string) error {
		tokens, err := reload.Read(tokenLines, path)
		if err == nil {
			b.AdminToken = cli.Secret(tokens[0])
		}
		return err
	})
	file.Meaning = "File of the same, in its place, read again when it changes. A second line is a " +
		"second token, for while clients change over."
	file.Check = func(in *cli.Input) { in.NotBoth("ADMIN_TOKEN", "ADMIN_TOKEN_FILE") }
	return []cli.Setting{
		{Name: "ADMIN_TOKEN", Secret: true, Bare: true,
			Value: func(v string) error { b.AdminToken = cli.Secret(v); return token(v) },
			Meaning: "Bearer token for sweep, pause, resume and resign, of at least 16 characters. " +
				"Empty: those are off (403).",
			Consequence: "`openssl rand -hex 16` makes some."},
		file,
	}
}

// Tokens returns the administrator's current tokens, up to two, and the file that they are in, if
// there is one.
func (b *Base) Tokens() (now func() []string, file []reload.Watched, err error) {
	if b.adminTokenFile == "" {
		var tokens []string
		if b.AdminToken != "" {
			tokens = []string{string(b.AdminToken)}
		}
		return func() []string { return tokens }, nil, nil
	}
	f, err := reload.Open("ADMIN_TOKEN_FILE", tokenLines, b.adminTokenFile)
	if err != nil {
		return nil, nil, fmt.Errorf("program: %w", err)
	}
	return f.Get, []reload.Watched{f}, nil
}

func tokenLines(texts []string) ([]string, error) {
	tokens := strings.Split(strings.TrimRight(texts[0], "\r\n"), "\n")
	if len(tokens) > 2 {
		return nil, errors.New("expected a token, or two lines of one each")
	}
	for i := range tokens {
		tokens[i] = strings.TrimSuffix(tokens[i], "\r")
		if err := token(tokens[i]); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// instanceID accepts what is safe in a key, in the lease's value (where a slash follows) and in a
// metric's label.
func instanceID(v string) error {
	const allowed = "0123456789-_.:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if len(v) > 128 || strings.Trim(v, allowed) != "" {
		return errors.New("at most 128 letters, digits, '-', '_', '.' or ':'")
	}
	return nil
}

// leastToken: fewer characters can be guessed.
const leastToken = 16

// token accepts what an Authorization header can carry. A trailing line break from a secrets file
// would lock every administrator out.
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

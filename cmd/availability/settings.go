package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
)

type settings struct {
	program.Base
	program.Fleet

	databaseURL, jwtSecret cli.Secret // jwtSecret at the start: the first one
	databasePasswordFile   string
	jwtSecretFile          string
	jwks                   cli.Secret // may contain a password, or a key in its query
	jwtAudience, jwtIssuer string
	migrate                string // on or off
	operatorAddr           string // empty: HTTPAddr
	endings                map[string]string

	offlineInterval, reconcileInterval, mirrorInterval time.Duration
}

// prefixes of our own variables: one of these without a setting was mistyped.
var prefixes = []string{
	"AVAILABILITY_", "HEARTBEAT_", "MITRA_AUTO_OFFLINE_", "VALKEY_ONLINE_", "JWT_HS256_", "JWT_JWKS_",
	"JWT_AUDIENCE", "JWT_ISSUER", "SESSION_END_",
}

func (s *settings) table() []cli.Setting {
	base := s.Base.Table()
	for i := range base {
		if base[i].Name == "HTTP_ADDR" {
			base[i].Meaning = "Where the API is served, in plain HTTP; beside it, unless OPERATOR_ADDR is set, " +
				"metrics, status page and admin."
			base[i].Consequence = "In a container set `:8080`. **Never** open it to the world without OPERATOR_ADDR."
		}
	}
	fleet := s.Fleet.Table("AVAILABILITY", program.Defaults{
		Interval: "10s", TTL: "30s",
		Prefixes: "The channel `config:invalidate` begins so, too. On a Redis Cluster it needs a hash " +
			"tag, such as `{availability}:`. **Never** share a prefix with another program of this project.",
	})
	fleet = slices.DeleteFunc(fleet, func(row cli.Setting) bool { // its sweeps have intervals and batches of their own
		return !slices.Contains([]string{"HEARTBEAT_INTERVAL", "HEARTBEAT_TTL", "AVAILABILITY_PREFIX",
			"AVAILABILITY_REDIS_SHARE", "AVAILABILITY_LEASE_TTL"}, row.Name)
	})
	return slices.Concat(base, []cli.Setting{
		{Name: "OPERATOR_ADDR", Value: cli.Address(&s.operatorAddr),
			Meaning: "Where metrics, status page and admin are served; HTTP_ADDR then has the API, `/healthz` " +
				"and `/readyz` alone. Empty: all are on HTTP_ADDR.",
			Consequence: "Set it wherever others than operators reach HTTP_ADDR. **Never** open it to the world."},
		{Name: "DATABASE_URL", Secret: true, Required: true, Value: s.parseDatabase,
			Meaning: "`postgres://user:password@host:5432/database`, of PostgreSQL 15 or newer. " +
				"`pool_max_conns=` in it is the number of connections: 4, or one a CPU if those are more. The " +
				"feed has one beside them, comparisons and sweeps three at most.",
			Consequence: "All replicas together should leave the server connections for others."},
		s.databasePasswordRow(),
		{Name: "MIGRATE", Default: "on", Value: cli.OneOf(&s.migrate, "on", "off"),
			Meaning: "`on`: a replica makes what the schema lacks at its start. `off`: it ends, and names it.",
			Consequence: "With `off` a role [with the right to create](availability.md#rights) runs " +
				"`availability migrate`, before the first start and each newer version."},
		{Name: "JWT_HS256_SECRET", Secret: true, Bare: true, Value: s.parseSecret,
			Meaning: "Secret of tokens signed with HS256, of at least 32 bytes. Empty: HS256 is refused. This " +
				"or JWT_JWKS is needed; both may be set.",
			Consequence: "`openssl rand -hex 32` makes some. It can sign tokens of any kind."},
		s.jwtSecretRow(),
		{Name: "JWT_JWKS", Secret: true,
			Value: func(v string) error { s.jwks = cli.Secret(v); return jwksOK(v) },
			Shown: func() string { return token.Shown(string(s.jwks)) },
			Meaning: "File or http(s) URL with the public keys (JWKS) of tokens signed with RS256, ES256 or " +
				"EdDSA. Empty: those are refused.",
			Consequence: "[How keys are chosen and renewed](reference/availability-http.md#keys). Without any, requests " +
				"get 503."},
		{Name: "JWT_AUDIENCE", Value: cli.Text(&s.jwtAudience),
			Meaning:     "What `aud` of each token must be, or have among others. Empty: it is not checked.",
			Consequence: "Set it where the issuer also makes tokens for other services: they would be good here."},
		{Name: "JWT_ISSUER", Value: cli.Text(&s.jwtIssuer),
			Meaning: "What `iss` of each token must be. Empty: it is not checked."},
		{Name: "SESSION_END_STATUSES", Default: "ended,completed,cancelled,expired", Value: s.parseEndings,
			Meaning: "Words that end a session in the API, with commas. `word=status`: that status is stored " +
				"for it, as in `completed=ended,cancelled,expired`.",
			Consequence: "A `status` that the table does not allow is refused with 400."},
		seconds("MITRA_AUTO_OFFLINE_SWEEP_SECONDS", "30", &s.offlineInterval,
			"Time between two looks for mitras who are silent for longer than `stale_after_seconds`.",
			"At most that much later a mitra goes offline."),
		seconds("VALKEY_ONLINE_MIRROR_SWEEP_SECONDS", "300", &s.reconcileInterval,
			"Time between two comparisons of everything in Redis with PostgreSQL.",
			"It finds somebody's own changes in Redis, and rows changed while triggers were off."),
		seconds("HEARTBEAT_MIRROR_INTERVAL_SECONDS", "60", &s.mirrorInterval,
			"Time between two passes that bring heartbeats from Redis to PostgreSQL.",
			"While Redis is away, reads allow for heartbeats that old."),
	}, fleet)
}

var decimal = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

func seconds(name, otherwise string, p *time.Duration, meaning, consequence string) cli.Setting {
	const least, most = 0.05, 24 * 3600
	return cli.Setting{Name: name, Default: otherwise, Meaning: meaning, Consequence: consequence,
		Value: func(v string) error {
			// Fractions are for tests and demonstrations.
			n, err := strconv.ParseFloat(v, 64)
			if err != nil || !decimal.MatchString(v) || n < least || n > most {
				return fmt.Errorf("a number of seconds from %v to %d, without a unit", least, most)
			}
			*p = time.Duration(n * float64(time.Second))
			return nil
		}}
}

func (s *settings) parseEndings(v string) error {
	expected := errors.New("words with commas, each once, or word=status; none of " +
		strings.Join(availability.Running, ", "))
	s.endings = map[string]string{}
	for pair := range strings.SplitSeq(v, ",") {
		word, status, mapped := strings.Cut(pair, "=")
		if !mapped {
			status = word
		}
		for _, each := range []string{word, status} {
			if !endingWord.MatchString(each) || slices.Contains(availability.Running, each) {
				return expected
			}
		}
		if _, twice := s.endings[word]; twice {
			return expected
		}
		s.endings[word] = status
	}
	return nil
}

var endingWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_ -]{0,62}$`)

// jwksOK drops net/url's error, which may repeat a password.
func jwksOK(v string) error {
	if token.IsURL(v) {
		if u, err := url.Parse(v); err != nil || u.Hostname() == "" {
			return errors.New("an http(s) URL, special characters of a password escaped")
		}
		return nil
	}
	info, err := os.Stat(v)
	if err != nil || info.IsDir() {
		return errors.New("an http(s) URL, or a file that is there")
	}
	return nil
}

// check finds settings that are valid alone but unsafe together.
func (s *settings) check(in *cli.Input) {
	s.Fleet.Check(in, "AVAILABILITY", &s.Base)
	if s.jwtSecret == "" && in.Understood("JWT_HS256_SECRET", "JWT_HS256_SECRET_FILE") &&
		!in.Given("JWT_JWKS") {
		in.Fault("JWT_HS256_SECRET, JWT_JWKS: expected one of the two, or both: nobody could call anything")
	}
}

func (s *settings) databasePasswordRow() cli.Setting {
	row := cli.File(&s.databasePasswordFile, "DATABASE_PASSWORD_FILE", func(path string) error {
		_, err := reload.Read(reload.Line, path)
		return err
	})
	row.Meaning = "File of PostgreSQL's password; the user stays in the URL: `postgres://user@host/database`."
	row.Consequence = "Read again when it changes, and used once PostgreSQL has accepted it. A role has one " +
		"password: change the file first."
	row.Check = func(in *cli.Input) {
		u, err := url.Parse(string(s.databaseURL))
		if s.databasePasswordFile == "" || err != nil {
			return
		}
		if _, set := u.User.Password(); set || u.Query().Has("password") {
			in.Fault("DATABASE_PASSWORD_FILE: expected a DATABASE_URL without a password")
		}
	}
	return row
}

// databasePassword is as last read; nil without a file.
func (s *settings) databasePassword() (now func() string, files []reload.Watched, err error) {
	if s.databasePasswordFile == "" {
		return nil, nil, nil
	}
	f, err := reload.Open("DATABASE_PASSWORD_FILE", reload.Line, s.databasePasswordFile)
	if err != nil {
		return nil, nil, fmt.Errorf("availability: %w", err)
	}
	f.Prove(func(ctx context.Context, v string) error { return database.Try(ctx, string(s.databaseURL), v) })
	return f.Get, []reload.Watched{f}, nil
}

func (s *settings) jwtSecretRow() cli.Setting {
	row := cli.File(&s.jwtSecretFile, "JWT_HS256_SECRET_FILE", func(path string) error {
		secrets, err := reload.Read(secretLines, path)
		if err == nil {
			s.jwtSecret = cli.Secret(secrets[0])
		}
		return err
	})
	row.Meaning = "File of the same, in its place: a secret a line. A token may be signed with any of them."
	row.Consequence = "Read again when it changes. Add a new secret as a line, have tokens signed with it, and " +
		"remove the old one when its last token has expired."
	row.Check = func(in *cli.Input) { in.NotBoth("JWT_HS256_SECRET", "JWT_HS256_SECRET_FILE") }
	return row
}

// secrets of tokens are as last read; nil if there are none.
func (s *settings) secrets() (now func() []string, files []reload.Watched, err error) {
	switch {
	case s.jwtSecretFile != "":
		f, err := reload.Open("JWT_HS256_SECRET_FILE", secretLines, s.jwtSecretFile)
		if err != nil {
			return nil, nil, fmt.Errorf("availability: %w", err)
		}
		return f.Get, []reload.Watched{f}, nil
	case s.jwtSecret != "":
		return func() []string { return []string{string(s.jwtSecret)} }, nil, nil
	}
	return nil, nil, nil
}

func secretLines(texts []string) (secrets []string, err error) {
	for line := range strings.Lines(texts[0]) {
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		if err := secretOK(line); err != nil {
			return nil, err
		}
		secrets = append(secrets, line)
	}
	return secrets, nil
}

// parseDatabase drops the library's error, which may repeat a password.
func (s *settings) parseDatabase(v string) error {
	s.databaseURL = cli.Secret(v)
	expected := errors.New("a URL such as postgres://user:password@host:5432/database, " +
		"special characters of the password escaped")
	if !strings.HasPrefix(v, "postgres://") && !strings.HasPrefix(v, "postgresql://") {
		return expected
	}
	if _, err := pgxpool.ParseConfig(v); err != nil {
		return expected
	}
	return nil
}

func (s *settings) parseSecret(v string) error {
	s.jwtSecret = cli.Secret(v)
	return secretOK(v)
}

func secretOK(v string) error {
	if len(v) < token.LeastSecret {
		return fmt.Errorf("at least %d bytes, so that nobody guesses it; openssl rand -hex 32 makes some",
			token.LeastSecret)
	}
	if strings.TrimSpace(v) != v {
		return errors.New("no spaces or line breaks at its ends")
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
)

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

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/internal/service"
)

// migrate is "availability migrate": for a role that may create, where the service's may not.
func migrate() *service.Command {
	s := new(settings)
	return &service.Command{
		Name: "availability migrate",
		About: `availability migrate makes what the database lacks, and ends. Replicas with MIGRATE=off
start only when that is done. The role needs the rights to create in the schema, and
to own the tables that lack something. What it locks: docs/availability-postgres.md.`,
		Settings: []service.Setting{
			{Name: "DATABASE_URL", Secret: true, Required: true, Value: s.parseDatabase,
				Meaning: "`postgres://user:password@host:5432/database`, of PostgreSQL 15 or newer, with that role"},
			s.databasePasswordRow(),
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) (err error) {
			var opts []postgres.Option
			if password, _, err := s.databasePassword(); err != nil {
				return err
			} else if password != nil {
				opts = append(opts, postgres.Password(password))
			}
			source, err := postgres.Open(ctx, string(s.databaseURL), opts...)
			if err != nil {
				return err
			}
			defer source.Close()
			if err := source.Migrate(ctx); err != nil {
				return err
			}
			if err := source.Check(ctx); errors.Is(err, postgres.ErrLacking) {
				return fmt.Errorf("%w: somebody has dropped or disabled it since it was made", err)
			} else if err != nil {
				return err
			}
			_, err = fmt.Fprintln(stdout, "the database has all that replicas need")
			return err
		},
		Notes: `It may be run again: what is there stays. Exit status: 0 when the database has all, 1
if it does not, 2 on wrong arguments.`,
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	library "github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
)

func acl() *cli.Command {
	var prefix, user string
	var db int
	return &cli.Command{
		Name: "rollcall acl",
		About: `rollcall acl prints the command that gives a Redis user the rights of a service that
embeds Rollcall. It does not ask Redis. Put a password of your own in.

  rollcall acl --prefix chat: --db 2`,
		Settings: []cli.Setting{
			{Name: "prefix", Value: cli.Prefix(&prefix), Meaning: "what the names of the fleet's keys begin with"},
			{Name: "db", Default: "0", Value: cli.Number(&db, 0, 1_000_000), Meaning: "the fleet's database"},
			{Name: "user", Default: "rollcall", Value: cli.Text(&user), Meaning: "the user's name"},
		},
		Run: func(_ context.Context, stdout, _ io.Writer) error {
			_, err := fmt.Fprintf(stdout, "redis-cli ACL SETUSER %s on '>PASSWORD' resetkeys resetchannels %s\n",
				user, "'"+strings.Join(library.ACL(prefix, db), "' '")+"'")
			return err
		},
	}
}

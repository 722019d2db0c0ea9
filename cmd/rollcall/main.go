// Rollcall answers an operator's questions about a fleet: who leads, which instances are alive, why
// an entry is gone or still exists, whether this Redis is fit. It only reads unless a verb's help
// states otherwise.
package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	library "github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
)

func main() { cli.Main(rollcall()) }

const exits = "Exit status: 0 answered, 1 failed, 2 wrong usage or settings."

const exitsNo = exits + " 3: the answer is no."

func verbs() []*cli.Command {
	return []*cli.Command{
		status(), find(), why(), list(), log(), events(), doctor(), debug(), verify(),
		pause(), resume(), resign(), sweep(), restore(), waitFor(), acl(),
	}
}

func rollcall() *cli.Command {
	c := &cli.Command{
		Name: "rollcall",
		About: `rollcall answers questions about a fleet. It works on any fleet with REDIS_URL alone
(and --prefix, if the fleet has one), and only reads unless a verb says otherwise.
Flags stand behind the verb; rollcall VERB -h shows them.

  rollcall status        who leads, what is held, each instance
  rollcall find IMEI     who holds a device
  rollcall why IMEI      why its entry is gone, or still here; of a KEY too
  rollcall list INSTANCE which devices it holds
  rollcall log           what was evicted
  rollcall events        what happened: terms, deaths, goodbyes, holds, pauses
  rollcall doctor        whether this Redis is fit and the fleet is sound
  rollcall debug         all of that in one text, without secrets
  rollcall verify        what of the registry does not fit together

  rollcall pause REASON  holds every leader until rollcall resume
  rollcall sweep         runs a pass now, or tells what it would do
  rollcall restore ID    puts back what a rule with a bin took; --last: the last pass
  rollcall resign        has another replica lead
  rollcall wait          ends when the fleet is as asked for
  rollcall acl           the rights that a service of your own needs`,
		Notes:    exitsNo,
		Commands: verbs(),
	}
	c.Run = c.ShowHelp
	return c
}

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

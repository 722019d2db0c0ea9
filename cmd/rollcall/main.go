// Rollcall answers an operator's questions about a fleet: who leads, which instances are alive, why
// an entry is gone or still exists, whether this Redis is fit. It only reads unless a verb's help
// states otherwise.
package main

import (
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

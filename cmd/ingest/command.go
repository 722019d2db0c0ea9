package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/commands"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/registry"
)

func sendCommand() *cli.Command {
	var (
		s       settings
		codec   string
		expires time.Duration
		c       commands.Command
	)
	return &cli.Command{
		Name: "ingest command",
		About: `ingest command sends TEXT to the device through the instance that holds it, waits
for the outcome, and prints what the device answered; what a terminal could take
for more than text is printed as Go would write it (\x1b, \n). It needs REDIS_URL
or --redis-url, and takes all other settings of ingest too.`,
		Arguments: "IMEI TEXT",
		Settings: []cli.Setting{
			{Name: "codec", Default: "12", Value: cli.OneOf(&codec, "12", "14"), Meaning: "12 or 14"},
			{Name: "expires", Default: "0s", Value: cli.Duration(&expires, 0, 24*time.Hour),
				Meaning: "how long the command may wait for its device, at most 24h; 0s: a minute, with --queue a day"},
			{Name: "queue", Default: "false", Switch: true, Value: cli.Bool(&c.Queue),
				Meaning: "wait for a device that is away, wherever it connects"},
		},
		Inherited: s.table(),
		Prefixes:  prefixes,
		Check: func(in *cli.Input) {
			s.check(in)
			if s.Redis.Embedded() {
				in.Fault("REDIS_URL: expected the fleet's Redis; " +
					"the one inside a replica is not this process'")
			}
			if len(in.Args) < 2 {
				in.Fault("expected an IMEI and a text")
				return
			}
			if _, err := teltonika.ParseIMEI(in.Args[0]); err != nil {
				in.Fault("IMEI: expected 15 digits")
			}
			c.IMEI, c.Text = in.Args[0], strings.Join(in.Args[1:], " ")
		},
		Run: func(ctx context.Context, stdout, stderr io.Writer) error {
			if c.Codec = 12; expires > 0 {
				c.Expires = time.Now().Add(expires)
			}
			if codec == "14" {
				c.Codec = 14
			}
			outcome, err := deliver(ctx, &s, c)
			switch {
			case errors.Is(err, registry.ErrNotRegistered):
				fmt.Fprintf(stderr, "%s: no instance holds %s\n", commands.NotConnected, c.IMEI)
				return cli.ErrSaid
			case err != nil:
				return errors.New(printable.Text(err.Error()))
			case outcome.Status == commands.MaybeAnswered:
				fmt.Fprintln(stderr, "ambiguous: this may be the answer, or what the device sends of itself")
			case outcome.Status != commands.Answered:
				said := fmt.Sprintf("%s at %s: %s", outcome.Status, outcome.Instance, outcome.Text)
				fmt.Fprintln(stderr, printable.Text(said))
				return cli.ErrSaid
			}
			_, err = fmt.Fprintln(stdout, printable.Text(outcome.Text))
			return err
		},
		Notes: "Exit status: 0 answered, 1 any other outcome, which is named on stderr, 2 wrong usage.",
	}
}

// fleetsDivision returns the fleet's division unless a number is set, or a replica's default if
// this user may not read it.
func (s *settings) fleetsDivision(
	ctx context.Context, client redis.UniversalClient,
) (guard.Layout, int, error) {
	layout, partitions := s.division()
	n, err := partition.Count(ctx, client, divided)
	switch {
	case redis.IsPermissionError(err):
		return layout, partitions, nil
	case err != nil:
		return layout, 0, err
	case s.partitions == 0 && n == 1:
		return layoutOn(s.Redis), 1, nil
	case s.partitions == 0:
		return divided, n, nil
	case n != 1 && n != s.partitions: // 1 may mean that the key does not exist
		return layout, 0, fmt.Errorf("%w: %s says %d, REGISTRY_PARTITIONS is %d",
			partition.ErrPartitionsDiffer, divided.Partitions(), n, s.partitions)
	}
	return layout, partitions, nil
}

func deliver(ctx context.Context, s *settings, c commands.Command) (commands.Outcome, error) {
	clients, err := connect.Once(ctx, &s.Redis, s.ControlDeadline())
	if err != nil {
		return commands.Outcome{}, err
	}
	defer func() { _ = clients.Close() }()
	reg, err := s.lookups(ctx, clients)
	if err != nil {
		return commands.Outcome{}, err
	}
	sender := commands.Sender{Client: clients.Data, Layout: reg.Home(), Lookup: reg.Lookup}
	return sender.Send(ctx, c)
}

// lookups returns a registry that is never run.
func (s *settings) lookups(ctx context.Context, clients *connect.Clients) (*partition.Registry, error) {
	layout, partitions, err := s.fleetsDivision(ctx, clients.Data)
	if err != nil {
		return nil, err
	}
	return partition.NewRegistry(registry.Config{
		Client: clients.Data, Control: clients.Control, Layout: layout,
	}, partitions)
}

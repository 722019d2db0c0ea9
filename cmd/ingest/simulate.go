package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/simulate"
	"github.com/rollcall-redis/rollcall/partition"
)

const askTime = 5 * time.Second

type simulation struct {
	cfg      simulate.Config
	duration time.Duration // 0: until interrupted
	redis    connect.Redis
	fleet    *simulate.Fleet
}

func runSimulate() *cli.Command {
	s := new(simulation)
	return &cli.Command{
		Name: "ingest simulate",
		About: `ingest simulate runs a fleet of Teltonika trackers against gateways: motion, backlog,
keep-alives, frames in pieces, lost coverage, the documented ladder of reconnects,
answers to commands. It reads no setting from the environment.`,
		Settings: s.table(),
		Check:    s.check,
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			return s.show(ctx, stdout)
		},
		Notes: `An interrupt ends it with a summary. Exit status: 0 when it was ended or its
time was up, 1 if nothing could connect at all, 2 on wrong arguments.`,
	}
}

var codecs = map[string]teltonika.Codec{
	"8": teltonika.Codec8, "8e": teltonika.Codec8E, "16": teltonika.Codec16,
}

func (s *simulation) table() []cli.Setting {
	const ever = 100 * 365 * 24 * time.Hour
	c := &s.cfg
	return []cli.Setting{
		{Name: "devices", Default: "100", Value: cli.Number(&c.Devices, 1, simulate.MostDevices),
			Meaning: "number of trackers",
			Consequence: "Each takes a descriptor (two with `--half-open`) and about 15 kB. The limit of " +
				"open files is raised as far as it may be; what does not fit is refused at once, with " +
				"the number needed. Ten thousand are fine"},
		{Name: "interval", Default: "10s", Value: cli.Duration(&c.Interval, time.Millisecond, ever),
			Meaning: "time between two frames of a tracker"},
		{Name: "records", Default: "1", Value: cli.Number(&c.Records, 1, simulate.MostRecords),
			Meaning: "number of records in a frame, at most 10"},
		{Name: "targets", Default: "127.0.0.1:5027", Meaning: "host:port,... of gateways",
			Consequence: "Each connection draws one of them, as a balancer would",
			Value:       func(v string) error { c.Targets = strings.Split(v, ","); return nil }},
		{Name: "duration", Default: "0s", Value: cli.Duration(&s.duration, 0, ever),
			Meaning: "how long; 0s: until interrupted"},
		cli.Seed(&c.Seed),
		{Name: "redis", Secret: true, Value: s.parseRedis,
			Meaning: "URL of the gateways' Redis, to show how many connected trackers are routable; it " +
				"is only read",
			Consequence: "Routable: their entry names an instance whose heartbeat exists. That may not be " +
				"the instance that holds the socket"},
		{Name: "codec", Default: "8", Meaning: "8, 8e or 16",
			Value: func(v string) error {
				if c.Codec = codecs[strings.ToLower(v)]; c.Codec == 0 {
					return errors.New("8, 8e or 16")
				}
				return nil
			}},
		{Name: "backlog", Default: "0", Value: cli.Number(&c.Backlog, 0, simulate.MostBacklog),
			Meaning: "number of records that each tracker has stored at the start",
			Consequence: "They are emptied stop-and-wait, newest first, whenever no fresh frame is due: " +
				"the hardest load that a fleet makes"},
		{Name: "half-open", Default: "0", Value: cli.Share(&c.HalfOpen, 0),
			Meaning: "share of frames, 0 to 1, at which a tracker loses coverage and leaves its socket " +
				"half-open",
			Consequence: "It comes back on a new one. Half of them lose an acknowledgement, and the " +
				"frame comes twice"},
		{Name: "ladder-unit", Default: "1m", Value: cli.Duration(&c.LadderUnit, time.Nanosecond, ever),
			Meaning: "what the ladder of reconnects (at once, 1, 1, 2, 2, 4, 6, 8, 10 min) takes for a " +
				"minute",
			Consequence: "The ladder begins anew with an acknowledgement"},
		{Name: "timeout", Default: "30s", Value: cli.Duration(&c.Timeout, time.Nanosecond, ever),
			Meaning: "how long a tracker waits for an answer"},
		{Name: "first-imei", Default: "35630704000000",
			Value:       cli.Number(&c.FirstIMEI, 1, simulate.MostFirstIMEI),
			Meaning:     "14 digits of the first tracker's IMEI; the others count up",
			Consequence: "Two simulations at once need different ones"},
	}
}

func (s *simulation) parseRedis(v string) error {
	err := s.redis.Parse(v)
	if s.redis.Embedded() {
		err = errors.New("a URL of the gateways' Redis")
	}
	return err
}

func (s *simulation) check(in *cli.Input) {
	if !in.Understood("devices") {
		return
	}
	var err error
	if s.fleet, err = simulate.New(s.cfg); err == nil {
		err = descriptorsFor(s.cfg.Sockets())
	}
	if err != nil {
		in.Fault("%v", err)
	}
}

// show returns an error if nothing could connect at all.
func (s *simulation) show(ctx context.Context, stdout io.Writer) error {
	c := s.cfg
	fmt.Fprintf(stdout, "simulating %d trackers, a frame of codec %v every %v, at %s; seed %d\n",
		c.Devices, c.Codec, c.Interval, strings.Join(c.Targets, ", "), c.Seed)
	view := &simulate.View{Fleet: s.fleet, Out: stdout, Terminal: cli.IsTerminal(stdout)}
	if s.redis != (connect.Redis{}) {
		clients, err := connect.Open(ctx, &s.redis, askTime)
		if err != nil {
			return err
		}
		defer clients.Close()
		view.Routable = func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			layout := divided
			partitions, err := partition.Count(ctx, clients.Data, layout)
			if err != nil {
				return 0, err
			}
			if partitions == 1 {
				layout = layoutOn(s.redis)
			}
			return routable(ctx, clients.Data, layout, partitions, maps.Keys(s.fleet.Where()))
		}
	}
	if s.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}
	return view.Run(ctx)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const ever = 100 * 365 * 24 * time.Hour

type simulation struct {
	cfg      sim.Config
	duration time.Duration // 0: until interrupted
	*sim.Simulation
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
	c := &s.cfg
	return []cli.Setting{
		{Name: "devices", Default: "100", Value: cli.Number(&c.Devices, 1, sim.MostDevices),
			Meaning:     "number of trackers",
			Consequence: "Each takes a descriptor (two with `--half-open`) and about 15 kB"},
		{Name: "interval", Default: "10s", Value: cli.Duration(&c.Interval, time.Millisecond, ever),
			Meaning: "time between two frames of a tracker"},
		{Name: "records", Default: "1", Value: cli.Number(&c.Records, 1, sim.MostRecords),
			Meaning: "number of records in a frame, at most 10"},
		{Name: "targets", Default: "127.0.0.1:5027", Meaning: "host:port,... of gateways",
			Consequence: "Each connection draws one of them, as a balancer would",
			Value:       func(v string) error { c.Targets = strings.Split(v, ","); return nil }},
		{Name: "duration", Default: "0s", Value: cli.Duration(&s.duration, 0, ever),
			Meaning: "how long; 0s: until interrupted"},
		cli.Seed(&c.Seed),
		{Name: "codec", Default: "8", Meaning: "8, 8e or 16",
			Value: func(v string) error {
				if c.Codec = codecs[strings.ToLower(v)]; c.Codec == 0 {
					return errors.New("8, 8e or 16")
				}
				return nil
			}},
		{Name: "backlog", Default: "0", Value: cli.Number(&c.Backlog, 0, sim.MostBacklog),
			Meaning:     "number of records that each tracker has stored at the start",
			Consequence: "They are emptied stop-and-wait, newest first, whenever no fresh frame is due"},
		{Name: "half-open", Default: "0", Value: cli.Share(&c.HalfOpen, 0),
			Meaning:     "share of frames, 0 to 1, at which a tracker loses coverage: its socket stays half-open",
			Consequence: "Half of them lose an acknowledgement, and the frame comes twice"},
		{Name: "ladder-unit", Default: "1m", Value: cli.Duration(&c.LadderUnit, time.Nanosecond, ever),
			Meaning:     "what the ladder of reconnects (at once, 1, 1, 2, 2, 4, 6, 8, 10 min) takes for a minute",
			Consequence: "The ladder begins anew with an acknowledgement"},
		{Name: "timeout", Default: "30s", Value: cli.Duration(&c.Timeout, time.Nanosecond, ever),
			Meaning: "how long a tracker waits for an answer"},
		{Name: "first-imei", Default: "35630704000000",
			Value:       cli.Number(&c.FirstIMEI, 1, sim.MostFirstIMEI),
			Meaning:     "14 digits of the first tracker's IMEI; the others count up",
			Consequence: "Two simulations at once need different ones"},
	}
}

func (s *simulation) check(in *cli.Input) {
	if !in.Understood("devices") {
		return
	}
	var err error
	if s.Simulation, err = sim.Simulate(s.cfg); err != nil {
		in.Fault("%v", err)
	}
}

// show returns an error if nothing could connect at all.
func (s *simulation) show(ctx context.Context, stdout io.Writer) error {
	c := s.cfg
	fmt.Fprintf(stdout, "simulating %d trackers, a frame of codec %v every %v, at %s; seed %d\n",
		c.Devices, c.Codec, c.Interval, strings.Join(c.Targets, ", "), c.Seed)
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.duration, ever))
	defer cancel()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var trackers sync.WaitGroup
	trackers.Go(func() { s.Run(running) })
	began := time.Now()
	s.progress(ctx, stdout)
	counts, took := s.Counts(), time.Since(began)
	stop()
	trackers.Wait()
	return summary(stdout, counts, took)
}

func (s *simulation) progress(ctx context.Context, out io.Writer) {
	every := 10 * time.Second
	if cli.IsTerminal(out) {
		every = time.Second
	}
	frames := 0
	for took := every; wait.For(ctx, every); took += every {
		c := s.Counts()
		fmt.Fprintf(out, "%5.0fs  connected %d/%d  frames/s %.1f  acknowledged %d  re-sent %d  backlog %d\n",
			took.Seconds(), c.Connected, c.Devices, float64(c.Frames-frames)/every.Seconds(), c.Records, c.Resent,
			c.Backlog)
		frames = c.Frames
	}
}

func summary(out io.Writer, c sim.Counts, took time.Duration) error {
	const exact = 10 * time.Microsecond
	p50, p99 := c.Acknowledgements.Quantile(0.5), c.Acknowledgements.Quantile(0.99)
	failure := cmp.Or(c.LastFailure, errors.New("none"))
	_, err := fmt.Fprintf(out, `after %.1f s:
  connected                %d of %d
  frames                   %d, %.1f a second
  records acknowledged     %d, in %d frames
  re-sent frames           %d
  backlog left             %d records
  acknowledged within      p50 %v, p99 %v
  reconnects               %d, attempts that failed %d (refused %d)
  half-open sockets left   %d
  keep-alives              %d
  commands answered        %d
  last failure             %v
`, took.Seconds(), c.Connected, c.Devices, c.Frames, float64(c.Frames)/took.Seconds(), c.Records, c.Acked,
		c.Resent, c.Backlog, p50.Round(exact), p99.Round(exact), c.Reconnects, c.Failed, c.Refused, c.HalfOpen,
		c.KeepAlives, c.Commands, failure)
	if err == nil && c.Accepted == 0 {
		err = fmt.Errorf("nothing could connect: %w", cmp.Or(c.LastFailure, errors.New("there was no time to")))
	}
	return err
}

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/settings"
	"github.com/rollcall-redis/rollcall/internal/simulate"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/registry"
)

const simulateUsage = `ingest simulate runs a fleet of Teltonika trackers against gateways: motion, backlog,
keep-alives, frames in pieces, lost coverage, the documented ladder of reconnects,
answers to commands.

Usage: ingest simulate [--name value ...]

`

// lookTime bounds each look at the registry.
const lookTime = 5 * time.Second

// simulation is what "ingest simulate" was asked for.
type simulation struct {
	fleet    simulate.Config
	duration time.Duration // 0: until interrupted
	redis    settings.Redis
}

// runSimulate is "ingest simulate": it lets a fleet be until ctx ends or its time is up, and returns the exit status.
func runSimulate(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseSimulate(args)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(stdout, simulateHelp())
		return printed(err, stderr)
	}
	var fleet *simulate.Fleet
	if err == nil {
		fleet, err = simulate.New(s.fleet)
	}
	if err == nil {
		err = descriptorsFor(s.fleet.Sockets())
	}
	if err != nil {
		fmt.Fprintf(stderr, "ingest simulate: %v\n(ingest simulate -h shows every flag)\n", err)
		return exitUsage
	}
	if err := s.show(ctx, fleet, stdout); err != nil {
		fmt.Fprintln(stderr, "ingest simulate:", err)
		return exitFailed
	}
	return exitOK
}

// flags are the flags of "ingest simulate", bound to s.
func (s *simulation) flags() *flag.FlagSet {
	c := &s.fleet
	fs := flag.NewFlagSet("ingest simulate", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&c.Devices, "devices", 100, "`number` of trackers")
	fs.DurationVar(&c.Interval, "interval", 10*time.Second, "time between two frames of a tracker")
	fs.IntVar(&c.Records, "records", 1, fmt.Sprintf("`number` of records in a frame, at most %d", simulate.MostRecords))
	c.Targets = []string{"127.0.0.1:5027"}
	fs.Func("targets", "`host:port,...` of gateways; each connection draws one (default 127.0.0.1:5027)", func(v string) error {
		c.Targets = strings.Split(v, ",")
		return nil
	})
	fs.DurationVar(&s.duration, "duration", 0, "how long; 0: until interrupted")
	fs.Uint64Var(&c.Seed, "seed", rand.Uint64(), "`number` that decides what is drawn; it is printed")
	fs.Func("redis", "`URL` of the gateways' Redis, to show how many connected trackers are routable; it is only read", func(v string) (err error) {
		s.redis, err = settings.ParseRedis(v)
		if s.redis.Embedded() {
			err = errors.New("expected the gateways' Redis")
		}
		return err
	})
	c.Codec = teltonika.Codec8
	fs.Func("codec", "`8, 8e or 16` (default 8)", func(v string) error {
		codecs := map[string]teltonika.Codec{"8": teltonika.Codec8, "8e": teltonika.Codec8E, "16": teltonika.Codec16}
		codec, ok := codecs[strings.ToLower(v)]
		if !ok {
			return errors.New("expected 8, 8e or 16")
		}
		c.Codec = codec
		return nil
	})
	fs.IntVar(&c.Backlog, "backlog", 0, "`number` of records that each tracker has stored at the start")
	fs.Float64Var(&c.HalfOpen, "half-open", 0, "`rate`, 0 to 1, of frames at which a tracker loses coverage and leaves its socket half-open")
	fs.DurationVar(&c.LadderUnit, "ladder-unit", time.Minute, "what the ladder of reconnects (at once, 1, 1, 2, 2, 4, 6, 8, 10 min) takes for a minute")
	fs.DurationVar(&c.Timeout, "timeout", 30*time.Second, "how long a tracker waits for an answer")
	fs.Uint64Var(&c.FirstIMEI, "first-imei", 35_630_704_000_000, "`14 digits` of the first tracker's IMEI; the others count up")
	return fs
}

// parseSimulate reads the arguments. Its error is flag.ErrHelp, or says what is wrong.
func parseSimulate(args []string) (*simulation, error) {
	s := new(simulation)
	fs := s.flags()
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		// The flag package repeats a value that it refuses; this one may hold a password.
		if strings.Contains(err.Error(), "-redis") {
			return nil, errors.New("--redis: expected a URL such as redis://127.0.0.1:6379 (the value is not shown)")
		}
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, errors.New("expected flags only, got an argument behind them")
	}
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"interval", s.fleet.Interval > 0}, {"records", s.fleet.Records > 0}, {"ladder-unit", s.fleet.LadderUnit > 0},
		{"timeout", s.fleet.Timeout > 0}, {"first-imei", s.fleet.FirstIMEI > 0}, {"duration", s.duration >= 0},
	} {
		if !f.ok { // what means the default to the package must not be a surprise here
			return nil, fmt.Errorf("--%s: expected more than that", f.name)
		}
	}
	return s, nil
}

// simulateHelp is the help of "ingest simulate".
func simulateHelp() string {
	var b strings.Builder
	b.WriteString(simulateUsage)
	fs := new(simulation).flags()
	fs.VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		if f.Name == "seed" {
			f.DefValue = "drawn"
		}
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "0s" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&b, "  --%s %s\n        %s\n", f.Name, kind, text)
	})
	b.WriteString("\nAn interrupt ends it with a summary. Exit status: 0 when it was ended or its time was up, 1 if nothing\ncould connect at all, 2 on wrong arguments.\n")
	return b.String()
}

// show runs the fleet and shows it. Its error says that nothing could connect at all.
func (s *simulation) show(ctx context.Context, fleet *simulate.Fleet, stdout io.Writer) error {
	c := s.fleet
	fmt.Fprintf(stdout, "simulating %d trackers, a frame of codec %v every %v, at %s; seed %d\n",
		c.Devices, c.Codec, c.Interval, strings.Join(c.Targets, ", "), c.Seed)
	view := &simulate.View{Fleet: fleet, Out: stdout, Terminal: isTerminal(stdout)}
	if client := s.client(); client != nil {
		defer client.Close()
		view.Routable = func(ctx context.Context) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			return fleet.Routable(ctx, client, registry.Layout{})
		}
	}
	ending := ctx
	if s.duration > 0 {
		var cancel context.CancelFunc
		ending, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}
	began := time.Now()
	// The fleet outlives ending for as long as the last look at it takes.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(life) }()
	_ = view.Run(ending)
	counts, took, routable := fleet.Counts(), time.Since(began), -1
	if view.Routable != nil {
		if n, err := view.Routable(life); err == nil {
			routable = n
		}
	}
	stop()
	if err := cmp.Or(<-ended, simulate.Summary(stdout, counts, took, routable)); err != nil {
		return err
	}
	if counts.Accepted == 0 {
		return fmt.Errorf("nothing could connect: %w", cmp.Or(counts.LastFailure, errors.New("there was no time to")))
	}
	return nil
}

// client is how the registry is looked at; nil if nobody asked for that.
func (s *simulation) client() redis.UniversalClient {
	switch {
	case s.redis.Single != nil:
		return redis.NewClient(s.redis.Single)
	case s.redis.Sentinel != nil:
		return redis.NewFailoverClient(s.redis.Sentinel)
	}
	return nil
}

// isTerminal tells whether w is a screen, on which a line can be written over.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

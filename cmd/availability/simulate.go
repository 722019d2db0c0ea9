package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/workforce"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
)

// askTime bounds each of the simulation's own calls to a server.
const askTime = 5 * time.Second

type simulation struct {
	settings // only the database, the secret and the prefix are used

	cfg      workforce.Config
	duration time.Duration // 0: until interrupted
	redis    connect.Redis
}

func simulate() *cli.Command {
	s := new(simulation)
	return &cli.Command{
		Name: "availability simulate",
		About: `availability simulate plays a workforce against replicas of the program: mitras go
online, ping, rest, die without a word and come back; a dispatcher gives them
sessions, moves and ends them; customers poll. It makes its mitras and sessions in
the database itself. It is for trying out: never run it on a database that is used.`,
		Settings: s.rows(),
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			return s.show(ctx, stdout)
		},
		Notes: `An interrupt ends it with a summary. Its mitras stay in the database, and go
offline for their silence. Exit status: 0 when it was ended or its time was up, 1
if nobody could go online at all, 2 on wrong arguments.`,
	}
}

func (s *simulation) rows() []cli.Setting {
	const ever = 100 * 365 * 24 * time.Hour
	c := &s.cfg
	return []cli.Setting{
		{Name: "DATABASE_URL", Secret: true, Required: true, Value: s.parseDatabase,
			Meaning: "the replicas' database, with a right to insert into `mitras` and `chat_sessions`"},
		{Name: "JWT_HS256_SECRET", Secret: true, Bare: true, Required: true, Value: s.parseSecret,
			Meaning: "the replicas' secret: it signs the tokens of apps, dispatcher and customers"},
		{Name: "REDIS_URL", Secret: true, Value: s.parseRedis,
			Meaning: "the replicas' Redis, to show how many are online there; it is only read"},
		{Name: "AVAILABILITY_PREFIX", Value: cli.Prefix(&s.Prefix), Meaning: "the replicas' prefix"},
		{Name: "targets", Default: "http://127.0.0.1:8080", Meaning: "replicas, as http://host:port,...",
			Value: s.parseTargets},
		{Name: "mitras", Default: "100", Value: cli.Number(&c.Mitras, 1, 100_000),
			Meaning: "number of mitras"},
		{Name: "interval", Default: "30s", Value: cli.Duration(&c.Interval, time.Millisecond, ever),
			Meaning: "time between two pings of a mitra; `heartbeat_cadence_seconds` is what apps are told"},
		{Name: "sessions", Default: "1", Value: rate(&c.Sessions), Meaning: "sessions that begin in a second"},
		{Name: "session-lasts", Default: "1m", Value: cli.Duration(&c.SessionLasts, time.Millisecond, ever),
			Meaning: "how long a session lasts, on average"},
		{Name: "polls", Default: "10", Value: rate(&c.Polls), Meaning: "polls of customers in a second"},
		{Name: "rest", Default: "0.01", Value: cli.Share(&c.Rest, 0),
			Meaning: "share of pings, 0 to 1, at which a mitra goes offline for about five intervals instead"},
		{Name: "die", Default: "0.002", Value: cli.Share(&c.Die, 0),
			Meaning: "share of pings, 0 to 1, at which an app dies without a word"},
		{Name: "dead-for", Default: "10m", Value: cli.Duration(&c.DeadFor, time.Millisecond, ever),
			Meaning: "when it comes back, on average"},
		{Name: "duration", Default: "0s", Value: cli.Duration(&s.duration, 0, ever),
			Meaning: "how long; 0s: until interrupted"},
		cli.Seed(&c.Seed),
	}
}

func (s *simulation) parseRedis(v string) error {
	err := s.redis.Parse(v)
	if s.redis.Embedded() {
		err = errors.New("a URL of the replicas' Redis")
	}
	return err
}

func (s *simulation) parseTargets(v string) error {
	s.cfg.Targets = nil
	for target := range strings.SplitSeq(v, ",") {
		target = strings.TrimRight(target, "/")
		if !strings.HasPrefix(target, "http://") && !strings.HasPrefix(target, "https://") {
			return errors.New("http://host:port, or several with commas between them")
		}
		s.cfg.Targets = append(s.cfg.Targets, target)
	}
	return nil
}

func rate(p *float64) func(string) error {
	const most = 10_000
	return func(v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f >= 0 && f <= most) { // false for NaN
			return fmt.Errorf("a number from 0 to %d", most)
		}
		*p = f
		return nil
	}
}

// show fails only if nobody could go online at all.
func (s *simulation) show(ctx context.Context, stdout io.Writer) error {
	c := s.cfg
	if s.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}
	db, err := pgxpool.New(ctx, string(s.databaseURL))
	if err != nil {
		return errors.New("availability: DATABASE_URL cannot be used") // the cause may repeat a password
	}
	defer db.Close()
	c.Secret, c.DB = []byte(s.jwtSecret), db
	fmt.Fprintf(stdout, "simulating %d mitras who ping every %v, at %s; seed %d\n",
		c.Mitras, c.Interval, strings.Join(c.Targets, ", "), c.Seed)
	stores := &workforce.Stores{DB: db, Prefix: s.Prefix}
	if s.redis != (connect.Redis{}) {
		clients, err := connect.Open(ctx, &s.redis, askTime)
		if err != nil {
			return err
		}
		defer clients.Close()
		stores.Redis = clients.Data
	}
	every := 10 * time.Second
	if cli.IsTerminal(stdout) {
		every = time.Second
	}
	return workforce.Show(ctx, workforce.New(c), stores, stdout, every)
}

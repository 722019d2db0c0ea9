package main

import (
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

type settings struct {
	program.Base

	prefix                          string
	heartbeatInterval, heartbeatTTL time.Duration
	interval, leaseTTL              time.Duration
	redisShare                      float64
	dryRun                          bool
}

// prefixes are reserved: any other variable that begins so was mistyped.
var prefixes = []string{"JANITOR_", "HEARTBEAT_"}

// table has ingest's names and defaults.
func (s *settings) table() []cli.Setting {
	return slices.Concat(s.Base.Table(), []cli.Setting{
		{Name: "HEARTBEAT_INTERVAL", Default: "30s",
			Value:       cli.Duration(&s.heartbeatInterval, 50*time.Millisecond, time.Hour),
			Meaning:     "Time between two heartbeats, as the fleet's owners have it.",
			Consequence: "While two settings meet, nothing is removed (`settings`)."},
		{Name: "HEARTBEAT_TTL", Default: "90s",
			Value:   cli.Duration(&s.heartbeatTTL, 150*time.Millisecond, 24*time.Hour),
			Meaning: "How long a heartbeat is valid, as the fleet's owners have it. At least three times the interval.",
			Consequence: "**Never** shorter than that of plain writers, whose setting nobody can compare: an " +
				"owner is dead when its heartbeat has expired, and Redis must have been listened to for this " +
				"and 2 s before."},
		{Name: "JANITOR_PREFIX", Value: cli.Prefix(&s.prefix),
			Meaning: "What the names of the fleet's keys begin with. Empty: `connections:registry` and so on.",
			Consequence: "On a Redis Cluster it needs a {tag}, which puts all keys on one server. A fleet in " +
				"partitions is refused: each of its replicas has a janitor."},
		{Name: "JANITOR_INTERVAL", Default: "60s",
			Value:   cli.Duration(&s.interval, 50*time.Millisecond, 24*time.Hour),
			Meaning: "How often the leader asks whether a full scan can find something. It scans if so.",
			Consequence: "How long dead entries of plain writers, which keep no index, outlive their owner at " +
				"most. Others go within two seconds."},
		{Name: "JANITOR_INTERVAL_MS", Value: cli.Milliseconds(&s.interval, 50*time.Millisecond, 24*time.Hour),
			Meaning: "The same in milliseconds, for deployments that set it so. Both: refused."},
		{Name: "JANITOR_LEASE_TTL", Default: "15s",
			Value:   cli.Duration(&s.leaseTTL, 300*time.Millisecond, 10*time.Minute),
			Meaning: "How long the lease outlives a leader that died.",
			Consequence: "Shorter: another leads sooner, and the lease is lost to shorter hitches of Redis. " +
				"Should be the same everywhere."},
		{Name: "JANITOR_REDIS_SHARE", Default: "0.25", Value: cli.Share(&s.redisShare, janitor.LeastShare),
			Meaning: "Most of Redis' time that sweeping may take, over any second.",
			Consequence: "It slows down by itself, down to a fifth of this, while small calls take longer " +
				"than usual."},
		{Name: "JANITOR_DRY_RUN", Default: "false", Switch: true, Value: cli.Bool(&s.dryRun),
			Meaning:     "The leader judges and reports, and deletes nothing.",
			Consequence: "It holds only while *this* replica leads: set it on all."},
	})
}

func (s *settings) layout() guard.Layout { return guard.Layout{Prefix: s.prefix} }

// check finds settings that are fine alone and unsafe together.
func (s *settings) check(in *cli.Input) {
	program.CheckHeartbeat(in, s.heartbeatInterval, s.heartbeatTTL)
	in.NotBoth("JANITOR_INTERVAL", "JANITOR_INTERVAL_MS")
	if s.Redis.Cluster != nil && !s.layout().OneSlot() && in.Understood("JANITOR_PREFIX") {
		in.Fault("JANITOR_PREFIX: expected one with a hash tag, such as {chat}:, which a Redis Cluster needs, got %q",
			s.prefix)
	}
}

func (s *settings) controlDeadline() time.Duration {
	return program.ControlDeadline(s.heartbeatInterval, s.heartbeatTTL, s.leaseTTL)
}

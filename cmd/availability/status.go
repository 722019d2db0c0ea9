package main

import (
	_ "embed"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
)

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

// replicaStatus is the body of GET /api/v1/status, and the page's data.
type replicaStatus struct {
	console.Status
	Postgres database.Status `json:"postgres"`
	Mirror   mirrorStatus    `json:"mirror"`
	Counts   api.Counts      `json:"counts"`
}

type mirrorStatus struct {
	// Whole: reads are answered from Redis. It was whole at LookedAt, and Redis answers.
	Whole    bool      `json:"whole"`
	LookedAt time.Time `json:"looked_at,omitzero"`
	// FeedAt is when the feed was last read and copied to Redis, FeedError why not.
	FeedAt    time.Time `json:"feed_at,omitzero"`
	FeedError string    `json:"feed_error,omitempty"`
	// FeedBehind is how long (s) Redis may have missed commits, so that reads ask Postgres as well.
	FeedBehind float64 `json:"feed_behind_seconds"`
	// Drift is by kind, of this replica's last comparison.
	Drift   map[string]int `json:"drift,omitempty"`
	DriftAt time.Time      `json:"drift_at,omitzero"`
	// Unseen is how rows may change without a trigger, as of then.
	Unseen []string `json:"unseen,omitempty"`
	// SettingsError is why settings cannot be read, or which make no sense: last good values or
	// defaults apply.
	SettingsError string `json:"settings_error,omitempty"`
	// Breakers are closed, half-open or open, which blocks all calls.
	RedisBreaker    string `json:"redis_breaker"`
	PostgresBreaker string `json:"postgres_breaker"`
	// OfflineHeld is why the leader sets nobody offline now.
	OfflineHeld string `json:"offline_held,omitempty"`
}

// answeredFor is how long a read proves that reads work. There is one every two seconds; a failing
// one takes a few.
const answeredFor = 15 * time.Second

func (r *replica) mirrorStatus(reachable bool) mirrorStatus {
	h := r.mirror.Health()
	return mirrorStatus{
		Whole:    h.Whole && reachable,
		LookedAt: h.LookedAt, FeedAt: h.FeedAt, FeedError: h.FeedError, FeedBehind: h.Behind.Seconds(),
		Drift: h.Drift, DriftAt: h.DriftAt,
		Unseen:        h.Unseen,
		SettingsError: h.SettingsError,
		RedisBreaker:  h.Redis, PostgresBreaker: h.Source, OfflineHeld: h.Offline,
	}
}

// status asks nobody.
func (r *replica) status() replicaStatus {
	st := replicaStatus{
		Status: console.Status{
			Instance: r.registry.Instance(),
			Version:  cli.Version(),
			Time:     time.Now(),
			Started:  r.began,
			HTTPAddr: r.http.OperatorAddr(),
			Admin:    r.settings.AdminToken != "",
			Files:    r.files.Status(),
			Registry: r.registry.Status(),
			Janitor:  r.janitor.Status(),
		},
		Postgres: r.database.Status(),
		Counts:   r.api.Counts(),
	}
	_, failing := st.Registry.Failing["heartbeat"]
	st.Redis = r.inspector.Status(!failing && !st.Registry.LastBeat.IsZero())
	st.Mirror = r.mirrorStatus(st.Redis.Reachable)
	if !st.Janitor.Leading {
		st.Mirror.OfflineHeld = "" // of a former term
	}
	st.NotReady = r.notReady(&st)
	st.Ready = st.NotReady == ""
	return st
}

// notReady returns why this replica cannot answer, or "". The evidence is a periodic read of its
// own, which either Redis or PostgreSQL may answer.
func (r *replica) notReady(st *replicaStatus) string {
	switch {
	case r.draining.Load():
		return "draining: this replica stops"
	case st.Registry.Refused != "":
		return "refused: Redis does not accept this replica: " + st.Registry.Refused
	case st.Counts.At.IsZero() && st.Counts.Error == "":
		return "starting: neither Redis nor PostgreSQL has answered yet"
	case st.Counts.Error != "":
		return "nobody can answer: " + st.Counts.Error
	case time.Since(st.Counts.At) > answeredFor:
		return "nobody can answer: the last read was answered at " + st.Counts.At.UTC().Format(time.RFC3339)
	}
	return ""
}

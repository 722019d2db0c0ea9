package main

import (
	_ "embed"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/cmd/internal/service"
)

// pageText is this program's part of the status page.
//
//go:embed page.html
var pageText string

// replicaStatus is what GET /api/v1/status answers and the page shows.
type replicaStatus struct {
	service.Status
	Postgres database.Status `json:"postgres"`
	Mirror   mirrorStatus    `json:"mirror"`
	Counts   api.Counts      `json:"counts"`
}

// mirrorStatus is about what stands in Redis.
type mirrorStatus struct {
	// Whole: reads are answered from Redis. It was so at LookedAt, and Redis answers.
	Whole    bool      `json:"whole"`
	LookedAt time.Time `json:"looked_at,omitzero"`
	// FeedAt is when the feed was last read and brought to Redis, FeedError why it was not.
	FeedAt    time.Time `json:"feed_at,omitzero"`
	FeedError string    `json:"feed_error,omitempty"`
	// FeedBehind is for how long (s) Redis may have missed what Postgres committed: reads ask Postgres
	// as well. 0: it has all of it.
	FeedBehind float64 `json:"feed_behind_seconds"`
	// Drift is what the last comparison on this replica found, by kind.
	Drift   map[string]int `json:"drift,omitempty"`
	DriftAt time.Time      `json:"drift_at,omitzero"`
	// Unseen describes how rows may change without a trigger, as of that comparison.
	Unseen []string `json:"unseen,omitempty"`
	// SettingsError is why settings cannot be read, or which make no sense. The last good ones apply
	// then, or defaults.
	SettingsError string `json:"settings_error,omitempty"`
	// RedisBreaker and PostgresBreaker are closed, half-open or open: then nobody is asked.
	RedisBreaker    string `json:"redis_breaker"`
	PostgresBreaker string `json:"postgres_breaker"`
	// OfflineHeld is why the leader sets nobody offline now.
	OfflineHeld string `json:"offline_held,omitempty"`
}

// answeredFor is for how long an answer says that reads are answered. They are tried each two
// seconds, and one that fails takes a few.
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

// status is what this replica knows, without asking anybody.
func (r *replica) status() replicaStatus {
	st := replicaStatus{
		Status: service.Status{
			Instance: r.registry.Instance(),
			Version:  service.Version(),
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
		st.Mirror.OfflineHeld = "" // it is of a former term
	}
	st.NotReady = r.notReady(&st)
	st.Ready = st.NotReady == ""
	return st
}

// notReady says why this replica cannot answer; empty: it can. The evidence is a read that it makes
// itself now and then, which Redis or PostgreSQL may answer.
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

package main

import (
	_ "embed"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
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

// mirrorStatus is Whole only while Redis answers.
type mirrorStatus struct {
	availability.Health
	// FeedBehind is how long (s) Redis may have missed commits, so that reads ask Postgres as well.
	FeedBehind float64 `json:"feed_behind_seconds"`
}

// answeredFor is how long a read proves that reads work. There is one every two seconds; a failing
// one takes a few.
const answeredFor = 15 * time.Second

// status asks nobody.
func (r *replica) status(base console.Status) replicaStatus {
	st := replicaStatus{
		Status: base, Postgres: r.database.Status(), Mirror: mirrorStatus{Health: r.mirror.Health()},
		Counts: r.api.Counts(),
	}
	st.Mirror.Whole = st.Mirror.Whole && st.Redis.Reachable
	st.Mirror.FeedBehind = st.Mirror.Behind.Seconds()
	if !st.Janitor.Leading {
		st.Mirror.Offline = "" // of a former term
	}
	st.NotReady = r.notReady(&st)
	st.Ready = st.NotReady == ""
	return st
}

// notReady returns why this replica cannot answer, or "". The evidence is a periodic read of its
// own, which either Redis or PostgreSQL may answer.
func (r *replica) notReady(st *replicaStatus) string {
	switch {
	case r.Draining():
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

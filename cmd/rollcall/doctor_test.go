package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// finds asks doctor, and returns its findings by name.
func (w *world) finds() map[string]inspect.Finding {
	w.t.Helper()
	var d inspect.Diagnosis
	require.Equal(w.t, w.answer(&d, "doctor") == cli.ExitOK, d.OK)
	all := map[string]inspect.Finding{}
	for _, c := range d.Checks {
		require.NotEmpty(w.t, c.Sentence, c.Name)
		name, _, _ := strings.Cut(c.Name, ":")
		if c.Sentence = c.Text(); all[name].Level != inspect.Wrong {
			all[name] = c
		}
		all[c.Name] = c
	}
	return all
}

// requireFinding asks doctor, and requires one finding.
func (w *world) requireFinding(name string, level inspect.Level, says string) {
	w.t.Helper()
	all := w.finds()
	require.Equal(w.t, level, all[name].Level, "%s: %v", name, all)
	require.Contains(w.t, all[name].Sentence, says)
}

func TestDoctorFindsWhatIsWrongWithAServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := serverOf(t, server.Options())
	set := func(name, value string) { w.redis("CONFIG", "SET", name, value) }

	w.requireFinding("persistence", inspect.Warning, "There is no persistence")
	set("save", "3600 1")
	w.requireFinding("persistence", inspect.OK, "snapshots")

	w.requireFinding("policy", inspect.OK, "noeviction")
	set("maxmemory-policy", "allkeys-lru")
	w.requireFinding("policy", inspect.Warning, "allkeys-lru")
	set("maxmemory", "2gb")
	w.requireFinding("policy", inspect.Wrong, "CONFIG SET maxmemory-policy noeviction")
	set("maxmemory-policy", "noeviction")
	set("maxmemory", "1mb")
	w.requireFinding("memory", inspect.Wrong, "registrations and telemetry are refused")
	set("maxmemory", "0")

	there := serverOf(t, &redis.Options{Addr: server.Addr(), DB: 3})
	there.redis("HSET", w.keys.Registry(), imei, "x")
	w.requireFinding("database", inspect.Wrong, "database 3 has keys of the same names")

	w.redis("SET", w.keys.Registry(), "x")
	w.requireFinding("types", inspect.Wrong, "connections:registry is a string but must be a hash")
	w.redis("DEL", w.keys.Registry())

	w.redis("REPLICAOF", "127.0.0.1", "1")
	w.requireFinding("role", inspect.Wrong, "This Redis is a replica")
}

func TestDoctorFindsAClusterNode(t *testing.T) {
	t.Parallel()
	w := serverOf(t, redistest.Start(t, "--cluster-enabled", "yes").Options())
	w.environ[0] += "?db=0" // as a URL of a Cluster has not
	w.requireFinding("cluster", inspect.Wrong, "one node of a Redis Cluster")
}

func TestDoctorFindsWhatIsWrongWithAFleet(t *testing.T) {
	t.Parallel()
	w := serverOf(t, redistest.Start(t).Options())
	at, err := w.client.Time(t.Context()).Result()
	require.NoError(t, err)
	ms := func(d time.Duration) string { return fmt.Sprint(at.Add(d).UnixMilli()) }
	witness := func(pairs ...any) { w.redis(append([]any{"HSET", w.keys.Witness()}, pairs...)...) }

	w.writes("old", time.Minute, imei)
	w.requireFinding("old_writers", inspect.Warning, "Plain writers, which live")
	w.requireFinding("leader", inspect.Wrong, "Nobody leads")
	w.requireFinding("witness", inspect.Wrong, "Nobody has listened to this Redis yet")

	witness("since", ms(-time.Hour), "last", ms(0), "gap", "30000", "grace", "92000")
	w.redis("SADD", w.keys.Roster(), "one")
	w.redis("HSET", w.keys.Registry(), other, "one")
	beat, err := w.client.Time(t.Context()).Result() // the TTL is told by the time since then
	require.NoError(t, err)
	w.redis("SET", w.keys.Heartbeat("one"), heartbeatAt(beat), "EX", 60)
	w.requireFinding("settings", inspect.Wrong, "one (TTL 1m, fleet 1m30s)")
	w.requireFinding("index", inspect.Warning, "the indexes of their live owners lack 1")
	w.redis("SET", w.keys.Heartbeat("one"), heartbeatAt(at))
	w.requireFinding("heartbeats", inspect.Wrong, "never expire: one")

	w.redis("SET", w.keys.Lease(), "one/x")
	w.requireFinding("lease", inspect.Warning, "never expires")
	epoch := at.Add(time.Hour).UnixMicro()
	w.redis("SET", "{janitor:leader}:epoch", epoch)
	w.requireFinding("epoch", inspect.Warning, "ahead of the server's clock")
	witness("last", ms(time.Hour))
	w.requireFinding("witness", inspect.Wrong, "in the future")
	witness("last", ms(-time.Hour))
	w.requireFinding("witness", inspect.Wrong, "Nobody listens to Redis: the last tick was 1h ago")
	witness("since", ms(0), "hold", ms(0), "reason", "settings")
	w.requireFinding("hold", inspect.Warning, "(settings): replicas disagree")

	for n := range 22 {
		w.redis("XADD", w.keys.Log(), fmt.Sprintf("7-%d", n+1), "imeis", strings.Repeat("x", 1<<20))
	}
	w.requireFinding("log", inspect.Warning, "more than the leader should leave")
}

func TestVerifyCountsByOwnerWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		w := newWorld(t, rw)
		w.writes("dead", 0, "1", "2", "3")
		w.writes("one", time.Minute, "4", "5")
		w.redis("SADD", w.keys.Devices("one"), "4", "3", "9")
		w.redis("SADD", w.keys.Roster(), "one", "idle")
		v := ask[inspect.Verification](w, "verify")
		require.Equal(t, inspect.Verification{
			Entries: 5, Dead: 3, NotIndexed: 4, NotEntries: 2,
			Owners: []inspect.OwnerCount{
				{Owner: "dead", Entries: 3, NotIndexed: 3},
				{Owner: "one", Alive: true, Entries: 2, NotIndexed: 1, NotEntries: 2},
				{Owner: "idle"},
			},
		}, v)
		_, table, _ := w.run("verify")
		golden(t, "verify.txt", table)
	})
}

func TestADiagnosisIsALineAFinding(t *testing.T) {
	t.Parallel()
	d := inspect.Diagnosis{Checks: []inspect.Finding{
		{Name: "version", Level: inspect.OK, Sentence: "7.0.15"},
		{Name: "policy", Level: inspect.Wrong, Sentence: "It is allkeys-lru.", Do: "Set noeviction.", Runbook: "redis.md"},
		{Name: "rights:xtrim", Level: inspect.Warning, Sentence: "fleet may not XTRIM."},
	}}
	var table, json bytes.Buffer
	require.NoError(t, showDiagnosis(&table, d, true))
	require.NoError(t, writeJSON(&json, d))
	golden(t, "doctor.txt", table.String())
	golden(t, "doctor.json", json.String())
}

func TestDoctorFindsAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	w := serverOf(t, &redis.Options{Addr: m.Addr()})
	w.requireFinding("clock", inspect.OK, "differs by less than")
	m.SetTime(time.Now().Add(10 * time.Second))
	w.requireFinding("clock", inspect.Warning, "ahead of this machine's")
	m.SetTime(time.Now().Add(-time.Hour))
	w.requireFinding("clock", inspect.Wrong, "behind this machine's")
}

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
	w.tells(`
		0 doctor --all ~ ^warning +persistence +There is no persistence
		0 doctor --all ~ ^ok +policy .*noeviction
		0 redis CONFIG SET maxmemory-policy allkeys-lru
		0 doctor ~ ^warning +policy .*allkeys-lru
		0 redis CONFIG SET maxmemory 2gb
		3 doctor ~ ^wrong +policy .*CONFIG SET maxmemory-policy noeviction
		0 redis CONFIG SET maxmemory-policy noeviction
		0 redis CONFIG SET maxmemory 1mb
		3 doctor ~ ^wrong +memory .*registrations and telemetry are refused
		0 redis CONFIG SET maxmemory 0
		0 redis SET $REGISTRY x
		3 doctor ~ ^wrong +types .*connections:registry is a string but must be a hash
		0 redis DEL $REGISTRY`)
	w.redis("CONFIG SET save", "3600 1")
	serverOf(t, &redis.Options{Addr: server.Addr(), DB: 3}).redis("HSET", w.keys.Registry(), imei, "x")
	w.tells(`
		3 doctor --all ~ ^ok +persistence .*snapshots
		3 doctor ~ ^wrong +database .*database 3 has keys of the same names
		0 redis REPLICAOF 127.0.0.1 1
		3 doctor ~ ^wrong +role .*This Redis is a replica`)
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
	w.writes("old", time.Minute, imei)
	w.tells(`
		3 doctor ~ ^warning +old_writers +Plain writers, which live
		3 doctor ~ ^wrong +leader +Nobody leads
		3 doctor ~ ^wrong +witness +Nobody has listened to this Redis yet
		0 redis HSET $WITNESS since $AGO last $NOW gap 30000 grace 92000
		0 redis SADD $ROSTER one
		0 redis HSET $REGISTRY $OTHER one`, "$AGO", ms(-time.Hour), "$NOW", ms(0))
	beat, err := w.client.Time(t.Context()).Result() // the TTL is told by the time since then
	require.NoError(t, err)
	w.tells(`
		0 redis SET $HEARTBEAT:one $BEAT EX 60
		3 doctor ~ ^wrong +settings .*one \(TTL 1m, fleet 1m30s\)
		3 doctor ~ ^warning +index .*the indexes of their live owners lack 1
		0 redis SET $HEARTBEAT:one $BEAT
		3 doctor ~ ^wrong +heartbeats .*never expire: one
		0 redis SET $LEASE one/x
		3 doctor ~ ^warning +lease .*never expires
		0 redis SET {janitor:leader}:epoch $EPOCH
		3 doctor ~ ^warning +epoch .*ahead of the server's clock
		0 redis HSET $WITNESS last $LATER
		3 doctor ~ ^wrong +witness .*in the future
		0 redis HSET $WITNESS last $AGO
		3 doctor ~ ^wrong +witness .*Nobody listens to Redis: the last tick was 1h ago
		0 redis HSET $WITNESS since $NOW hold $NOW reason settings
		3 doctor ~ ^warning +hold .*\(settings\): replicas disagree`,
		"$BEAT", heartbeatAt(beat), "$EPOCH", fmt.Sprint(at.Add(time.Hour).UnixMicro()), "$AGO", ms(-time.Hour),
		"$NOW", ms(0), "$LATER", ms(time.Hour))
	for n := range 22 {
		w.redis("XADD", w.keys.Log(), fmt.Sprintf("7-%d", n+1), "imeis", strings.Repeat("x", 1<<20))
	}
	w.tells(`3 doctor ~ ^warning +log .*more than the leader should leave`)
}

func TestVerifyCountsByOwnerWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		w := newWorld(t, rw)
		w.writes("dead", 0, "1", "2", "3")
		w.writes("one", time.Minute, "4", "5")
		w.tells(`
			0 redis SADD $DEVICES:one 4 3 9
			0 redis SADD $ROSTER one idle`)
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

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
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// finds asks doctor, and returns its findings by name.
func (w *world) finds() (code int, all map[string]inspect.Finding) {
	w.t.Helper()
	var d inspect.Diagnosis
	code = w.answer(&d, "doctor")
	require.Equal(w.t, d.OK, code == cli.ExitOK)
	all = map[string]inspect.Finding{}
	for _, c := range d.Checks {
		require.NotEmpty(w.t, c.Sentence, c.Name)
		name, _, _ := strings.Cut(c.Name, ":")
		if c.Sentence = c.Text(); all[name].Level != inspect.Wrong {
			all[name] = c
		}
		all[c.Name] = c
	}
	return code, all
}

// requireFinding asks doctor, and requires one finding.
func (w *world) requireFinding(name string, level inspect.Level, says string) {
	w.t.Helper()
	_, all := w.finds()
	require.Equal(w.t, level, all[name].Level, "%s: %v", name, all)
	require.Contains(w.t, all[name].Sentence, says)
}

func TestDoctorFindsAFreshRedisFitBeforeThereIsAFleet(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		w := newWorld(t, rw)
		code, all := w.finds()
		require.Equal(t, cli.ExitOK, code, "%v", all)
		require.Regexp(t, "^there is none yet$|^There is no fleet under the prefix .*; there is one under ", all["fleet"].Sentence)
		if rw.Real {
			require.Equal(t, inspect.OK, all["rights"].Level, all["rights"].Sentence)
		} else {
			require.Contains(t, all["rights"].Sentence, "The rights could not be checked")
		}
		require.Empty(t, w.client.Keys(t.Context(), w.keys.Prefix+"*").Val(), "it changes nothing")
	})
}

func TestDoctorFindsASoundFleetSound(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		one := w.replica("one")
		w.holds(one, imei)
		until(t, "one leads and no hold stands", func() bool {
			s := ask[inspect.Status](w, "status")
			return s.Leader != nil && s.Heard && s.Hold == nil
		})
		// Where a machine is busy, time passes between the questions of which a TTL is reckoned.
		var all map[string]inspect.Finding
		until(t, "settings that agree", func() bool {
			_, all = w.finds()
			return all["settings"].Level == inspect.OK
		})
		for _, name := range []string{
			"leader", "lease", "epoch", "witness", "hold", "heartbeats", "old_writers", "index", "clock",
			"types", "database",
		} {
			require.Equal(t, inspect.OK, all[name].Level, "%s: %s", name, all[name].Sentence)
		}
	})
}

func TestDoctorCountsTheReplicasThatAreExpected(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		counts := func(expect string) (level inspect.Level, sentence string) {
			var d inspect.Diagnosis
			w.answer(&d, "doctor", "--expect", expect)
			for _, c := range d.Checks {
				if c.Name == "replicas" {
					level, sentence = c.Level, c.Sentence
				}
			}
			return level, sentence
		}
		level, _ := counts("2")
		require.Equal(t, inspect.Wrong, level, "there is no fleet yet")
		w.replica("one")
		level, sentence := counts("2")
		require.Equal(t, inspect.Wrong, level)
		require.Equal(t, "1 live, 2 are expected.", sentence)
		w.replica("two")
		level, _ = counts("2")
		require.Equal(t, inspect.OK, level)
		level, _ = counts("1")
		require.Equal(t, inspect.Warning, level)
	})
}

func TestDoctorFindsWhatIsWrongWithAServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := serverOf(t, server.Options())
	ctx := t.Context()
	set := func(name, value string) { require.NoError(t, w.client.ConfigSet(ctx, name, value).Err()) }

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

	there := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 3})
	defer func() { _ = there.Close() }()
	require.NoError(t, there.HSet(ctx, guard.Layout{}.Registry(), imei, "x").Err())
	w.requireFinding("database", inspect.Wrong, "database 3 has keys of the same names")

	require.NoError(t, w.client.Set(ctx, w.keys.Registry(), "x", 0).Err())
	w.requireFinding("types", inspect.Wrong, "connections:registry is a string but must be a hash")
	require.NoError(t, w.client.Del(ctx, w.keys.Registry()).Err())

	require.NoError(t, w.client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
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
	ctx := t.Context()
	at, err := w.client.Time(ctx).Result()
	require.NoError(t, err)
	ms := func(d time.Duration) string { return fmt.Sprint(at.Add(d).UnixMilli()) }
	witness := func(pairs ...any) { require.NoError(t, w.client.HSet(ctx, w.keys.Witness(), pairs...).Err()) }

	w.writes("old", time.Minute, imei)
	w.requireFinding("old_writers", inspect.Warning, "Plain writers, which live")
	w.requireFinding("leader", inspect.Wrong, "Nobody leads")
	w.requireFinding("witness", inspect.Wrong, "Nobody has listened to this Redis yet")

	witness("since", ms(-time.Hour), "last", ms(0), "gap", "30000", "grace", "92000")
	require.NoError(t, w.client.SAdd(ctx, w.keys.Roster(), "one").Err())
	require.NoError(t, w.client.HSet(ctx, w.keys.Registry(), other, "one").Err())
	beat, err := w.client.Time(ctx).Result() // the TTL is told by the time since then
	require.NoError(t, err)
	require.NoError(t, w.client.Set(ctx, w.keys.Heartbeat("one"), heartbeatAt(beat), 60*time.Second).Err())
	w.requireFinding("settings", inspect.Wrong, "one (TTL 1m, fleet 1m30s)")
	w.requireFinding("index", inspect.Warning, "the indexes of their live owners lack 1")
	require.NoError(t, w.client.Set(ctx, w.keys.Heartbeat("one"), heartbeatAt(at), 0).Err())
	w.requireFinding("heartbeats", inspect.Wrong, "never expire: one")

	require.NoError(t, w.client.Set(ctx, w.keys.Lease(), "one/x", 0).Err())
	w.requireFinding("lease", inspect.Warning, "never expires")
	epoch := at.Add(time.Hour).UnixMicro()
	require.NoError(t, w.client.Set(ctx, "{janitor:leader}:epoch", epoch, 0).Err())
	w.requireFinding("epoch", inspect.Warning, "ahead of the server's clock")
	witness("last", ms(time.Hour))
	w.requireFinding("witness", inspect.Wrong, "in the future")
	witness("last", ms(-time.Hour))
	w.requireFinding("witness", inspect.Wrong, "Nobody listens to Redis: the last tick was 1h ago")
	witness("since", ms(0), "hold", ms(0), "reason", "settings")
	w.requireFinding("hold", inspect.Warning, "(settings): replicas disagree")

	for n := range 22 {
		require.NoError(t, w.client.XAdd(ctx, &redis.XAddArgs{
			Stream: w.keys.Log(), ID: fmt.Sprintf("7-%d", n+1), Values: []any{"imeis", strings.Repeat("x", 1<<20)},
		}).Err())
	}
	w.requireFinding("log", inspect.Warning, "more than the leader should leave")
}

func TestVerifyCountsByOwnerWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		w := newWorld(t, rw)
		w.writes("dead", 0, "1", "2", "3")
		w.writes("one", time.Minute, "4", "5")
		require.NoError(t, w.client.SAdd(t.Context(), w.keys.Devices("one"), "4", "3", "9").Err())
		require.NoError(t, w.client.SAdd(t.Context(), w.keys.Roster(), "one", "idle").Err())
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

package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

var now = time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC)

// sampleStatus has something in each column.
func sampleStatus() inspect.Status {
	return inspect.Status{
		Now: now,
		Leader: &inspect.Leader{
			Instance: "ingest-2", Since: now.Add(-133 * time.Second), Epoch: 1893596512000000,
			Address: "10.0.0.2:8080", ExpiresIn: "12s",
		},
		Hold: &inspect.Hold{
			Reason: "restarted", Since: now.Add(-time.Minute), Until: now.Add(32 * time.Second),
			Sentence: "Redis was restarted; nothing is deleted for 32s more", Runbook: "restarted",
		},
		Witness: inspect.Witness{
			Since: now.Add(-time.Minute), LastTick: now.Add(-time.Second), LastHold: now.Add(-time.Minute),
			Reason: "restarted", Evicted: 1044,
		},
		Heard: true, Entries: 99044,
		Instances: []inspect.Instance{
			{ID: "ingest-1", Devices: 33015, Alive: true, LastBeat: now.Add(-4 * time.Second),
				Started: now.Add(-25 * time.Hour), ExpiresIn: "1m26s", TTL: "1m30s", Interval: "30s", Version: "v0.1.0"},
			{ID: "ingest-2", Devices: 66029, Alive: true, LastBeat: now.Add(-21 * time.Second),
				Started: now.Add(-3 * time.Hour), ExpiresIn: "39s", TTL: "1m", Differs: "TTL 1m, fleet 1m30s"},
			{ID: "ingest-7", Devices: -1},
			{ID: "old\n1", Devices: 3, Alive: true, ExpiresIn: "50s", Old: true},
		},
		Sweeps: []inspect.Record{{
			Sweep: "owners", At: now.Add(-12 * time.Minute), Epoch: 1893596512000000, Leader: "ingest-2",
			Owner: "ingest-7", Count: 44,
		}},
		Passes: []janitor.Report{{
			Sweep: "registry", Epoch: 1893596512000000, Outcome: janitor.Held, Reason: "restarted",
			Started: now.Add(-20 * time.Second), Seconds: 0.012, Scanned: 7,
		}},
		Redis: inspect.Server{
			Version: "7.0.15", Role: "master", Policy: "noeviction", MaxMemory: 1 << 30, Memory: 12 << 20, Clients: 17,
		},
	}
}

func TestStatusIsATableForPeopleAndJSONForPrograms(t *testing.T) {
	var table, json bytes.Buffer
	require.NoError(t, showStatus(&table, sampleStatus()))
	require.NoError(t, writeJSON(&json, sampleStatus()))
	golden(t, "status.txt", table.String())
	golden(t, "status.json", json.String())
}

func TestStatusOfAFleet(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		one := w.replica("one")
		until(t, "one leads", func() bool {
			s := ask[inspect.Status](w, "status")
			return s.Leader != nil && s.Leader.Epoch > 0
		})
		w.writes("dead", 0, other)
		w.tells(`
			0 why $OTHER ~ will go once sweeping goes on, unless dead beats: dead has no heartbeat
			0 why $OTHER ~ \. Now nothing is swept: the fleet has just started`)
		w.redis("DEL", w.keys.Registry())
		w.redis("HDEL", w.keys.Beats(), "dead")
		w.replica("two")
		w.holds(one, imei)
		w.writes("old", time.Minute, "356307042441014", "356307042441015")

		var s inspect.Status
		until(t, "a beat that was not late tells its TTL", func() bool {
			s = ask[inspect.Status](w, "status")
			return len(s.Instances) == 3 && s.Instances[1].TTL == "3s"
		})
		require.Equal(t, "one", s.Leader.Instance)
		require.WithinDuration(t, s.Now, s.Leader.Since, patience)
		require.True(t, s.Heard)
		require.NotNil(t, s.Hold, "nobody has listened for a grace period yet")
		require.Equal(t, "gap", s.Hold.Reason)
		require.Contains(t, s.Hold.Sentence, "nothing is deleted for")
		require.EqualValues(t, 3, s.Entries)
		old, first := s.Instances[0], s.Instances[1]
		require.True(t, old.Alive && old.Old)
		require.EqualValues(t, 2, old.Devices)
		require.True(t, first.Alive)
		require.False(t, first.Old)
		require.Empty(t, first.Differs)
		require.WithinDuration(t, s.Now, first.LastBeat, patience)
		w.tells(`
			0 status ~ ^leader +one, since .*, term \d+$
			0 status ~ ^sweeping +not now: Sweeping is held \(gap\): Redis was not observed
			0 status ~ ^old +2 +yes (.*\n)*one +1 +yes (.*\n)*two +0 +yes
			`)
		until(t, "the hold ends", func() bool { return ask[inspect.Status](w, "status").Hold == nil })
	})
}

func TestWhoDiffersIsWhoDiffersFromMost(t *testing.T) {
	t.Parallel()
	w := shared(t)
	at, err := w.client.Time(t.Context()).Result()
	require.NoError(t, err)
	for id, ttl := range map[string]int{"a": 60, "b": 60, "c": 90} {
		w.redis("SADD", w.keys.Roster(), id)
		w.redis("SET", w.keys.Heartbeat(id), heartbeatAt(at), "EX", ttl)
	}
	// The one that differs has ticked last.
	w.redis("HSET", w.keys.Witness(), "since", at.UnixMilli(), "last", at.UnixMilli(), "gap", 30_000, "grace", 92_000)
	var differ []string
	for _, in := range ask[inspect.Status](w, "status").Instances {
		differ = append(differ, in.Differs)
	}
	require.Equal(t, []string{"", "", "TTL 1m30s, fleet 1m"}, differ)
}

func TestStatusSaysThatTheLeaderIsSilent(t *testing.T) {
	t.Parallel()
	w := shared(t)
	w.tells(`
		0 redis SADD $ROSTER dead
		0 redis SET $LEASE dead/x EX 9
		0 status ~ ^sweeping +not now: Nobody leads: dead holds the lease for \S+ more but is no living instance`)
}

func TestOneThatDoesNotAnswerAndAKeyOfSomebodyElseHideNothingElse(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		w := newWorld(t, rw)
		w.writes("one", time.Minute, imei)
		w.redis("HSET", w.keys.Registry(), other, "")
		w.tells(`
			0 redis SET $DEVICES:one text
			0 redis SADD $ROSTER one`)
		w.redis("HSET", w.keys.Witness(), "since", time.Now().UnixMilli(), "grace", 60_000, "reason", "of another version")

		var s struct {
			inspect.Status
			Replicas []answer
		}
		w.answer(&s, "status", "--http", "http://127.0.0.1:1")
		require.Len(t, s.Instances, 1, "an entry without an owner is no instance's: %v", s)
		require.True(t, s.Instances[0].BadIndex)
		require.Contains(t, s.Replicas[0].Error, "connection refused")
		require.Equal(t, "unknown", s.Hold.Runbook)
		w.tells(`
			0 status --http http://127.0.0.1:1 ~ ^127.0.0.1:1 .*no answer: .*connection refused$
			0 status ~ ^one +1 .*its index is no set
			`)
		w.requireFinding("index", inspect.Wrong, "is not a set")
		require.Equal(t, 1, ask[inspect.Verification](w, "verify").NotIndexed)
		var found inspect.Found
		require.Equal(t, cli.ExitNo, w.answer(&found, "find", other))
		require.Equal(t, "nobody holds "+other+": its entry is empty", found.Sentence)
		why := ask[inspect.Why](w, "why", other)
		require.Equal(t, inspect.Kept, why.Verdict)
		require.Contains(t, why.Sentence, "nothing can judge it")
	})
}

func TestAllReplicasAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	w := serverOf(t, &redis.Options{Addr: miniredis.RunT(t).Addr()})
	var asked sync.WaitGroup
	asked.Add(2)
	replica := func() string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Done()
			asked.Wait() // one after the other, each would wait for the other in vain
			_, _ = w.Write([]byte("{}"))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	_, table, _ := w.run("status", "--http", replica()+","+replica())
	require.NotContains(t, table, "no answer")
	require.Contains(t, table, "not in this Redis, or cut off from it")
}

package inspect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// check asks doctor for one check.
func (l *logged) check(name string) Finding {
	l.t.Helper()
	return finding(l.t, l.doctor().Checks, name)
}

// finding returns the worst of this name.
func finding(t *testing.T, all []Finding, name string) Finding {
	t.Helper()
	i := slices.IndexFunc(all, func(f Finding) bool { return f.Name == name })
	require.GreaterOrEqual(t, i, 0, "%s: %v", name, all)
	return all[i]
}

// ticks has somebody listen to Redis.
func (l *logged) ticks(keys guard.Layout) {
	l.t.Helper()
	_, err := guard.New(l.Client, l.Client, keys, guard.Timing{Interval: 20 * time.Second, TTL: time.Minute},
		"one").Tick(l.t.Context())
	require.NoError(l.t, err)
}

// leads makes one lead, live and describe itself with these passes.
func (l *logged) leads(passes ...janitor.Report) {
	l.t.Helper()
	ctx := l.t.Context()
	term := l.term(time.Minute)
	require.NoError(l.t, l.Set(ctx, l.keys.Lease(), "one/x", time.Minute).Err())
	require.NoError(l.t, l.Set(ctx, "{"+l.keys.Lease()+"}:epoch", term, 0).Err())
	l.record(fmt.Sprintf("%d-0", term), "leader", "one", "term", "one/x")
	boot := fmt.Sprintf("%016d%010d", l.now.Add(-time.Hour).UnixMicro(), 7)
	beat := fmt.Sprintf("%d/%s", l.now.UnixMilli(), boot)
	require.NoError(l.t, l.Set(ctx, l.keys.Heartbeat("one"), beat, time.Minute).Err())
	require.NoError(l.t, l.SAdd(ctx, l.keys.Roster(), "one").Err())
	text, err := json.Marshal(About{Boot: boot, Program: "ingest", Passes: passes})
	require.NoError(l.t, err)
	require.NoError(l.t, l.Set(ctx, l.keys.About("one"), text, 0).Err())
	l.ticks(l.keys)
}

func own(t *testing.T, args ...string) *logged {
	t.Helper()
	server := redistest.Start(t, args...)
	w := redistest.World{Client: server.Client(), Options: server.Options(), Real: true}
	return setup(t, w)
}

func TestAFullRedisIsTheFirstProblemAndTheCause(t *testing.T) {
	t.Parallel()
	l := own(t)
	ctx := t.Context()
	l.leads()
	require.NoError(t, l.HSet(ctx, l.keys.Witness(), "last", l.now.Add(-time.Hour).UnixMilli(),
		"since", l.now.Add(-2*time.Hour).UnixMilli()).Err())
	s := l.status()
	require.Contains(t, names(s), "witness")

	require.NoError(t, l.ConfigSet(ctx, "maxmemory", "1mb").Err())
	s = l.status()
	require.NotContains(t, names(s), "witness", "memory is the cause")
	require.Equal(t, "memory", s.Findings()[0].Name)
	require.Contains(t, s.Findings()[0].Sentence, "registrations and telemetry are refused, and so are ticks")
	require.Equal(t, Wrong, l.check("memory").Level)
	why, err := l.r.Why(ctx, s, "356307042441013")
	require.NoError(t, err)
	require.Contains(t, why.Sentence, "Redis is full, and refuses writes, so registrations are refused")
	found, err := l.r.Find(ctx, s, "356307042441013")
	require.NoError(t, err)
	require.Contains(t, found.Sentence, "Redis is full, and refuses writes, so registrations are refused")

	require.NoError(t, l.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	require.Contains(t, l.check("memory").Sentence, "Redis evicts keys for want of memory")
	s = l.status()
	require.Contains(t, names(s), "policy")
	require.False(t, s.full(), "it does not refuse")
}

func TestAnEntryThatNobodyCanJudgeIsNamed(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		ctx := t.Context()
		l.leads()
		require.NoError(t, l.HSet(ctx, l.keys.Registry(), "356307042441013", "one").Err())
		require.Equal(t, OK, l.check("entries").Level)
		require.NoError(t, l.HSet(ctx, l.keys.Registry(), "356307042441014", "").Err())
		s := l.status()
		require.Equal(t, []string{"356307042441014"}, s.Unreadable)
		require.Len(t, s.Instances, 1, "it names no instance")
		require.Contains(t, names(s), "entries:unreadable")
		require.Contains(t, l.check("entries:unreadable").Sentence, "356307042441014")

		require.NoError(t, l.HSet(ctx, l.keys.Registry(), "356307042441015", strings.Repeat("x", 257)).Err())
		v, err := l.r.Verify(ctx)
		require.NoError(t, err)
		require.Equal(t, 3, v.Entries)
		require.Equal(t, 2, v.Unreadable)
		require.ElementsMatch(t, []string{"356307042441014", "356307042441015"}, v.UnreadableEntries)
		require.Zero(t, v.Dead)
		require.Len(t, v.Owners, 1)
	})
}

func TestDoctorIsNoMilderThanThePage(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		ctx := t.Context()
		pass := func(sweep string, o janitor.Outcome, reason, text string) janitor.Report {
			return janitor.Report{Sweep: sweep, Epoch: uint64(l.term(time.Minute)), Outcome: o, Reason: reason, Error: text}
		}
		l.leads(pass("registry", janitor.Failed, "", "NOPERM no HSCAN"), pass("bots", janitor.Held, "reference_lost", ""),
			pass("owners", janitor.Held, "gap", ""))
		d := l.doctor()
		require.False(t, d.OK)
		var passes []string
		for _, c := range d.Checks {
			if strings.HasPrefix(c.Name, "passes:") {
				require.Equal(t, Wrong, c.Level)
				passes = append(passes, c.Sentence)
			}
		}
		require.Len(t, passes, 2, "a hold of the fleet has its own line")
		require.Contains(t, strings.Join(passes, " "), "The last pass of registry failed: NOPERM no HSCAN.")
		require.Contains(t, strings.Join(passes, " "), "The rule bots is held: reference_lost.")

		require.NoError(t, l.Del(ctx, l.keys.Heartbeat("one"), l.keys.Lease()).Err())
		require.Equal(t, Wrong, l.check("leader").Level)
		s := l.status()
		for _, p := range s.Findings() {
			require.Equal(t, p.Level, l.check(p.Name).Level, p.Name)
		}
	})
}

func TestAdviceNamesTheUserAndTheKey(t *testing.T) {
	t.Parallel()
	l := own(t)
	ctx := t.Context()
	require.NoError(t, l.Do(ctx, "ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all", "-hdel", "-acl",
		"-publish").Err())
	o := *l.Options()
	o.Username, o.Password = "ann", "secret"
	client := redis.NewClient(&o)
	t.Cleanup(func() { _ = client.Close() })
	l.r = New(client, l.keys)
	require.Equal(t, "ACL SETUSER ann +hdel '~connections:registry'", l.check("rights:hdel").Do)
	require.Contains(t, l.check("rights:publish").Do, "ACL SETUSER ann +publish '&{janitor:leader}:released'")
}

func TestARightThatLacksForASampleHidesNothingElse(t *testing.T) {
	t.Parallel()
	l := own(t)
	ctx := t.Context()
	l.leads(janitor.Report{Sweep: "registry", Outcome: janitor.Failed, Error: "NOPERM hscan"})
	require.NoError(t, l.HSet(ctx, l.keys.Registry(), "356307042441013", "one").Err())
	require.NoError(t, l.Do(ctx, "ACL", "SETUSER", "default", "-hscan").Err())
	s := l.status()
	require.EqualValues(t, 1, s.Entries)
	require.Equal(t, "passes:registry", s.Findings()[0].Name)
	require.Equal(t, Wrong, l.check("rights:hscan").Level)
	require.Equal(t, Wrong, l.check("passes:registry").Level)
}

func TestWhatEachReplicaAndSweepReportsIsSaidOnce(t *testing.T) {
	t.Parallel()
	away := func(sweep string) janitor.Report {
		return janitor.Report{Sweep: sweep, Outcome: janitor.Failed, Error: "list the silent: connection refused"}
	}
	nobody := Knows{NobodyAllowed: true}
	s := Status{Leader: &Leader{Instance: "one", Epoch: 1}, Heard: true,
		Passes:    []janitor.Report{away("offline"), away("heartbeats"), {Sweep: "rooms", Outcome: janitor.Failed, Error: "no"}},
		Instances: []Instance{{ID: "one", Alive: true, Knows: nobody}, {ID: "two", Alive: true, Knows: nobody}}}
	var said []string
	for _, f := range s.findings("passes", "failing") {
		said = append(said, f.Sentence)
	}
	require.Equal(t, []string{
		"one, two: DEVICE_AUTHORITY is set, and the set devices:allowed is empty: no device is served.",
		"The last pass of offline, heartbeats failed: list the silent: connection refused.",
		"The last pass of rooms failed: no.",
	}, said)
}

func TestANumberOfPartitionsBesideAnUndividedFleetIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := setup(t, redistest.World{Client: server.Client()})
	require.NoError(t, l.Set(t.Context(), "{rollcall}:partitions", 4, 0).Err())
	found := l.check("database")
	require.Equal(t, Warning, found.Level)
	require.Contains(t, found.Sentence, "{rollcall}:partitions is 4")
	require.Contains(t, found.Do, "redis-cli DEL '{rollcall}:partitions'")
}

func TestTheWitnessOfAFormerFleetIsNoEvidenceOfPartitions(t *testing.T) {
	t.Parallel()
	l := setup(t, redistest.World{Client: redistest.Start(t).Client(), Prefix: "{rollcall}:"})
	former := l.keys.Partition(0, 4)
	l.ticks(former)
	longAgo := l.now.Add(-time.Hour).UnixMilli()
	require.NoError(t, l.HSet(t.Context(), former.Witness(), "since", longAgo, "last", longAgo).Err())
	require.NoError(t, l.Set(t.Context(), l.keys.Partitions(), 8, 0).Err())
	s := l.status()
	require.Equal(t, 8, s.Partitions.Count)
	require.Nil(t, s.overwritten)
}

func TestAnEpochThatWasDeletedIsNotCalledFine(t *testing.T) {
	t.Parallel()
	l := own(t)
	l.leads()
	require.Equal(t, OK, l.check("epoch").Level)
	require.NoError(t, l.Del(t.Context(), "{"+l.keys.Lease()+"}:epoch").Err())
	require.Contains(t, l.check("epoch").Sentence, "not there, although one leads")
}

func TestANumberOfPartitionsThatSomebodyOverwroteHidesNoFleet(t *testing.T) {
	t.Parallel()
	l := setup(t, redistest.World{Client: redistest.Start(t).Client(), Prefix: "{rollcall}:"})
	for k := range 4 {
		l.ticks(l.keys.Partition(k, 4))
	}
	for _, is := range []string{"8", "4", "2", "4", "1 or missing", "4"} {
		require.NoError(t, l.Set(t.Context(), l.keys.Partitions(), is[:1], 0).Err())
		s := l.status()
		require.Equal(t, 4, s.Partitions.Count)
		if is == "4" {
			require.NotContains(t, names(s), "partitions")
			continue
		}
		shown := finding(t, s.Findings(), "partitions")
		require.Contains(t, shown.Sentence, "{rollcall}:partitions is "+is+", but the fleet has 4")
		require.Equal(t, "redis-cli SET '{rollcall}:partitions' 4.", shown.Do)
		require.Equal(t, Wrong, shown.Level)
		require.Equal(t, shown, l.check("partitions"))
	}
}

func TestACauseThatAReplicaKnowsStandsForWhatFollowsFromIt(t *testing.T) {
	t.Parallel()
	const refused = "ERR The user executing the script can't run this command script: " +
		"10b4d3a036d08927e91102998a9d59e67409cc3d, on @user_script:57."
	pass := func(spared janitor.SkipReason) []janitor.Report {
		return []janitor.Report{{Sweep: "owners", Outcome: janitor.Done, Condemned: 26,
			Spared: map[janitor.SkipReason]int{spared: 26}}}
	}
	led := Status{Leader: &Leader{Instance: "one", Epoch: 1, ExpiresIn: "9s"}, Heard: true,
		Instances: []Instance{{ID: "one", Alive: true}}}
	of := func(change func(s *Status)) Status { s := led; change(&s); return s }
	knows := func(s Status, k Knows) Status {
		s.parts = s.glances()
		return s.Learn("one", k)
	}
	dead := of(func(s *Status) {
		s.Leader, s.Heard, s.Instances = &Leader{Instance: "one", silent: true, ExpiresIn: "2s"}, false,
			[]Instance{{ID: "one"}}
	})
	for name, row := range map[string]struct {
		s    Status
		want []string
	}{
		"deletes that Redis refuses": {of(func(s *Status) { s.Passes = pass(janitor.SkipUnreadable) }),
			[]string{"Redis refused to delete 26 entries that the last pass of owners condemned."}},
		"entries that name others by now": {of(func(s *Status) { s.Passes = pass(janitor.SkipReowned) }), nil},
		"nobody may beat": {knows(dead, Knows{Failing: map[string]string{"heartbeat": refused},
			Refused: refused, Lacks: []string{"TIME"}}),
			[]string{"Redis' user lacks a right (ERR The user executing the script can't run this command). No device can be " +
				"registered, no heartbeat lands, and nothing is swept.", "one: its user may not TIME."}},
		"one may not write": {knows(led, Knows{Failing: map[string]string{"heal": "OOM x", "heartbeat": "OOM y"}}),
			[]string{"one: heal fails: Redis is full, and refuses writes (OOM x).",
				"one: heartbeat fails: Redis is full, and refuses writes (OOM y)."}},
		"a server of several is away": {of(func(s *Status) {
			s.Unread = []unreadServer{{Server: "h:1", Error: "i/o timeout"}}
			s.Instances = []Instance{{ID: "one", Alive: true,
				Knows: Knows{Failing: map[string]string{"check": "i/o timeout"}}}}
		}), []string{"Redis at h:1 does not answer (i/o timeout), which has the fleet's own keys. Its devices can be neither " +
			"registered nor found, and nothing of theirs is swept."}},
		"clients": {of(func(s *Status) {
			s.Redis = Server{Clients: 26, info: map[string]string{"maxclients": "26"}}
		}),
			[]string{"Redis has as many clients as it takes (maxclients 26): further ones are refused, replicas among them."}},
		"a rule without answers": {knows(led, Knows{Untold: map[string][2]int{"carts": {60, 60}}}),
			[]string{"one: the rule carts keeps 60 of its 60 candidates because a sign has no answer."}},
	} {
		var said []string
		for _, f := range row.s.Findings() {
			said = append(said, f.Sentence)
		}
		require.Equal(t, row.want, said, name)
	}
}

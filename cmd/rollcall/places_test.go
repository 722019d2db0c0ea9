package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

const mitra = "11111111-1111-4111-8111-111111111111"

// availabilityFleet is one replica, on a PostgreSQL with one mitra who is online.
func availabilityFleet(t *testing.T, rw redistest.World) *world {
	rw.Prefix += "{availability}:"
	w := newWorld(t, rw)
	w.listened()
	ctx := t.Context()
	db := pgtest.Database(t)
	source, err := postgres.Open(ctx, db.URL)
	require.NoError(t, err)
	t.Cleanup(func() { source.Close() })
	require.NoError(t, source.Migrate(ctx))
	_, err = db.Exec(ctx, "INSERT INTO mitras (id) VALUES ($1)", mitra)
	require.NoError(t, err)
	data, control := w.clients()
	t.Cleanup(func() { _, _ = data.Close(), control.Close() })
	mirror, err := availability.New(availability.Config{
		Source: source, Client: data, Control: control, Layout: w.keys, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	running, stop := context.WithCancel(context.Background())
	work := pool.New().WithContext(running)
	work.Go(mirror.Run)
	t.Cleanup(func() {
		stop()
		require.NoError(t, work.Wait())
	})
	<-mirror.Ready()
	w.replica("dispatch", mirror.Sweeps()...)
	_, err = mirror.Online(ctx, mitra)
	require.NoError(t, err)
	_, err = mirror.Heartbeat(ctx, mitra)
	require.NoError(t, err)
	return w
}

func TestEveryVerbOnAFleetOfAvailability(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, rw redistest.World) {
		w := availabilityFleet(t, rw)
		until(t, "it leads", func() bool { code, _, _ := w.run("wait", "--leader"); return code == 0 })
		p := w.keys.Prefix
		w.answers(append([]expected{
			{"status", 0, `^dispatch +0 +yes `},
			{"find " + mitra, 3, "^nobody holds "},
			{"why " + mitra, 0, "^kept: this mitra is online in the mirror of PostgreSQL; its last heartbeat was (just now|.+s ago); " +
				"sessions: 0"},
			{"why " + p + "mitra:heartbeat:" + mitra, 0,
				"^kept: it is the last heartbeat of a mitra, a part of "},
			{"why " + p + "mitras:online", 0, "^kept: it is the mitras who are online, a part of "},
			{"why " + p + "mitras:version", 0, "^kept: it is the version that was applied"},
			{"why " + p + "mitras:seeded", 0, "^kept: it is the sign that the mirror is whole"},
			{"why " + p + "mitra:heartbeat:nobody", 3, "^not there, and no record"},
			{"log", 0, `\(leads\)`}, {"events", 0, "dispatch leads"}, {"list nobody", 3, ""},
			{"doctor --all", 0, "^ok +leader +dispatch has led"},
			{"verify", 0, "^0 entries"},
			{"pause look --for 1h", 0, "^paused for 1h"},
			{"resume", 0, "^not paused"},
			{"wait --leader", 0, "^dispatch leads$"},
			{"restore --list", 0, "^the bins are empty"},
		}, fixed...))
	})
}

func TestEveryVerbOnTheEmbeddedServer(t *testing.T) {
	t.Parallel()
	var embedded connect.Redis
	require.NoError(t, embedded.Parse(connect.EmbeddedRedis))
	clients, err := connect.Open(t.Context(), &embedded, time.Second)
	require.NoError(t, err)
	defer func() { require.NoError(t, clients.Close()) }()
	w := serverOf(t, &redis.Options{Addr: clients.Embedded, MaxRetries: -1, ContextTimeoutEnabled: true})

	func() {
		one := w.replica("one")
		defer one.stop()
		w.holds(one, imei)
		until(t, "it leads", func() bool { code, _, _ := w.run("wait", "--leader"); return code == 0 })
		w.answers(append([]expected{
			{"status", 0, `^one +1 +yes `},
			{"find " + imei, 0, "^one holds "},
			{"why " + imei, 0, "^kept: its owner one beat "},
			{"why " + w.keys.Roster(), 0, "^kept: the key is there, a set"},
			{"log", 0, `\(leads\)`}, {"events", 0, "one leads"}, {"list one", 0, "^" + imei + "$"},
			{"doctor", 0, "^warning +policy +This server does not report"},
			{"verify", 0, "^1 entries"},
			{"pause x", 0, "^paused until it is resumed"},
			{"resume", 0, "^not paused"},
			{"wait --leader", 0, "^one leads$"},
			{"restore --last", 3, "^nothing to restore"},
		}, fixed...))
	}()
}

func TestEveryVerbOnAFleetOfOldWriters(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		w.writes("old", time.Minute, imei)
		w.writes("dead", 0, other)
		w.answers(append([]expected{
			{"status", 0, `^old +1 +yes +plain writer: not healed `},
			{"find " + imei, 0, "^old holds " + imei + "; it lives: its heartbeat exists"},
			{"find " + other, 0, "^the entry of .* names dead, which has no heartbeat"},
			{"why " + imei, 0, "^kept: its owner old lives"},
			{"why " + other, 0, "^kept: dead has no heartbeat. But nothing is swept: Nobody leads"},
			{"log", 0, "^AT +TERM"}, {"events", 0, "^nothing happened that Redis still knows"}, {"list old", 0, "^" + imei + "$"},
			{"doctor", 3, "^wrong +leader +Nobody leads"},
			{"doctor", 3, "^warning +old_writers +Plain writers, .*: old [(]1 entry[)]"},
			{"verify", 0, "^2 entries: of dead owners 1"},
			{"pause x", 0, "^paused until it is resumed"},
			{"resume", 0, "^not paused"},
			{"wait --converged --timeout 1s", 3, "^Nobody leads"},
			{"wait --gone dead --timeout 1s", 3, "^dead is dead, and 1 entry still name it"},
			{"restore --last", 3, "^nothing to restore"},
		}, fixed...))
	})
}

func TestEveryVerbOnAnEmptyRedis(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		s := ask[inspect.Status](w, "status")
		require.Nil(t, s.Leader)
		require.Nil(t, s.Hold)
		require.False(t, s.Heard)
		require.NotNil(t, s.Instances)
		rights := "^warning +rights +The rights could not be checked"
		if rw.Real {
			rights = "^ok +rights "
		}
		w.tells(expected{"doctor --all", 0, rights}, expected{"doctor --expect 2", 3, "^wrong +replicas "})
		require.Empty(t, w.client.Keys(t.Context(), w.keys.Prefix+"*").Val(), "they only read")
		w.answers(append([]expected{
			{"status", 3, "^there is no fleet: this Redis .* has nothing under the prefix \"{0,1}.*; (look at REDIS_URL|there is one under )"},
			{"find " + imei, 3, "^nobody holds " + imei},
			{"why " + imei, 3, "^not there, .*the log is empty"},
			{"why no:such:key", 3, "^not there, "},
			{"log", 0, "^AT +TERM"},
			{"log --json", 0, "^$"},
			{"events", 0, "^nothing happened"}, {"list nobody", 3, ""},
			{"doctor --all", 0, "fleet +(there is none yet|There is no fleet under)"},
			{"verify", 0, "^0 entries"},
			{"wait --leader --timeout 1s", 3, "(?i)nobody "},
			{"wait --gone one", 0, "^nothing is left of one"},
			{"restore --list", 0, "^the bins are empty"},
			{"restore a/1-1:1", 3, "^a/1-1:1 +- +no +no bin has it"},
			{"resume", 0, "^not paused"},
		}, append(fixed, expected{"pause x", 0, "^paused until"})...))
	})
}

func TestEveryVerbOnARedisOfSomebodyElse(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		for _, of := range [][]any{
			{"SET", w.keys.Registry(), "x"}, {"RPUSH", w.keys.Roster(), "x"}, {"HSET", w.keys.Lease(), "x", "y"},
			{"SET", w.keys.Witness(), "x"}, {"SADD", w.keys.Log(), "x"}, {"SET", w.keys.Prefix + "orphan:passes", "x"},
		} {
			w.redis(of...)
		}
		const wrong = "rollcall doctor names it.*WRONGTYPE"
		w.answers(append([]expected{
			{"status", 0, `^wrong +types +\S*connections:registry is a string but must be a hash`}, {"find " + imei, 1, wrong}, {"why " + imei, 1, wrong},
			{"why key", 1, wrong},
			{"log", 1, wrong}, {"events", 0, "^nothing happened"}, {"verify", 1, wrong}, {"list x", 1, wrong},
			{"wait --leader --timeout 1s", 3,
				`^Nobody leads: \(a key of another type\) holds the lease, which never ends, but is no living instance`},
			{"wait --gone x --timeout 1s", 1, wrong}, {"restore --list", 1, wrong},
			{"restore --last", 1, wrong},
			{"doctor", 3, `^wrong +types +\S*connections:registry is a string but must be a hash`},
			{"pause x", 0, "^paused until"},
			{"resume", 0, "^not paused"},
		}, fixed...))
	})
}

// refusing are the calls of a Redis that answers nobody, or not this user.
func refusing(says string) []expected {
	all := []expected{{"pause x --for 1h", 1, says}, {"resume", 1, says}, {"restore a/1-1:1", 1, says}}
	for _, args := range []string{
		"status", "list x", "find " + imei, "why " + imei, "why key", "log", "log --follow", "events", "doctor", "verify",
		"wait --leader --timeout 1s", "restore --list", "restore --last",
	} {
		all = append(all, expected{args, 1, says})
	}
	return append(all, fixed...)
}

func TestEveryVerbWhereNoRedisIs(t *testing.T) {
	t.Parallel()
	w := &world{t: t, environ: []string{"REDIS_URL=redis://127.0.0.1:1"}}
	w.answers(refusing("127.0.0.1:1: connect: connection refused"))
}

func TestEveryVerbWithAWrongPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client().ConfigSet(t.Context(), "requirepass", "right").Err())
	w := &world{t: t, environ: []string{"REDIS_URL=redis://:guessed@" + server.Addr()}}
	w.answers(refusing("WRONGPASS"))
	w.environ = []string{"REDIS_URL=redis://" + server.Addr()}
	w.answers(refusing("NOAUTH"))
	for _, c := range refusing("") {
		_, stdout, stderr := w.runPlainly(append(strings.Fields(c.args), "--redis-url",
			"redis://:guessed@"+server.Addr())...)
		require.NotContains(t, stdout+stderr, "guessed", c.args)
	}
}

package main

import (
	"context"
	"log/slog"
	"slices"
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
		w.answers(`
			0 status ~ ^dispatch +0 +yes
			3 find $MITRA ~ ^nobody holds
			0 why $MITRA ~ ^kept: this mitra is online in the mirror of PostgreSQL; its last heartbeat
			0 why $MITRA ~ heartbeat was (just now|.+s ago); sessions: 0
			0 why $Pmitra:heartbeat:$MITRA ~ ^kept: it is the last heartbeat of a mitra, a part of
			0 why $Pmitras:online ~ ^kept: it is the mitras who are online, a part of
			0 why $Pmitras:version ~ ^kept: it is the version that was applied
			0 why $Pmitras:seeded ~ ^kept: it is the sign that the mirror is whole
			3 why $Pmitra:heartbeat:nobody ~ ^not there, and no record
			0 log ~ \(leads\)
			0 events ~ dispatch leads
			3 list nobody
			0 doctor --all ~ ^ok +leader +dispatch has led
			0 verify ~ ^0 entries
			0 pause look --for 1h ~ ^paused for 1h
			0 resume ~ ^not paused
			0 wait --leader ~ ^dispatch leads$
			0 restore --list ~ ^the bins are empty
			`+fixed, "$MITRA", mitra, "$P", p)
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
		w.answers(`
			0 status ~ ^one +1 +yes
			0 find $IMEI ~ ^one holds
			0 why $IMEI ~ ^kept: its owner one beat
			0 why $ROSTER ~ ^kept: the key is there, a set
			0 log ~ \(leads\)
			0 events ~ one leads
			0 list one ~ ^$IMEI$
			0 doctor ~ ^warning +policy +This server does not report
			0 verify ~ ^1 entries
			0 pause x ~ ^paused until it is resumed
			0 resume ~ ^not paused
			0 wait --leader ~ ^one leads$
			3 restore --last ~ ^nothing to restore
			`+fixed, "$ROSTER", w.keys.Roster())
	}()
}

func TestEveryVerbOnAFleetOfOldWriters(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		w.writes("old", time.Minute, imei)
		w.writes("dead", 0, other)
		w.answers(`
			0 status ~ ^old +1 +yes +plain writer: not healed
			0 find $IMEI ~ ^old holds $IMEI; it lives: its heartbeat exists
			0 find $OTHER ~ ^the entry of .* names dead, which has no heartbeat
			0 why $IMEI ~ ^kept: its owner old lives
			0 why $OTHER ~ ^kept: dead has no heartbeat. But nothing is swept: Nobody leads
			0 log ~ ^AT +TERM
			0 events ~ ^nothing happened that Redis still knows
			0 list old ~ ^$IMEI$
			3 doctor ~ ^wrong +leader +Nobody leads
			3 doctor ~ ^warning +old_writers +Plain writers, .*: old [(]1 entry[)]
			0 verify ~ ^2 entries: of dead owners 1
			0 pause x ~ ^paused until it is resumed
			0 resume ~ ^not paused
			3 wait --converged --timeout 1s ~ ^Nobody leads
			3 wait --gone dead --timeout 1s ~ ^dead is dead, and 1 entry still name it
			3 restore --last ~ ^nothing to restore
			` + fixed)
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
		w.tells(`
			0 doctor --all ~ $RIGHTS
			3 doctor --expect 2 ~ ^wrong +replicas
			`, "$RIGHTS", rights)
		require.Empty(t, w.client.Keys(t.Context(), w.keys.Prefix+"*").Val(), "they only read")
		w.answers(`
			3 status ~ ^there is no fleet: this Redis .* has nothing under the prefix "
			3 status ~ ; (look at REDIS_URL|there is one under )
			3 find $IMEI ~ ^nobody holds $IMEI
			3 why $IMEI ~ ^not there, .*the log is empty
			3 why no:such:key ~ ^not there,
			0 log ~ ^AT +TERM
			0 log --json ~ ^$
			0 events ~ ^nothing happened
			3 list nobody
			0 doctor --all ~ fleet +(there is none yet|There is no fleet under)
			0 verify ~ ^0 entries
			3 wait --leader --timeout 1s ~ (?i)nobody
			0 wait --gone one ~ ^nothing is left of one
			0 restore --list ~ ^the bins are empty
			3 restore a/1-1:1 ~ ^a/1-1:1 +- +no +no bin has it
			0 resume ~ ^not paused
			0 pause x ~ ^paused until
			` + fixed)
	})
}

func TestEveryVerbOnARedisOfSomebodyElse(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		w.tells(`
			0 redis SET $REGISTRY x
			0 redis RPUSH $ROSTER x
			0 redis HSET $LEASE x y
			0 redis SET $WITNESS x
			0 redis SADD $LOG x
			0 redis SET $PREFIXorphan:passes x`)
		const wrong = "rollcall doctor names it.*WRONGTYPE"
		w.answers(`
			0 status ~ ^wrong +types +\S*connections:registry is a string but must be a hash
			1 find $IMEI ~ $WRONG
			1 why $IMEI ~ $WRONG
			1 why key ~ $WRONG
			1 log ~ $WRONG
			0 events ~ ^nothing happened
			1 verify ~ $WRONG
			1 list x ~ $WRONG
			3 wait --leader --timeout 1s ~ ^Nobody leads: \(a key of another type\) holds the lease, which never ends, but is no living
			1 wait --gone x --timeout 1s ~ $WRONG
			1 restore --list ~ $WRONG
			1 restore --last ~ $WRONG
			3 doctor ~ ^wrong +types +\S*connections:registry is a string but must be a hash
			0 pause x ~ ^paused until
			0 resume ~ ^not paused
			`+fixed, "$WRONG", wrong)
	})
}

// refusing are the calls of a Redis that answers nobody, or not this user.
const refusing = `
	1 pause x --for 1h ~ $SAYS
	1 resume ~ $SAYS
	1 restore a/1-1:1 ~ $SAYS
	1 status ~ $SAYS
	1 list x ~ $SAYS
	1 find $IMEI ~ $SAYS
	1 why $IMEI ~ $SAYS
	1 why key ~ $SAYS
	1 log ~ $SAYS
	1 log --follow ~ $SAYS
	1 events ~ $SAYS
	1 doctor ~ $SAYS
	1 verify ~ $SAYS
	1 wait --leader --timeout 1s ~ $SAYS
	1 restore --list ~ $SAYS
	1 restore --last ~ $SAYS` + fixed

func TestEveryVerbWhereNoRedisIs(t *testing.T) {
	t.Parallel()
	w := &world{t: t, environ: []string{"REDIS_URL=redis://127.0.0.1:1"}}
	w.answers(refusing, "$SAYS", "127.0.0.1:1: connect: connection refused")
}

func TestEveryVerbWithAWrongPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client().ConfigSet(t.Context(), "requirepass", "right").Err())
	w := &world{t: t, environ: []string{"REDIS_URL=redis://:guessed@" + server.Addr()}}
	w.answers(refusing, "$SAYS", "WRONGPASS")
	w.environ = []string{"REDIS_URL=redis://" + server.Addr()}
	w.answers(refusing, "$SAYS", "NOAUTH")
	for text := range strings.Lines(refusing) {
		if args := strings.Fields(text); len(args) > 1 {
			args = append(args[1:slices.Index(append(args, "~"), "~")], "--redis-url", "redis://:guessed@"+server.Addr())
			_, stdout, stderr := w.runPlainly(args...)
			require.NotContains(t, stdout+stderr, "guessed", text)
		}
	}
}

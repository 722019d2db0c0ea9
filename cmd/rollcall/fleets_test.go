package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// answers is tells, with a call of each verb in the script.
func (w *world) answers(script string, words ...string) {
	w.t.Helper()
	for _, c := range rollcall().Commands {
		verb := strings.TrimPrefix(c.Name, "rollcall ")
		require.Regexp(w.t, `(?m)^\s*\d `+verb+`\b`, script, "no call of %s", verb)
	}
	w.tells(script, words...)
}

// tells makes the calls of a script, of which failures may be told on stderr. The verb redis is a
// command to Redis.
func (w *world) tells(script string, words ...string) {
	w.t.Helper()
	calltest.Tells(w.t, func(args ...string) (int, string) {
		if args[0] == "redis" {
			w.redis(strings.Join(args[1:], " "))
			return 0, ""
		}
		code, stdout, stderr := w.run(args...)
		if code == cli.ExitFailed || code == cli.ExitUsage {
			require.NotContains(w.t, stderr, "goroutine", args)
			return code, stderr + stdout
		}
		require.Regexp(w.t, `^(no fleet is under the prefix .*\n)?$`, stderr, args)
		return code, stdout
	}, script, append(words, "$IMEI", imei, "$OTHER", other, "$REGISTRY", w.keys.Registry(), "$ROSTER", w.keys.Roster(),
		"$HEARTBEAT:", w.keys.Heartbeat(""), "$DEVICES:", w.keys.Devices(""), "$LEASE", w.keys.Lease(),
		"$WITNESS", w.keys.Witness(), "$LOG", w.keys.Log(), "$PREFIX", w.keys.Prefix)...)
}

// fixed are calls whose answers are the same everywhere.
const fixed = `
	0 debug --file -
	2 sweep ~ --http: expected URLs of replicas
	2 resign ~ --http: expected URLs of replicas
	2 wait ~ expected one of --leader, --converged and --gone ID
	2 restore ~ expected one of: ids
	0 acl ~ ^redis-cli ACL SETUSER rollcall on `

func TestEveryVerbOnAFleetOfIngest(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, rw redistest.World) {
		t.Parallel()
		w := newWorld(t, rw)
		w.listened()
		one := w.replica("one")
		until(t, "one leads", func() bool { return one.jan.Status().Leading })
		two := w.replica("two")
		w.holds(two, imei)
		urls := "http://127.0.0.1:1," + two.serve(t) + "," + one.serve(t) + ",http://127.0.0.1:2" // two are away
		http := " --http " + urls + " --admin-token " + adminToken
		w.tells(`0 wait --leader ~ ^one leads$`)
		until(t, "no hold stands", func() bool { return ask[inspect.Status](w, "status").Hold == nil })
		var said struct{ Replicas []answer }
		w.answer(&said, "status", "--http", urls)
		require.Equal(t, "v1.2.3", said.Replicas[2].Version)
		require.True(t, said.Replicas[2].Leads)
		require.NotEmpty(t, said.Replicas[3].Error)
		// Where a machine is busy, time passes between the questions of which a TTL is reckoned.
		until(t, "settings that agree", func() bool { return w.finds()["settings"].Level == inspect.OK })
		found := w.finds()
		for _, name := range []string{
			"leader", "lease", "epoch", "witness", "hold", "heartbeats", "old_writers", "index", "clock", "types", "database",
		} {
			require.Equal(t, inspect.OK, found[name].Level, "%s: %s", name, found[name].Sentence)
		}

		w.tells(`0 pause upgrade --for 30m --who ann ~ ^paused for 30m, until 20`)
		until(t, "the replica knows", func() bool {
			p := one.jan.Status().Paused
			return p != nil && p.Who == "ann" && p.Why == "upgrade"
		})
		w.tells(`
			0 status ~ ^sweeping +not now: Sweeping is paused by ann \(upgrade\) for 30m more
			0 resume ~ ^not paused$
			0 resume ~ ^not paused$
			0 pause ever ~ until it is resumed
			0 status ~ paused by \S+ \(ever\) until it is resumed
			`)
		require.EqualValues(t, -1, w.client.PTTL(t.Context(), w.keys.Paused()).Val())
		w.tells(`0 resume ~ ^not paused$`)
		until(t, "the replica knows", func() bool { return one.jan.Status().Paused == nil })

		w.answers(`
			0 events ~ one leads, term
			0 status ~ ^two +1 +yes
			0 find $IMEI ~ ^two holds $IMEI
			0 why $IMEI ~ ^kept: its owner two beat .*, and has run for
			3 why telemetry:teltonika ~ ^not there, and no record of the eviction log names it
			0 log ~ \(leads\)
			0 verify ~ ^1 entries: of dead owners 0, not in their owner's index 0
			0 pause x --for 1h ~ ^paused for 1h, until
			0 resume ~ ^not paused
			0 wait --leader ~  leads$
			3 wait --gone two --timeout 1s ~ ^two lives: its heartbeat exists
			0 restore --list ~ ^the bins are empty
			3 restore --last ~ ^nothing to restore
			0 doctor --all --expect 2 ~ ^ok +leader +one has led(.*\n)*ok +replicas
			0 doctor --expect 1 ~ ^warning +replicas
			3 doctor --expect 3 ~ ^wrong +replicas +2 live, 3 are expected\.
			0 sweep --sweep registry --dry-run$HTTP ~ ^registry +\S.* +done, dry run
			1 sweep --owner one$HTTP ~ one lives
			1 sweep --owner three$HTTP ~ no instance is known by the name three
			1 sweep --sweep three$HTTP ~ answers 400
			0 wait --converged ~ each of 1 entry names a living owner
			2 resign ~ --http: expected URLs of replicas
			0 debug --file -
			0 list two ~ ^$IMEI$
			0 acl ~ ^redis-cli ACL SETUSER rollcall on
			`, "$HTTP", http)
		w.writes("dead", 0, other)
		w.tells(`0 sweep --owner dead --json$HTTP ~ "dry_run": false,\n *"owner": "dead"`, "$HTTP", http)
		until(t, "it is swept", func() bool { return ask[inspect.Found](w, "find", other).Owner == "" })
		w.tells(`
			0 resign$HTTP ~ ^the leader has resigned
			1 resign --http $URLS --admin-token another-token-than-that ~ answers 401
			`, "$HTTP", http, "$URLS", urls)
		until(t, "two leads", func() bool { return two.jan.Status().Leading })
	})
}

// cartRules are of an application with carts: one rule has a bin, one only reports.
const cartRules = `
rules:
- name: carts
  delete: true
  keys: "PREFIXcart:{user}"
  keep_if: [{exists: "PREFIXsession:{user}"}]
  grace: 1s
  bin: 24h
- name: queue
  delete: true
  members: {zset: "PREFIXqueue", as: user}
  keep_if: [{exists: "PREFIXsession:{user}"}]
  related: ["PREFIXqueue:at:{user}"]
  grace: 1s
  bin: 1h
- name: drafts
  keys: "PREFIXdraft:{user}"
  keep_if: [{exists: "PREFIXsession:{user}"}]
  grace: 1s
`

// cleanupFleet is a worker on a server of an application that leaks.
func cleanupFleet(t *testing.T, rw redistest.World) (w *world, app string) {
	app = rw.Prefix + "app:"
	rw.Prefix += "{cleanup}:"
	w = newWorld(t, rw)
	w.listened()
	parsed, err := rules.Parse([]byte(strings.ReplaceAll(cartRules, "PREFIX", app)))
	require.NoError(t, err)
	data, _ := w.clients()
	t.Cleanup(func() { _ = data.Close() })
	set, err := orphan.New(orphan.Config{
		Rules: parsed, Client: data, Layout: w.keys, Interval: 500 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	w.redis("MSET", app+"session:ann", 1, app+"cart:ann", 1, app+"cart:bob", "pears",
		app+"cart:eve", "plums", app+"draft:bob", 1, app+"queue:at:bob", 1)
	w.redis("ZADD", app+"queue", 7, "bob", 8, "ann")
	w.replica("worker", set.Sweeps()...)
	return w, app
}

func TestEveryVerbOnAFleetOfCleanup(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, rw redistest.World) {
		w, app := cleanupFleet(t, rw)
		ctx := t.Context()
		until(t, "orphans go", func() bool {
			return w.client.Exists(ctx, app+"cart:bob", app+"cart:eve", app+"queue:at:bob").Val() == 0
		})
		w.redis("SET", app+"cart:eve", "anew")
		until(t, "the new cart is marked", func() bool {
			return len(ask[inspect.Why](w, "why", app+"cart:eve").Marks) > 0
		})
		why := ask[inspect.Why](w, "why", app+"cart:bob")
		require.Equal(t, inspect.Evicted, why.Verdict)
		require.Equal(t, "carts", why.Bin.Rule)
		ofQueue := ask[inspect.Why](w, "why", app+"queue:at:bob")
		w.answers(`
			0 status ~ ^worker +0 +yes
			3 find $APPcart:bob ~ ^nobody holds
			0 why $APPcart:bob ~ ^evicted .*: the rule carts found it an orphan; it is in the bin until .*Z, for 2\dh
			0 why $APPcart:bob ~ more: rollcall restore $BIN puts it back
			0 why $APPqueue:at:bob ~ ^evicted .*: the rule queue-at found it an orphan; it is in the bin until
			0 why $APPqueue:at:bob ~ rollcall restore $QUEUE
			0 why $APPcart:ann ~ ^kept: the key is there, a string; no rule has found it an orphan
			0 why $APPdraft:bob ~ ^kept: the rule drafts has found it an orphan for .*, and only reports
			3 why $APPcart:nobody ~ ^not there, and no record
			0 events ~ orphans taken by carts
			3 list nobody
			0 log --sweep carts ~  carts +- +[12] +0$
			0 verify ~ ^0 entries
			0 pause look ~ ^paused until it is resumed
			0 restore --list ~ ^$BIN +$APPcart:bob +carts +20
			0 wait --leader ~ ^worker leads$
			3 wait --converged --timeout 1s ~ ^Sweeping is paused by
			0 wait --gone nobody ~ ^nothing is left of nobody
			0 doctor --all ~ ^ok +leader +worker has led
			0 resume ~ ^not paused
			`+fixed, "$APP", app, "$BIN", why.Bin.ID, "$QUEUE", ofQueue.Bin.ID)
	})
}

func TestWhatARuleWillTakeIsToldWithWhatHoldsIt(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, rw redistest.World) {
		rw.Prefix += "{cleanup}:"
		w := newWorld(t, rw)
		ctx, key := t.Context(), rw.Prefix+"k"
		at, err := w.client.Time(ctx).Result()
		require.NoError(t, err)
		mark := fmt.Sprintf("%d 1 print", at.Add(-time.Minute).UnixMilli())
		passed := func(text string) { w.redis("HSET", w.keys.Prefix+"orphan:passes", "rule", text) }
		passed(`{"outcome": "done"}`)
		w.redis("HSET", w.keys.Prefix+"orphan:state:rule", "chain", 1)
		w.redis("HSET", w.keys.Prefix+"orphan:marks:rule", key, mark)
		w.redis("SET", key, 1)
		// why requires the same in JSON and in words.
		why := func(verdict inspect.Verdict, says string) {
			t.Helper()
			w.tells(`
				0 why $KEY --json ~ "verdict": "$VERDICT"
				0 why $KEY ~ the rule rule has found it an orphan for 1m
				0 why $KEY ~ $SAYS`, "$KEY", key, "$VERDICT", string(verdict), "$SAYS", says)
		}
		why(inspect.Kept, "But nothing is swept: ")
		w.listened()
		one := w.replica("one")
		until(t, "one leads", func() bool { return one.jan.Status().Leading })
		why(inspect.WillGo, "will go when the rule's grace is over, unless it changes")
		passed(`{"outcome": "held", "reason": "reference_lost", "error": "sessions does not exist"}`)
		why(inspect.Kept, `kept while the rule is held \(reference_lost: sessions does not exist; docs/runbook.md#`)
		w.tells(`0 pause look`)
		why(inspect.WillGo, "will go once sweeping goes on, unless it changes")
		w.tells(`
			0 resume
			0 redis HSET $WITNESS since $NOW`, "$NOW", fmt.Sprint(time.Now().UnixMilli()))
		why(inspect.WillGo, "sweeping begins in ")
	})
}

func TestRestoreUndoesTheLastPassAndTellsWhatItCannot(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, rw redistest.World) {
		w, app := cleanupFleet(t, rw)
		ctx := t.Context()
		gone := func(keys ...string) func() bool {
			return func() bool { return w.client.Exists(ctx, keys...).Val() == 0 }
		}
		until(t, "all went", gone(app+"cart:bob", app+"cart:eve", app+"queue:at:bob"))
		w.redis("SET", app+"cart:late", "figs")
		until(t, "one more went, in a pass of its own", gone(app+"cart:late"))
		w.tells(`0 pause look`)
		until(t, "nothing is swept any more", func() bool {
			r := ask[inspect.Why](w, "why", app+"cart:late")
			return r.Hold != nil && r.Bin != nil
		})

		// The last mistake is all that the rule took, in both passes. The name of one is in use again.
		w.redis("SET", app+"cart:eve", "anew")
		code, stdout, stderr := w.run("restore", "--last")
		require.Equal(t, cli.ExitNo, code, stdout+stderr)
		for _, cart := range []string{"late", "bob"} {
			require.Regexp(t, `(?m)^carts/carts-\d+-\d+ +`+app+"cart:"+cart+" +yes$", stdout)
		}
		require.Regexp(t, "(?m)"+app+"cart:eve +no +.*cart:eve is in use again, and was not overwritten", stdout)
		require.Contains(t, stdout, "\n2 restored, 1 not; what is still an orphan to its rule goes again")
		require.Equal(t, "figs", w.client.Get(ctx, app+"cart:late").Val())
		require.Equal(t, "anew", w.client.Get(ctx, app+"cart:eve").Val())

		// All that went within the hour: the member with its score.
		code, stdout, _ = w.run("restore", "--since=1h", "--sweep=queue", "--json")
		require.Equal(t, cli.ExitOK, code, stdout)
		require.Equal(t, 1, strings.Count(stdout, `"fate": "restored"`))
		require.Equal(t, 7.0, w.client.ZScore(ctx, app+"queue", "bob").Val())
		w.tells(`
			3 restore carts/1-1:1 ~ no bin has it: it was restored before, its time is over, or it never was there
			0 why $APPcart:bob ~ kept: the key is there, a string, again: the rule carts took it
			`, "$APP", app)
	})
}

package main

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// expected is what a call of the tool says.
type expected struct {
	args string // with spaces between them
	code int
	says string // a regular expression: of stdout, or of stderr if the call failed
}

// everyVerb are the verbs that a list of calls has to have.
func everyVerb() (all []string) {
	for _, c := range rollcall().Commands {
		all = append(all, strings.TrimPrefix(c.Name, "rollcall "))
	}
	return all
}

// answers makes each call, and looks at what it says. Each verb is to be among them.
func (w *world) answers(calls []expected) {
	w.t.Helper()
	met := map[string]bool{}
	for _, c := range calls {
		verb, _, _ := strings.Cut(c.args, " ")
		met[verb] = true
	}
	for _, verb := range everyVerb() {
		require.True(w.t, met[verb], "no call of %s", verb)
	}
	w.tells(calls...)
}

// tells makes each call, and looks at what it says.
func (w *world) tells(calls ...expected) {
	w.t.Helper()
	for _, c := range calls {
		code, stdout, stderr := w.run(strings.Fields(c.args)...)
		said := stdout
		if c.code == cli.ExitFailed || c.code == cli.ExitUsage {
			said = stderr
			require.NotContains(w.t, stderr, "goroutine", c.args)
		}
		require.Equal(w.t, c.code, code, "%s:\n%s%s", c.args, stdout, stderr)
		require.Regexp(w.t, regexp.MustCompile("(?m)"+c.says), said, c.args)
		if code == cli.ExitOK || code == cli.ExitNo {
			require.Regexp(w.t, `^(no fleet is under the prefix .*\n)?$`, stderr, c.args)
		}
	}
}

// fixed are calls whose answers are the same everywhere.
var fixed = []expected{
	{"debug --file -", cli.ExitOK, ""},
	{"sweep", cli.ExitUsage, "--http: expected URLs of replicas"},
	{"resign", cli.ExitUsage, "--http: expected URLs of replicas"},
	{"wait", cli.ExitUsage, "expected one of --leader, --converged and --gone ID"},
	{"restore", cli.ExitUsage, "expected one of: ids"},
	{"acl", cli.ExitOK, "^redis-cli ACL SETUSER rollcall on "},
}

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
		w.tells(expected{"wait --leader", 0, "^one leads$"})
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

		w.tells(expected{"pause upgrade --for 30m --who ann", 0, "^paused for 30m, until 20"})
		until(t, "the replica knows", func() bool {
			p := one.jan.Status().Paused
			return p != nil && p.Who == "ann" && p.Why == "upgrade"
		})
		w.tells(expected{"status", 0, `^sweeping +not now: Sweeping is paused by ann \(upgrade\) for 30m more`},
			expected{"resume", 0, "^not paused$"}, expected{"resume", 0, "^not paused$"},
			expected{"pause ever", 0, "until it is resumed"},
			expected{"status", 0, `paused by \S+ \(ever\) until it is resumed`})
		require.EqualValues(t, -1, w.client.PTTL(t.Context(), w.keys.Paused()).Val())
		w.tells(expected{"resume", 0, "^not paused$"})
		until(t, "the replica knows", func() bool { return one.jan.Status().Paused == nil })

		w.answers(append([]expected{
			{"events", 0, `one leads, term`}, {"status", 0, `^two +1 +yes `},
			{"find " + imei, 0, "^two holds " + imei},
			{"why " + imei, 0, "^kept: its owner two beat .*, and has run for "},
			{"why telemetry:teltonika", 3, "^not there, and no record of the eviction log names it"},
			{"log", 0, `\(leads\)`},
			{"verify", 0, "^1 entries: of dead owners 0, not in their owner's index 0"},
			{"pause x --for 1h", 0, "^paused for 1h, until "},
			{"resume", 0, "^not paused"},
			{"wait --leader", 0, " leads$"},
			{"wait --gone two --timeout 1s", 3, "^two lives: its heartbeat exists"},
			{"restore --list", 0, "^the bins are empty"},
			{"restore --last", 3, "^nothing to restore"},
			{"doctor --all --expect 2", 0, "^ok +leader +one has led(.*\n)*ok +replicas"},
			{"doctor --expect 1", 0, "^warning +replicas "},
			{"doctor --expect 3", 3, "^wrong +replicas +2 live, 3 are expected\\."},
			{"sweep --sweep registry --dry-run" + http, 0, "^registry +done, dry run"},
			{"sweep --owner one" + http, 1, "one lives"},
			{"sweep --owner three" + http, 1, "no instance is known by the name three"},
			{"sweep --sweep three" + http, 1, "answers 400"},
			{"wait --converged", 0, "each of 1 entry names a living owner"},
			{"resign", 2, "--http: expected URLs of replicas"},
		}, expected{"debug --file -", 0, ""}, expected{"list two", 0, "^" + imei + "$"},
			expected{"acl", 0, "^redis-cli ACL SETUSER rollcall on "}))
		w.writes("dead", 0, other)
		w.tells(expected{"sweep --owner dead --json" + http, 0, `"dry_run": false,\n *"owner": "dead"`})
		until(t, "it is swept", func() bool { return ask[inspect.Found](w, "find", other).Owner == "" })
		w.tells(
			expected{"resign" + http, 0, "^the leader has resigned"},
			expected{"resign --http " + urls + " --admin-token another-token-than-that", 1, "answers 401"})
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
		w.answers(append([]expected{
			{"status", 0, `^worker +0 +yes `},
			{"find " + app + "cart:bob", 3, "^nobody holds "},
			{"why " + app + "cart:bob", 0,
				`^evicted .*: the rule carts found it an orphan; it is in the bin until .*Z, for 2\dh.* more: ` +
					"rollcall restore " + why.Bin.ID + " puts it back"},
			{"why " + app + "queue:at:bob", 0, "^evicted .*: the rule queue-at found it an orphan; " +
				"it is in the bin until .*: rollcall restore " + ofQueue.Bin.ID},
			{"why " + app + "cart:ann", 0,
				"^kept: the key is there, a string; no rule has found it an orphan"},
			{"why " + app + "draft:bob", 0,
				"^kept: the rule drafts has found it an orphan for .*, and only reports"},
			{"why " + app + "cart:nobody", 3, "^not there, and no record"},
			{"events", 0, "orphans taken by carts"}, {"list nobody", 3, ""},
			{"log --sweep carts", 0, " carts +- +[12] +0$"},
			{"verify", 0, "^0 entries"},
			{"pause look", 0, "^paused until it is resumed"},
			{"restore --list", 0, "^" + why.Bin.ID + " +" + app + "cart:bob +carts +20"},
			{"wait --leader", 0, "^worker leads$"},
			{"wait --converged --timeout 1s", 3, "^Sweeping is paused by "},
			{"wait --gone nobody", 0, "^nothing is left of nobody"},
		}, append(fixed, expected{"doctor --all", 0, "^ok +leader +worker has led"},
			expected{"resume", 0, "^not paused"})...))
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
		requireWhy := func(verdict inspect.Verdict, says string) {
			t.Helper()
			why := ask[inspect.Why](w, "why", key)
			require.Equal(t, verdict, why.Verdict)
			require.Contains(t, why.Sentence, says)
			require.Contains(t, why.Sentence, "the rule rule has found it an orphan for 1m")
		}
		requireWhy(inspect.Kept, "But nothing is swept: ")
		w.listened()
		one := w.replica("one")
		until(t, "one leads", func() bool { return one.jan.Status().Leading })
		requireWhy(inspect.WillGo, "will go when the rule's grace is over, unless it changes")
		passed(`{"outcome": "held", "reason": "reference_lost", "error": "sessions does not exist"}`)
		requireWhy(inspect.Kept,
			"kept while the rule is held (reference_lost: sessions does not exist; docs/runbook.md#")
		require.NoError(t, one.jan.Pause(ctx, janitor.Pause{Who: "ann", Why: "look"}))
		requireWhy(inspect.WillGo, "will go once sweeping goes on, unless it changes")
		require.NoError(t, one.jan.Resume(ctx))
		w.redis("HSET", w.keys.Witness(), "since", time.Now().UnixMilli())
		requireWhy(inspect.WillGo, "sweeping begins in ")
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
		w.tells(expected{"pause look", 0, ""})
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
		w.tells(expected{"restore carts/1-1:1", 3,
			"no bin has it: it was restored before, its time is over, or it never was there"},
			expected{"why " + app + "cart:bob", 0, "kept: the key is there, a string, again: the rule carts took it "})
	})
}

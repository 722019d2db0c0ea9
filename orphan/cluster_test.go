package orphan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestOnAClusterEveryMasterIsCoveredAndEachDeleteIsCountedOnce(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := onCluster(t, c, session+queue+matches+bots+reservations)
	const n = 60
	for i := range n {
		status := "ongoing"
		if i%3 == 0 {
			status = "finished"
		}
		r.source.all[matchID(i)] = Document{"status": status, "endedAt": time.Now().Add(-2 * time.Hour)}
		fill := strings.NewReplacer("USER", fmt.Sprint("user", i), "MATCH", matchID(i), "ROOM", fmt.Sprint("room", i%6))
		r.run(fill.Replace(`SET session:USER old PX 3600000
			ZADD queue:elo 1500 USER
			SET queue:joinedAt:USER @ms-1h
			SET bots:state:USER idle
			SET match:MATCH {}
			SET match:MATCH:ratings {}
			SET queue:reservation:rUSER {"roomId":"ROOM"} PX 1800000`))
		if i%3 > 0 { // a third of everything is dead
			r.run(fill.Replace(`SET user:USER 1
				SET queue:reservation:USER {"roomId":"room1"} PX 3600000
				SADD bots:active USER`))
		}
	}
	r.run("HSET roomcaches room1 {} room2 {}")
	// One room has a channel only, on whichever node.
	sub := r.rdb.Subscribe(t.Context(), "$room4")
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)

	for _, rule := range []string{"sessions", "queue", "matches", "bots", "reservations"} {
		require.Equal(t, Coverage{Masters: 3, Of: 3, Complete: true}, r.sweep(rule).Coverage)
		r.pass(rule, 2*time.Minute)
	}
	r.sweep("")
	r.ripen("queue-joinedat", 2*time.Minute)
	r.sweep("")
	want := map[string]uint64{"sessions": n / 3, "queue": n / 3, "matches": n / 3, "bots": n / 3, "reservations": n / 2}
	require.Equal(t, want, r.set.Stats().Categories)
	require.Equal(t, uint64(n/3*(1+2+2+1)+n/2), r.set.Stats().Keys)
	for i := range n {
		user := fmt.Sprint("user", i)
		r.are(i%3 > 0, fmt.Sprintf("session:%s bots:state:%s queue:joinedAt:%s match:%s:ratings", user, user, user, matchID(i)))
		r.are(i%6 == 1 || i%6 == 2 || i%6 == 4, "queue:reservation:r"+user)
	}
	require.Equal(t, fmt.Sprint(6*n/3+n/2), r.rdb.HGet(t.Context(), r.layout.Witness(), "evicted_total").Val())
	r.gone("{cleanup}:orphan:intents:sessions")

	// From the bin back, on three servers.
	bins := Bins{Client: r.rdb, Layout: r.layout}
	binned, err := bins.List(t.Context(), "bots")
	require.NoError(t, err)
	require.Len(t, binned, n/3)
	for _, b := range binned {
		back, err := bins.Restore(t.Context(), b.ID)
		require.NoError(t, err)
		require.Equal(t, Back, back[0].Fate)
	}
	r.there("bots:state:user0 bots:state:user3")

	for i := range 3 { // a restart of one that does not tell its run id would go unseen
		result := r.sweep("sessions")
		require.Equal(t, i == 0, result.Coverage.Complete, "%+v", result)
		require.NoError(t, c.Nodes[i].Client().Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	}
	_, err = r.set.Plan(t.Context(), 0)
	require.ErrorContains(t, err, "let this user INFO")
}

// The signs that job queues need, with their keys all over a Cluster.
func TestOnAClusterListsMissingFieldsAndMembersOfManyKeysCondemn(t *testing.T) {
	t.Parallel()
	r := onCluster(t, redistest.StartCluster(t, 3, 0), `
- name: jobs
  keys: "q:{queue}:{job}"
  read: hash
  not: {job: [id]}
  min_age: {field: .done, unit: iso, over: 1h}
  keep_if: [{member: {zset: "q:{queue}:finished", of: "{job}"}}, {member: {list: "q:{queue}:wait", of: "{job}"}}]
  unless_lost: [{exists: "q:{queue}:id"}]
- {name: finished, members: {zset: "q:{queue}:finished", as: job}, keep_if: [{exists: "q:{queue}:{job}"}], unless_lost: [{exists: "q:{queue}:id"}]}
- {name: ghosts, keys: "ghost:{id}", read: hash, gone_if: {missing: .created}, grace: 1h}
- {name: replies, keys: "{client}.reply.box", only: {client: uuid}, type: list, gone_if: {no_expiry: true}, grace: 1h}
- name: routes
  keys: "route:{conn}"
  read: text
  bind: {worker: .}
  keep_if: [{field: {hash: "beats:{worker}", field: at, unit: ms, within: 1m}}]
- {name: workers, members: {set: "workers:{site}", as: "{host}:{pid}"}, keep_if: [{exists: "ping:{host}"}]}
`)
	const n = 12
	each := func(i int, lines string) string {
		return strings.NewReplacer("Q", fmt.Sprintf("q:%d:", i), "N", fmt.Sprint(i), "ID", fmt.Sprintf("%02d", i),
			"AGO", map[bool]string{true: "0s", false: "2h"}[i%2 == 0]).Replace(lines)
	}
	for i := range n {
		r.run(each(i, `SET Qid 9
			HSET Q0 done @iso-2h
			HSET Q1 done @iso-2h
			HSET Q2 done @iso-2h
			HSET Q3 done @iso-0s
			ZADD Qfinished 1 0 1 gone
			RPUSH Qwait 1
			HSET ghost:N beat 1
			HSET ghost:liveN created 1
			RPUSH 11111111-2222-4333-8444-5555555555ID.reply.box 1
			RPUSH 99999999-2222-4333-8444-5555555555ID.reply.box 1
			PEXPIRE 11111111-2222-4333-8444-5555555555ID.reply.box 7200000
			HSET beats:wN at @ms-AGO
			SET route:N wN
			SADD workers:N web:1 old:2`))
	}
	r.run(`SET ping:web 1
		DEL q:0:id`)
	r.rounds(1, time.Hour)
	require.Equal(t, map[string]uint64{
		"jobs": n - 1, "finished": n - 1, "ghosts": n, "replies": n, "routes": n / 2, "workers": n,
	}, r.set.Stats().Rules)
	for i := range n {
		r.there(each(i, "Q0 Q1 Q3 ghost:liveN 11111111-2222-4333-8444-5555555555ID.reply.box workers:N/web:1"))
		r.gone(each(i, "ghost:N workers:N/old:2"))
		r.are(i == 0, each(i, "Q2 Qfinished/gone"))
		r.are(i%2 == 0, each(i, "route:N"))
	}
}

func TestADeleteIsCountedOnceWhateverIsLostInBetween(t *testing.T) {
	t.Parallel()
	t.Run("on a Cluster", func(t *testing.T) {
		t.Parallel()
		countedOnce(onCluster(t, redistest.StartCluster(t, 3, 0), session))
	})
	t.Run("on one server", func(t *testing.T) {
		t.Parallel()
		countedOnce(alone(t, session))
	})
}

func countedOnce(r *rig) {
	for i, lost := range []string{
		goes,
		"evalsha orphan:intents:", // to intend
		"evalsha orphan:intents:sessions{cleanup}:orphan:binned:", // to settle
		"unlink orphan:bin:", // to the last clean-up
	} {
		r.run("SET session:a old")
		r.ripen("sessions", time.Minute)
		h := r.on(lost, &hook{lose: true})
		r.sweep("sessions")
		require.Equal(r, 1, h.hits, lost)
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		r.sweep("sessions") // what was not done is done now
		r.gone("session:a")
		require.Equal(r, uint64(i+1), r.set.Stats().Keys, lost)
		require.Equal(r, fmt.Sprint(i+1), r.rdb.HGet(r.Context(), r.layout.Witness(), "evicted_total").Val())
	}
}

// All of a candidate and its signs is on servers that answer. Whatever the third one has, it was
// not read.
func TestOnAClusterNothingGoesInAPassThatMissesAMasterItDoesNotNeed(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, noFull...)
	r := onCluster(t, c, session)
	lost := c.Nodes[0]
	if lost == c.Owner(r.layout.Log()) {
		lost = c.Nodes[1]
	}
	user := 0
	for c.Owner(fmt.Sprint("session:", user)) == lost || c.Owner(fmt.Sprint("user:", user)) == lost {
		user++
	}
	r.do("SET", fmt.Sprint("session:", user), "old")
	r.ripen("sessions", time.Minute)
	lost.Kill()
	result := r.sweep("sessions")
	require.Equal(t, janitor.Done, result.Outcome, result)
	require.Equal(t, Coverage{Masters: 2, Of: 3}, result.Coverage)
	require.Equal(t, 1, result.Condemned)
	r.there(fmt.Sprint("session:", user))
}

// late has a rule intend a delete, whose step does not reach the key's server.
func late(r *rig) (intent binned, call []string) {
	r.run("SET session:a old")
	r.ripen("sessions", time.Minute)
	r.on(goes, &hook{refuse: true, before: func(args []any) {
		for _, arg := range args[1:] {
			call = append(call, fmt.Sprint(arg))
		}
	}})
	r.sweep("sessions")
	noted := r.rdb.HVals(r.Context(), intentsKey(r.layout, "sessions")).Val()
	require.Len(r, noted, 1)
	require.NoError(r, json.Unmarshal([]byte(noted[0]), &intent))
	return intent, call[1:]
}

func (r *rig) lands(args []string) (said string) {
	require.NoError(r, call(r.Context(), plainly{r.rdb}, awayScript, []question{{
		args: args, told: func(answer *redis.Cmd) { said = replyText(answer) },
	}}))
	return said
}

// expires waits until the look of an intent counts no more.
func (r *rig) expires(c *redistest.Cluster, intent binned) {
	require.Eventually(r, func() bool {
		at, err := c.Owner(intent.Key).Client().Time(r.Context()).Result()
		return err == nil && at.UnixMilli() > intent.Last
	}, time.Minute, 10*time.Millisecond)
}

// What is asked whether a thing is away must not miss it, however late it goes.
func TestOnAClusterWhatGoesAtTheLastInstantIsCounted(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := onCluster(t, c, session)
	r.set.evidence = evidenceFor
	intent, call := late(r)
	// The late call lands between two questions of the next pass, while it may, and then it may no
	// more.
	r.on("exists "+intent.Aside, &hook{behind: func([]any) {
		r.lands(call)
		r.expires(c, intent)
	}})
	r.sweep("sessions")
	gone := uint64(1)
	if r.exists("session:a") { // on a slow machine it did not land in time
		gone = 0
	}
	r.sweep("sessions")
	require.Equal(t, gone, r.set.Stats().Rules["sessions"])
	require.False(t, r.exists(intent.Aside))
}

func TestOnAClusterNothingGoesByEvidenceThatIsTooOld(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := onCluster(t, c, session)
	r.set.evidence = evidenceFor
	intent, call := late(r)
	r.expires(c, intent)
	require.Equal(t, ":-1", r.lands(call))
	r.there("session:a")
}

func TestAnIntentAsksForTheMark(t *testing.T) {
	t.Parallel()
	r := onCluster(t, redistest.StartCluster(t, 3, 0), session)
	r.run("SET session:a old")
	r.ripen("sessions", time.Minute)
	h := r.before(`evalsha "intent"`, "DEL {cleanup}:orphan:marks:sessions")
	r.swept("sessions", "1 changed")
	require.Equal(t, 1, h.hits)
	r.there("session:a")
}

// The step that deletes on a Cluster cannot see the references: they are on other servers.
func TestOnAClusterAReferenceThatIsLostDuringAPassKeepsWhatIsLeft(t *testing.T) {
	t.Parallel()
	r := onCluster(t, redistest.StartCluster(t, 3, 0), states)
	r.run(`SADD bots other
		SET state:a old`)
	r.ripen("states", time.Minute)
	// It comes to life, and the set is lost, before the last look.
	h := r.on("exists bots", &hook{after: 1, before: func([]any) { r.before("sismember a", "DEL bots") }})
	r.swept("states", "held reference_lost:")
	require.Equal(t, 1, h.hits)
	r.there("state:a")
}

// apart returns a number with which names are on other servers than what is given, and than home's.
func apart(c *redistest.Cluster, r *rig, name string, others ...string) (n int) {
	for {
		at := c.Owner(fmt.Sprint(name, n))
		same := at == c.Owner(r.layout.Log())
		for _, other := range others {
			same = same || at == c.Owner(strings.ReplaceAll(other, "N", fmt.Sprint(n)))
		}
		if !same {
			return n
		}
		n++
	}
}

// The witness listens to the server at home alone.
func TestOnAClusterAMarkOfBeforeAnotherMasterWasRestartedIsWorthless(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := onCluster(t, c, session)
	n := apart(c, r, "user:", "session:N")
	user := fmt.Sprint("user:", n)
	r.do("SET", fmt.Sprint("session:", n), "old")
	r.ripen("sessions", time.Minute)
	r.do("SET", user, "1") // a sign of life, which its server forgets
	c.Owner(user).Restart()
	c.AwaitOK()
	r.gone(user)
	r.swept("sessions", "1 waiting")
	r.pass("sessions", time.Minute)
	require.Equal(t, 1, r.sweep("sessions").Removed)
}

const alives = `
- {name: states, keys: "state:{bot}", keep_if: [{exists: "alive:{bot}"}], unless_lost: [{exists: bots}], grace: 1m}
`

// What the last look does not find may be what a server has forgotten since the pass compared them.
func TestOnAClusterAMasterThatIsRestartedBeforeTheLastLookKeepsWhatIsLeft(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := onCluster(t, c, alives)
	r.run("SADD bots other")
	bot := apart(c, r, "alive:", "state:N", "bots")
	state, alive := fmt.Sprint("state:", bot), fmt.Sprint("alive:", bot)
	r.do("SET", state, "old")
	r.ripen("states", time.Minute)
	forgot := false
	r.on("exists bots", &hook{after: 1, before: func([]any) { // behind the comparison
		r.do("SET", alive, "1")
		c.Owner(alive).Restart()
		c.AwaitOK()
		forgot = !r.exists(alive)
	}})
	result := r.sweep("states")
	require.True(t, forgot)
	require.Zero(t, result.Removed, result)
	require.False(t, result.Coverage.Complete, result)
	r.there(state)
}

// The key's server asks itself whether it is still the one that was looked at.
func TestAServerThatIsRestartedBehindTheLastLookKeeps(t *testing.T) {
	t.Parallel()
	r := alone(t, session)
	servers, err := masters(t.Context(), r.rdb, nodeTimeout)
	require.NoError(t, err)
	life := servers.masters[0].life
	require.Len(t, life, 40)
	r.run("SET session:b old") // the server knows the script from now on
	r.ripen("sessions", time.Minute)
	r.swept("sessions", "1 removed")
	r.run("SET session:a old")
	r.ripen("sessions", time.Minute)
	r.on(goes, &hook{before: func(args []any) { rewrite(args, regexp.MustCompile("^"+life+"$"), "another") }})
	r.swept("sessions", "1 changed")
	r.there("session:a")
}

// A replica that hangs does not answer before the pass, and is not waited for behind the look: that
// counts for no longer than such a wait.
func TestOnAClusterANodeThatHangsKeepsNothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	patient := lease.ClusterOptions(c.Options())
	patient.DialTimeout, patient.ReadTimeout, patient.ContextTimeoutEnabled = 10*time.Second, 10*time.Second, true
	r := newRig(t, redistest.World{Prefix: "{cleanup}:"}, alives, config{
		plain: true, rdb: c.Client(), data: redis.NewClusterClient(patient),
		control: redis.NewClusterClient(lease.ClusterOptions(c.Options())),
	})
	r.run(`SADD bots other
		SET state:1 old`)
	hung := c.Nodes[3]
	hung.Stop()
	defer hung.Cont()
	waittest.Until(t, time.Millisecond, func() bool {
		r.ripen("states", time.Minute)
		return !r.exists("state:1")
	})
}

// A rule was taken out of RULES between the steps of a delete.
func TestWhatARuleThatIsGoneIntendedIsSettled(t *testing.T) {
	t.Parallel()
	r := onCluster(t, redistest.StartCluster(t, 3, 0), session)
	r.run("SET orphan:bin:gone-1-0:{cart:a} old")
	for id, key := range map[string]string{"gone-1-0": "cart:a", "gone-1-1": "cart:b"} {
		name := aside(id, key)
		r.do("HSET", intentsKey(r.layout, "gone"), id, jsonOf(binned{
			ID: id, Name: key, Key: key, Aside: name, Last: time.Now().Add(-time.Second).UnixMilli(),
			Until: time.Now().Add(time.Hour).UnixMilli(),
		}))
	}
	r.do("HSET", intentsKey(r.layout, "gone"), "gone-1-2", "{")
	r.do("HSET", passesKey(r.layout), "gone", "{}")
	require.Equal(t, janitor.Done, r.sweep("sessions").Outcome)
	require.Equal(t, map[string]string{"gone-1-2": "{"}, r.rdb.HGetAll(t.Context(), intentsKey(r.layout, "gone")).Val())
	require.Equal(t, "1", r.rdb.HGet(t.Context(), r.layout.Witness(), "evicted_total").Val())
	var entry binned
	err := json.Unmarshal([]byte(r.rdb.HGet(t.Context(), binnedKey(r.layout, "gone"), "gone-1-0").Val()), &entry)
	require.NoError(t, err)
	require.Equal(t, "cart:a", string(entry.Key))
}

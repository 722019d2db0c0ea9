package chaos

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant is the program with one of its protections taken away, which the suite must notice:
// TestMutants builds it and sees a check fail. It is a few changes to the text of the code, put
// over the files when it is built (go build -overlay), so that not a line of it stands in what
// ships. What is here needs no tag, so that a change of the code which a mutant rests on is told by
// the next run of all tests.
type mutant struct {
	name  string
	what  string // is changed
	edits []edit
	// without are further protections that must be away, or they would make up for the missing one,
	// each with what it is.
	without  []layer
	scenario string   // a row of the matrix
	checks   []string // any of which may be the one that fails
}

const (
	guardLua    = "internal/guard/guard.lua"
	evictLua    = "internal/guard/evict.lua"
	witnessLua  = "internal/guard/witness.lua"
	ownerLua    = "registry/owner.lua"
	registerLua = "registry/register.lua"
	releaseLua  = "registry/release.lua"
	healLua     = "registry/heal.lua"
	guardGo     = "internal/guard/guard.go"
	tableGo     = "registry/table.go"
	reconcileGo = "registry/reconcile.go"
	disputeGo   = "registry/dispute.go"
	leadGo      = "lease/lead.go"
	sweepGo     = "janitor/pass.go"
	quickWayGo  = "janitor/quickway.go"
	fullScanGo  = "janitor/fullscan.go"
	ownersGo    = "janitor/owners.go"
	doubtGo     = "internal/guard/doubt/doubt.go"
	reaperGo    = "janitor/reaper.go"
	pendingGo   = "janitor/pending.go"
	settingsGo  = "cmd/internal/connect/redis.go"
	clientGo    = "lease/client.go"
	claimLua    = "cmd/ingest/internal/commands/claim.lua"
	settleLua   = "cmd/ingest/internal/commands/settle.lua"
	answerLua   = "cmd/ingest/internal/commands/sweep.lua"
	commandGo   = "cmd/ingest/internal/gateway/command.go"
)

// The protections that more than one mutant is about.
var (
	noTokenCheck = edit{guardLua, "if redis.pcall('GET', KEYS[2]) ~= ARGV[2] then return answer('FENCED') end\n", ""}

	noMemory = edit{guardLua, "if asked[1] then\n", "if false then\n"}

	// The record of a batch that has one is left as it is.
	noRefusal = edit{guardLua,
		"    if string.find(ok.err, 'equal or smaller') or string.find(ok.err, 'exhausted') then return answer('FENCED') end\n",
		"    if string.find(ok.err, 'equal or smaller') then return nil end\n"}

	// A batch of unknown fate is not asked for again; it is looked up in the log when a later
	// one has been recorded.
	noAskingAgain = layer{"the leader's asking again", []edit{{reaperGo, "\t\tr.pending.Store(b)\n", ""}}}

	noLookUp = layer{"the look-ups of batches in the log", []edit{{pendingGo, "range open {", "range open[:0] {"}}}

	noSelfCheck = layer{"the self-check", []edit{{guardLua, "if now - since >= need and redis.call('EXISTS', KEYS[4]) == 0 then", "if false then"}}}

	noFullScan = layer{"the full scan's scan", []edit{{fullScanGo,
		"\tw := &scan{fullScan: s, p: p}\n",
		"\tif true {\n\t\treturn nil\n\t}\n\tw := &scan{fullScan: s, p: p}\n"}}}

	noExists = edit{guardLua, "  if redis.call('EXISTS', KEYS[5]) == 1 then return 'ALIVE' end\n", ""}

	noAliveByRecord = []edit{
		{guardLua, "  if state ~= 'b' and fell > now then return 'ALIVE' end -- its heartbeat was evicted, not its life\n", ""},
		{doubtGo, "\tcase r.Fell() > now:\n\t\treturn Alive // its heartbeat was evicted or deleted\n", ""},
		{ownersGo, "\tcase x.beats, x.Fell() > r.Now && x.State != doubt.Bye:\n", "\tcase x.beats:\n"},
		{ownersGo, " || x.State == doubt.Bye || x.Fell() <= r.Now\n", " || true\n"},
	}
	noMost = layer{"the doubt where most were off", []edit{{doubtGo, "\tcase quiet < r.Grace() && most:\n\t\treturn Most\n", ""}}}

	byRecord = layer{"a fresh record's word against a heartbeat that is gone", noAliveByRecord}

	noCompare = edit{guardLua, "  if record ~= seen then return 'WAIT', 'stale' end\n", ""}
)

var mutants = []mutant{
	{
		name:  "NoTokenCheck",
		what:  "the guard does not look at the lease",
		edits: []edit{noTokenCheck},
		// with a newer term open its record alone would refuse the batch
		scenario: "LeaseGoneBeforeTheScript",
		checks:   []string{"C4"},
	},
	{
		name:     "NoHeartbeatCheck",
		what:     "the guard does not look at the owner's heartbeat",
		edits:    []edit{noExists},
		without:  []layer{byRecord, {"the comparison of the owner's record", []edit{noCompare}}},
		scenario: "OwnerBackBeforeTheScript",
		checks:   []string{"C1"},
	},
	{
		name:     "NoOwnerCheck",
		what:     "the guard evicts whatever the entries name",
		edits:    []edit{{evictLua, "if o == owner then", "if o then"}},
		scenario: "LeaderKilledMidPass",
		checks:   []string{"C1", "C2"},
	},
	{
		name: "RefusedNotDoubted",
		what: "silence proves death while the server turns clients away",
		edits: []edit{
			{guardLua, "    if quiet < 10 * grace and now - (count(w.refused_at) or -grace) < grace then return 'WAIT', 'refused' end\n", ""},
			{doubtGo, "\tcase quiet < bound*r.Grace() && now-refused < r.Grace():\n\t\treturn Refused\n", ""},
		},
		scenario: "ConnectionsRefused",
		checks:   []string{"C2", "C4"},
	},
	{
		name:     "MostNotDoubted",
		what:     "nobody asks whether most were off at the same time",
		edits:    noMost.edits,
		scenario: "TenOfElevenCutOffBriefly",
		checks:   []string{"C4"},
	},
	{
		name:     "IdleCounted",
		what:     "replicas that hold nothing count among those that are not off",
		edits:    []edit{{doubtGo, "(y.State == Idle || y.State == Bye)", "(y.State == Bye)"}},
		without:  []layer{{"who came later proves nothing: what is idle does at each beat", []edit{{doubtGo, "case y.Born >= heard && !silent && other != id:", "case false:"}}}},
		scenario: "AllHoldersCutOffBesideIdleReplicas",
		checks:   []string{"C4"},
	},
	{
		name:     "NoHoldForGaps",
		what:     "the witness does not mind that nobody listened",
		edits:    []edit{{witnessLua, " or last > now or now - last > tonumber(gap) then", " or last > now then"}},
		without:  []layer{noSelfCheck},
		scenario: "RedisStopped",
		checks:   []string{"C4"},
	},
	{
		name:     "ServerNotCompared",
		what:     "the witness does not mind that the server is another than at the last tick",
		edits:    []edit{{witnessLua, "  elseif id ~= '' and w.server ~= id or fell(w.connections, connections) or fell(w.commands, commands) or fell(w.refused, refused) then\n", "  elseif false then\n"}},
		without:  []layer{byRecord},
		scenario: "EvictedThenRestarted",
		checks:   []string{"C2", "C4"},
	},
	{
		name:     "CountersNotCompared",
		what:     "the witness does not mind that the server's counters have fallen",
		edits:    []edit{{witnessLua, " or fell(w.connections, connections) or fell(w.commands, commands) or fell(w.refused, refused)", ""}},
		without:  []layer{byRecord},
		scenario: "EvictedThenStatisticsReset",
		checks:   []string{"C2", "C4"},
	},
	{
		name:     "OverdueNotCounted",
		what:     "an owner counts as off only when its heartbeat has ended",
		edits:    []edit{{doubtGo, "silent := y.Last+y.Due <= now || y.Last < x.Last+x.Due", "silent := y.Fell() <= now"}},
		scenario: "TenOfElevenCutOffBriefly",
		checks:   []string{"C4"},
	},
	{
		name:     "NoTimes",
		what:     "of two sockets of a device the one that is asked about gives way, however new it is",
		edits:    []edit{{disputeGo, "older := ours < theirs || ours == theirs && asked", "older := ours < theirs || true"}},
		scenario: "HealOfTheFormerOwner",
		checks:   []string{"C3"},
	},
	{
		name:     "NobodyAsked",
		what:     "an owner that finds another's claim where it holds a socket does not ask that one",
		edits:    []edit{{disputeGo, "\t\tt.ask(h.claim, owner)\n", ""}},
		scenario: "ParkedAfterAHiccup",
		checks:   []string{"C7"},
	},
	{
		name:     "NoRelease",
		what:     "a leader that leaves does not give the lease back",
		edits:    []edit{{leadGo, "\t\tt.gone = errors.Is(e.unlock(ctx, t.lock), errNotMine)\n", "\t\tt.gone = errors.Is(nil, errNotMine)\n"}},
		scenario: "GracefulHandover",
		checks:   []string{"C6"},
	},
	{
		name:     "NoSelfCheck",
		what:     "the guard does not mind that the leader's own heartbeat is absent",
		edits:    noSelfCheck.edits,
		scenario: "LeadersHeartbeatDeleted",
		checks:   []string{"C4"},
	},
	{
		name:     "NoIdempotence",
		what:     "the guard does not look for the record of a batch that is asked for again",
		edits:    []edit{noMemory},
		without:  []layer{{"the log's refusal of an id that it has", []edit{noRefusal}}, noLookUp},
		scenario: "BatchRepliesLost",
		checks:   []string{"C5"},
	},
	{
		name: "ClientRetries",
		what: "the client repeats by itself what got no answer",
		edits: []edit{
			{settingsGo, "o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1,", "o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = 3,"},
			{clientGo, "if o.MaxRetries > 0 {", "if o.MaxRetries > 0 && within > 0 {"},
		},
		without: []layer{
			{"idempotence", []edit{noMemory}},
			{"the log's refusal of an id that it has", []edit{noRefusal}},
			noAskingAgain,
		},
		scenario: "BatchRepliesLost",
		checks:   []string{"C5"},
	},
	{
		name:     "RegistrationApartFromHeartbeat",
		what:     "a registration does not write the heartbeat too",
		edits:    []edit{{registerLua, "assert_life()\n", ""}},
		scenario: "FleetHops",
		checks:   []string{"C3"},
	},
	{
		name:     "ReleaseWithoutCompare",
		what:     "a release takes out whatever the entry names",
		edits:    []edit{{releaseLua, "if before[i] == ARGV[1] then", "if before[i] then"}},
		scenario: "FleetHops",
		checks:   []string{"C3"},
	},
	{
		name:     "HealOverwrites",
		what:     "a heal overwrites whatever the entry names",
		edits:    []edit{{healLua, "if now and now ~= me and now ~= '' and not (dead and dead[now]) then", "if false then"}},
		scenario: "HealOfTheFormerOwner",
		checks:   []string{"C3"},
	},
	{
		name: "ReleaseBeforeJoin",
		what: "a leader that leaves gives the lease back before its work has ended",
		edits: []edit{{leadGo,
			"\te.join(t, w)\n\te.release(ctx, t)\n",
			"\te.release(ctx, t)\n\te.join(t, w)\n"}},
		without:  []layer{{"the token check", []edit{noTokenCheck}}},
		scenario: "AskedToStopBeforeItsScript",
		checks:   []string{"C4"},
	},
	{
		name: "IndexDroppedFirst",
		what: "the quick way drops an owner's index before it evicts what that names",
		edits: []edit{{quickWayGo,
			"\tif err := b.flush(ctx); err != nil || b.left[owner] || p.DryRun() {\n",
			"\tp.Client().Del(ctx, index)\n\tif err := b.flush(ctx); err != nil || b.left[owner] || p.DryRun() {\n"}},
		without:  []layer{noFullScan},
		scenario: "LeaderKilledBeforeItsScript",
		checks:   []string{"C7"},
	},
	{
		name: "NaiveJanitor",
		what: "EXISTS, HGET, HDEL, one by one, in place of the guard",
		edits: []edit{
			{guardGo,
				"\tctx = failpoint.HitPast(ctx, failpoint.BeforeScript)\n\tout, err := b.Body.script.Run(ctx, g.client, keys, args...).Slice()\n",
				"\t_, _ = keys, args\n\tout, err := g.naive(ctx, b, owner)\n"},
			{guardGo, "func parseAnswer(", naive + "func parseAnswer("},
		},
		scenario: "OwnerBackBeforeTheScript",
		checks:   []string{"C1"},
	},
	{
		name:     "NoBootTokens",
		what:     "owner scripts do not compare boot tokens",
		edits:    []edit{{ownerLua, "if token and #token == 26 and token > ARGV[2] and\n", "if false and\n"}},
		scenario: "TwoProcessesOfOneID",
		checks:   []string{"C3"},
	},
	{
		name:     "CountedTwice",
		what:     "the total grows by twice what was evicted",
		edits:    []edit{{guardLua, "'evicted_total', deleted)", "'evicted_total', 2 * deleted)"}},
		scenario: "KilledWithoutGoodbye",
		checks:   []string{"C5"},
	},
	{
		name:     "NothingHandedBack",
		what:     "an owner hands back nothing that it does not hold",
		edits:    []edit{{reconcileGo, "\t\th = t.add(id, releasing)\n", "\t\treturn &holding{id: id}\n"}},
		scenario: "RestartedUnderItsID",
		checks:   []string{"C7"},
	},
	{
		name: "CommandsUnmarked",
		what: "a command is not marked before it is sent",
		edits: []edit{
			{claimLua, "remember(KEYS[1], 'sent', ARGV[2], KEYS[2], ARGV[1], left)\n", ""},
			{claimLua, "if not sent then redis.call('XCLAIM', KEYS[2], ARGV[6], ARGV[7], 0, ARGV[1], 'FORCE', 'JUSTID') end\n", ""},
		},
		scenario: "CommandsWhileReplicasFail",
		checks:   []string{"C9"},
	},
	{
		name:     "DuplicatesSent",
		what:     "a command is sent although its id stands for another",
		edits:    []edit{{claimLua, "if sent or word then\n", "if sent then\n"}},
		scenario: "CommandsWhileReplicasFail",
		checks:   []string{"C9"},
	},
	{
		name:     "QueuedCommandsSentAgain",
		what:     "an instance sends a queued command that another has sent",
		edits:    []edit{{claimLua, "if sent or word then\n", "if false then\n"}},
		scenario: "CommandsWaitForDevices",
		checks:   []string{"C9"},
	},
	{
		name:     "QueuedCommandsExpireThoughSent",
		what:     "a queued command that a killed instance has sent expires as if it had not",
		edits:    []edit{{settleLua, "if not mine and (since or word) then\n", "if false then\n"}},
		scenario: "CommandsWaitForDevices",
		checks:   []string{"C9"},
	},
	{
		name:     "DuplicatesAnsweredForTheDead",
		what:     "the sweep of commands answers those that have an outcome",
		edits:    []edit{{answerLua, "(sent or not word) then", "true then"}},
		scenario: "CommandsWhileReplicasFail",
		checks:   []string{"C9"},
	},
	{
		name: "LateAnswersTaken",
		what: "an answer is not marked although it may be an earlier command's",
		edits: []edit{
			{commandGo, "	o.unsure = (s.commands.unsure|s.g.store.notes.talks(s.imei))&bitOf(o.codec) != 0\n", "	o.unsure = false\n"},
		},
		scenario: "CommandsWhileReplicasFail",
		checks:   []string{"C9"},
	},
	{
		name:     "SecondFramesTaken",
		what:     "a command is sent at once when the one before it has its answer",
		edits:    []edit{{commandGo, "left := s.unquiet(); left > 0 {", "left := s.unquiet(); left > time.Hour {"}},
		scenario: "CommandsWhileReplicasFail",
		checks:   []string{"C9"},
	},
}

// naive is the janitor that one writes first: EXISTS, HGET, HDEL, one by one. Its paperwork is in
// order (a tick, a record and the total with each delete), so that the checks find what it does and
// not what it does not write down.
const naive = `func (g *Guard) naive(ctx context.Context, b Batch, owner string) ([]any, error) {
	deleted := int64(0)
	for i, imei := range b.Items {
		n, err := g.client.Exists(ctx, owner).Result()
		if err != nil {
			return nil, err
		}
		holder, _ := g.client.HGet(ctx, g.layout.Registry(), imei).Result()
		if n == 1 || holder != b.Owner {
			continue
		}
		ctx = failpoint.HitPast(ctx, failpoint.BeforeScript)
		id := BatchID{b.ID.Epoch, b.ID.N*MaxBatch + uint64(i)}
		if _, err := g.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, g.layout.Witness(), "last", time.Now().UnixMilli())
			p.XAdd(ctx, &redis.XAddArgs{Stream: g.layout.Log(), ID: id.String(), Values: []any{"leader", g.leader, "owner", b.Owner,
				"sweep", b.Sweep, "count", 1, "reowned", 0, "imeis", "[\"" + imei + "\"]"}})
			p.HDel(ctx, g.layout.Registry(), imei)
			p.SRem(ctx, g.layout.Devices(b.Owner), imei)
			p.HIncrBy(ctx, g.layout.Witness(), "evicted_total", 1)
			return nil
		}); err != nil {
			return nil, err
		}
		deleted++
	}
	return []any{string(Done), deleted, int64(0), "", int64(0)}, nil
}

`

// changed returns the files of a mutant, or of the layers alone that it does without (mutated
// false), by path from the module's root.
func (m mutant) changed(t *testing.T, mutated bool) map[string]string {
	t.Helper()
	var edits []edit
	for _, l := range m.without {
		edits = append(edits, l.edits...)
	}
	if mutated {
		edits = append(edits, m.edits...)
	}
	files := make(map[string]string)
	for _, e := range edits {
		text, ok := files[e.file]
		if !ok {
			original, err := os.ReadFile(filepath.Join("..", e.file))
			require.NoError(t, err)
			text = string(original)
		}
		require.NotEqual(t, e.from, e.to)
		require.Equal(t, 1, strings.Count(text, e.from), "mutant %s does not fit any more: in %s, %q", m.name, e.file, e.from)
		files[e.file] = strings.Replace(text, e.from, e.to, 1)
	}
	return files
}

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, m := range mutants {
		require.False(t, names[m.name], "two mutants %s", m.name)
		names[m.name] = true
		require.NotEmpty(t, m.changed(t, true), m.name)
		m.changed(t, false)
		require.True(t, slices.ContainsFunc(matrix(), func(r row) bool { return r.name == m.scenario }), "mutant %s: no row %s", m.name, m.scenario)
		require.NotEmpty(t, m.checks, m.name)
		for _, c := range m.checks {
			require.Regexp(t, regexp.MustCompile(`^C[1-9]$`), c)
		}
	}
	for _, m := range fleetMutants {
		require.False(t, names[m.name], "two mutants %s", m.name)
		names[m.name] = true
		require.NotEmpty(t, m.changed(t, true), m.name)
		m.changed(t, false)
	}
}

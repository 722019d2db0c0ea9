package chaos

import (
	"slices"
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// What is here needs no tag, so that a change of the code which a mutant rests on is told by the
// next run of all tests.

type edits = []harness.Edit

func in(file, from, to string) harness.Edit {
	return harness.Edit{File: file, From: from, To: to}
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
	noTokenCheck = in(guardLua, "if redis.pcall('GET', KEYS[2]) ~= ARGV[2] then return answer('FENCED') end\n", "")

	noMemory = in(guardLua, "if asked[1] then\n", "if false then\n")

	// The record of a batch that has one is left as it is.
	noRefusal = in(guardLua,
		"    if string.find(ok.err, 'equal or smaller') or string.find(ok.err, 'exhausted') then return answer('FENCED') end\n",
		"    if string.find(ok.err, 'equal or smaller') then return nil end\n")

	// A batch of unknown fate is not asked for again; it is looked up in the log when a later
	// one has been recorded.
	noAskingAgain = edits{in(reaperGo, "\t\tr.pending.Store(b)\n", "")}

	noLookUp = edits{in(pendingGo, "range open {", "range open[:0] {")}

	noSelfCheck = edits{in(guardLua, "if now - since >= need and redis.call('EXISTS', KEYS[4]) == 0 then", "if false then")}

	noFullScan = edits{in(fullScanGo,
		"\tw := &scan{fullScan: s, p: p}\n",
		"\tif true {\n\t\treturn nil\n\t}\n\tw := &scan{fullScan: s, p: p}\n")}

	noExists = in(guardLua, "  if redis.call('EXISTS', KEYS[5]) == 1 then return 'ALIVE' end\n", "")

	// A fresh record counts though the heartbeat is gone.
	noAliveByRecord = edits{
		in(guardLua, "  if state ~= 'b' and fell > now then return 'ALIVE' end -- its heartbeat was evicted, not its life\n", ""),
		in(doubtGo, "\tcase r.Fell() > now:\n\t\treturn Alive // its heartbeat was evicted or deleted\n", ""),
		in(ownersGo, "\tcase x.beats, x.Fell() > r.Now && x.State != doubt.Bye:\n", "\tcase x.beats:\n"),
		in(ownersGo, " || x.State == doubt.Bye || x.Fell() <= r.Now\n", " || true\n"),
	}

	notDoubted = edits{
		in(guardLua, "    if quiet < 10 * grace and now - (count(w.refused_at) or -grace) < grace then return 'WAIT', 'refused' end\n", ""),
		in(doubtGo, "\tcase quiet < bound*r.Grace() && now-refused < r.Grace():\n\t\treturn Refused\n", ""),
	}

	noCompare = in(guardLua, "  if record ~= seen then return 'WAIT', 'stale' end\n", "")
)

// mutants are the program without one of its protections, each with the checks of the judge of which
// one must fail in its row.
var mutants = harness.Mutants{Program: "ingest", Given: harness.GivenIngest, Rejects: judgeRejects, Tries: 2, All: []harness.Mutant{
	{
		Name:  "NoTokenCheck",
		What:  "the guard does not look at the lease",
		Edits: edits{noTokenCheck},
		// with a newer term open its record alone would refuse the batch
		Row:    "LeaseGoneBeforeTheScript",
		Checks: []string{"C4"},
	},
	{
		Name:    "NoHeartbeatCheck",
		What:    "the guard does not look at the owner's heartbeat",
		Edits:   edits{noExists},
		Without: slices.Concat(noAliveByRecord, edits{noCompare}),
		Row:     "OwnerBackBeforeTheScript",
		Checks:  []string{"C1"},
	},
	{
		Name:   "NoOwnerCheck",
		What:   "the guard evicts whatever the entries name",
		Edits:  edits{in(evictLua, "if o == owner then", "if o then")},
		Row:    "LeaderKilledMidPass",
		Checks: []string{"C1", "C2"},
	},
	{
		Name:   "RefusedNotDoubted",
		What:   "silence proves death while the server turns clients away",
		Edits:  notDoubted,
		Row:    "ConnectionsRefused",
		Checks: []string{"C2", "C4"},
	},
	{
		Name:    "NoHoldForGaps",
		What:    "the witness does not mind that nobody listened",
		Edits:   edits{in(witnessLua, " or last > now or now - last > tonumber(gap) then", " or last > now then")},
		Without: noSelfCheck,
		Row:     "RedisStopped",
		Checks:  []string{"C4"},
	},
	{
		Name:    "ServerNotCompared",
		What:    "the witness does not mind that the server is another than at the last tick",
		Edits:   edits{in(witnessLua, "  elseif id ~= '' and w.server ~= id or fell(w.connections, connections) or fell(w.commands, commands) or fell(w.refused, refused) then\n", "  elseif false then\n")},
		Without: noAliveByRecord,
		Row:     "EvictedThenRestarted",
		Checks:  []string{"C2", "C4"},
	},
	{
		Name:    "CountersNotCompared",
		What:    "the witness does not mind that the server's counters have fallen",
		Edits:   edits{in(witnessLua, " or fell(w.connections, connections) or fell(w.commands, commands) or fell(w.refused, refused)", "")},
		Without: noAliveByRecord,
		Row:     "EvictedThenStatisticsReset",
		Checks:  []string{"C2", "C4"},
	},
	{
		Name:   "NoTimes",
		What:   "of two sockets of a device the one that is asked about gives way, however new it is",
		Edits:  edits{in(disputeGo, "older := ours < theirs || ours == theirs && asked", "older := ours < theirs || true")},
		Row:    "HealOfTheFormerOwner",
		Checks: []string{"C3"},
	},
	{
		Name:   "NobodyAsked",
		What:   "an owner that finds another's claim where it holds a socket does not ask that one",
		Edits:  edits{in(disputeGo, "\t\tt.ask(h.claim, owner)\n", "")},
		Row:    "ParkedAfterAHiccup",
		Checks: []string{"C7"},
	},
	{
		Name:   "NoRelease",
		What:   "a leader that leaves does not give the lease back",
		Edits:  edits{in(leadGo, "\t\tt.gone = errors.Is(e.unlock(ctx, t.lock), errNotMine)\n", "\t\tt.gone = errors.Is(nil, errNotMine)\n")},
		Row:    "GracefulHandover",
		Checks: []string{"C6"},
	},
	{
		Name:   "NoSelfCheck",
		What:   "the guard does not mind that the leader's own heartbeat is absent",
		Edits:  noSelfCheck,
		Row:    "LeadersHeartbeatDeleted",
		Checks: []string{"C4"},
	},
	{
		Name:    "NoIdempotence",
		What:    "the guard does not look for the record of a batch that is asked for again",
		Edits:   edits{noMemory},
		Without: slices.Concat(edits{noRefusal}, noLookUp),
		Row:     "EvictionsReplyLost",
		Checks:  []string{"C5"},
	},
	{
		Name: "ClientRetries",
		What: "the client repeats by itself what got no answer",
		Edits: edits{
			in(settingsGo, "o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1,", "o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = 3,"),
			in(clientGo, "if o.MaxRetries > 0 {", "if o.MaxRetries > 0 && within > 0 {"),
		},
		Without: slices.Concat(edits{noMemory}, edits{noRefusal}, noAskingAgain),
		Row:     "EvictionsReplyLost",
		Checks:  []string{"C5"},
	},
	{
		Name:   "RegistrationApartFromHeartbeat",
		What:   "a registration does not write the heartbeat too",
		Edits:  edits{in(registerLua, "assert_life()\n", "")},
		Row:    "FleetHops",
		Checks: []string{"C3"},
	},
	{
		Name:   "ReleaseWithoutCompare",
		What:   "a release takes out whatever the entry names",
		Edits:  edits{in(releaseLua, "if before[i] == ARGV[1] then", "if before[i] then")},
		Row:    "FleetHops",
		Checks: []string{"C3"},
	},
	{
		Name:   "HealOverwrites",
		What:   "a heal overwrites whatever the entry names",
		Edits:  edits{in(healLua, "if now and now ~= me and now ~= '' and not (dead and dead[now]) then", "if false then")},
		Row:    "HealOfTheFormerOwner",
		Checks: []string{"C3"},
	},
	{
		Name: "ReleaseBeforeJoin",
		What: "a leader that leaves gives the lease back before its work has ended",
		Edits: edits{in(leadGo,
			"\te.join(t, w)\n\te.release(ctx, t)\n",
			"\te.release(ctx, t)\n\te.join(t, w)\n")},
		Without: edits{noTokenCheck},
		Row:     "AskedToStopBeforeItsScript",
		Checks:  []string{"C4"},
	},
	{
		Name: "IndexDroppedFirst",
		What: "the quick way drops an owner's index before it evicts what that names",
		Edits: edits{in(quickWayGo,
			"\tif err := b.flush(ctx); err != nil || b.left[owner] || p.DryRun() {\n",
			"\tp.Client().Del(ctx, index)\n\tif err := b.flush(ctx); err != nil || b.left[owner] || p.DryRun() {\n")},
		Without: noFullScan,
		Row:     "LeaderKilledBeforeItsScript",
		Checks:  []string{"C7"},
	},
	{
		Name: "NaiveJanitor",
		What: "EXISTS, HGET, HDEL, one by one, in place of the guard",
		Edits: edits{
			in(guardGo,
				"\tctx = failpoint.HitPast(ctx, failpoint.BeforeScript)\n\tout, err := b.Body.script.Run(ctx, g.client, keys, args...).Slice()\n",
				"\t_, _ = keys, args\n\tout, err := g.naive(ctx, b, owner)\n"),
			in(guardGo, "func parseAnswer(", naive+"func parseAnswer("),
		},
		Row:    "OwnerBackBeforeTheScript",
		Checks: []string{"C1"},
	},
	{
		Name:   "NoBootTokens",
		What:   "owner scripts do not compare boot tokens",
		Edits:  edits{in(ownerLua, "if token and #token == 26 and token > ARGV[2] and\n", "if false and\n")},
		Row:    "TwoProcessesOfOneID",
		Checks: []string{"C3"},
	},
	{
		Name:   "CountedTwice",
		What:   "the total grows by twice what was evicted",
		Edits:  edits{in(guardLua, "'evicted_total', deleted)", "'evicted_total', 2 * deleted)")},
		Row:    "KilledWithoutGoodbye",
		Checks: []string{"C5"},
	},
	{
		Name:   "NothingHandedBack",
		What:   "an owner hands back nothing that it does not hold",
		Edits:  edits{in(reconcileGo, "\t\th = t.add(id, releasing)\n", "\t\treturn &holding{id: id}\n")},
		Row:    "RestartedUnderItsID",
		Checks: []string{"C7"},
	},
	{
		Name: "CommandsUnmarked",
		What: "a command is not marked before it is sent",
		Edits: edits{
			in(claimLua, "remember(KEYS[1], 'sent', ARGV[2], KEYS[2], ARGV[1], left)\n", ""),
			in(claimLua, "if not sent then redis.call('XCLAIM', KEYS[2], ARGV[6], ARGV[7], 0, ARGV[1], 'FORCE', 'JUSTID') end\n", ""),
		},
		Row:    "CommandsWhileReplicasFail",
		Checks: []string{"C9"},
	},
	{
		Name:   "DuplicatesSent",
		What:   "a command is sent although its id stands for another",
		Edits:  edits{in(claimLua, "if sent or word then\n", "if sent then\n")},
		Row:    "CommandsWhileReplicasFail",
		Checks: []string{"C9"},
	},
	{
		Name:   "QueuedCommandsSentAgain",
		What:   "an instance sends a queued command that another has sent",
		Edits:  edits{in(claimLua, "if sent or word then\n", "if false then\n")},
		Row:    "CommandsWaitForDevices",
		Checks: []string{"C9"},
	},
	{
		Name:   "QueuedCommandsExpireThoughSent",
		What:   "a queued command that a killed instance has sent expires as if it had not",
		Edits:  edits{in(settleLua, "if not mine and (since or word) then\n", "if false then\n")},
		Row:    "CommandsWaitForDevices",
		Checks: []string{"C9"},
	},
	{
		Name:   "DuplicatesAnsweredForTheDead",
		What:   "the sweep of commands answers those that have an outcome",
		Edits:  edits{in(answerLua, "(sent or not word) then", "true then")},
		Row:    "CommandsWhileReplicasFail",
		Checks: []string{"C9"},
	},
	{
		Name:   "LateAnswersTaken",
		What:   "an answer is not marked although it may be an earlier command's",
		Edits:  edits{in(commandGo, "	o.unsure = (s.commands.unsure|s.g.store.notes.talks(s.imei))&bitOf(o.codec) != 0\n", "	o.unsure = false\n")},
		Row:    "CommandsWhileReplicasFail",
		Checks: []string{"C9"},
	},
	{
		Name:   "SecondFramesTaken",
		What:   "a command is sent at once when the one before it has its answer",
		Edits:  edits{in(commandGo, "left := s.unquiet(); left > 0 {", "left := s.unquiet(); left > time.Hour {")},
		Row:    "CommandsWhileReplicasFail",
		Checks: []string{"C9"},
	},
}}

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

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, r := range matrix() {
		rows = append(rows, r.name)
	}
	mutants.Fit(t, rows...)
	searchMutants.Fit(t)
}

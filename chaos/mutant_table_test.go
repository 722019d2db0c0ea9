package chaos

import (
	"slices"
	"strings"
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
	leadGo      = "lease/term.go"
	sweepGo     = "janitor/pass.go"
	quickWayGo  = "janitor/quickway.go"
	fullScanGo  = "janitor/fullscan.go"
	ownersGo    = "janitor/owners.go"
	doubtGo     = "internal/guard/doubt/doubt.go"
	reaperGo    = "janitor/reaper.go"
	pendingGo   = "janitor/batcher.go"
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

// mutants are the program without one of its protections, each with the checks of the judge of
// which one must fail in its row.
var mutants = harness.Mutants{Program: "ingest", Given: harness.GivenIngest, Rejects: judgeRejects, Tries: 2, All: []harness.Mutant{
	// with a newer term open its record alone would refuse the batch
	rejected("C4", "LeaseGoneBeforeTheScript", "NoTokenCheck",
		"the guard does not look at the lease",
		edits{noTokenCheck}),
	rejected("C1", "OwnerBackBeforeTheScript", "NoHeartbeatCheck",
		"the guard does not look at the owner's heartbeat",
		edits{noExists}, slices.Concat(noAliveByRecord, edits{noCompare})...),
	rejected("C1 C2", "LeaderKilledMidPass", "NoOwnerCheck",
		"the guard evicts whatever the entries name",
		edits{in(evictLua, "if o == owner then", "if o then")}),
	rejected("C2 C4", "ConnectionsRefused", "RefusedNotDoubted",
		"silence proves death while the server turns clients away",
		notDoubted),
	rejected("C4", "AllHoldersCutOffBesideIdleReplicas", "IdleCounted",
		"replicas that hold nothing count among those that are not off",
		edits{in(doubtGo, "(y.State == Idle || y.State == Bye)", "(y.State == Bye)")},
		// who came later proves nothing, as what is idle does at each beat
		in(doubtGo, "case y.Born >= heard && !silent && other != id:", "case false:")),
	rejected("C4", "RedisStopped", "NoHoldForGaps",
		"the witness does not mind that nobody listened",
		edits{in(witnessLua, " or last > now or now - last > tonumber(gap) then", " or last > now then")}, noSelfCheck...),
	rejected("C2 C4", "EvictedThenRestarted", "ServerNotCompared",
		"the witness does not mind that the server is another than at the last tick",
		edits{in(witnessLua, "  elseif id ~= '' and w.server ~= id or fell(w.connections, connections) or fell(w.commands, commands) or fell(w.refused, refused) then\n", "  elseif false then\n")}, noAliveByRecord...),
	rejected("C2 C4", "EvictedThenStatisticsReset", "CountersNotCompared",
		"the witness does not mind that the server's counters have fallen",
		edits{in(witnessLua, " or fell(w.connections, connections) or fell(w.commands, commands) or fell(w.refused, refused)", "")}, noAliveByRecord...),
	rejected("C3", "HealOfTheFormerOwner", "NoTimes",
		"of two sockets of a device the one that is asked about gives way, however new it is",
		edits{in(disputeGo, "older := ours < theirs || ours == theirs && asked", "older := ours < theirs || true")}),
	rejected("C7", "ParkedAfterAHiccup", "NobodyAsked",
		"an owner that finds another's claim where it holds a socket does not ask that one",
		edits{in(disputeGo, "\t\tt.ask(h.claim, owner)\n", "")}),
	rejected("C6", "GracefulHandover", "NoRelease",
		"a leader that leaves does not give the lease back",
		edits{in(leadGo, "\t\tt.gone = errors.Is(e.unlock(ctx, t.lock), errNotMine)\n", "\t\tt.gone = errors.Is(nil, errNotMine)\n")}),
	rejected("C4", "LeadersHeartbeatDeleted", "NoSelfCheck",
		"the guard does not mind that the leader's own heartbeat is absent",
		noSelfCheck),
	rejected("C5", "BatchRepliesLost", "NoIdempotence",
		"the guard does not look for the record of a batch that is asked for again",
		edits{noMemory}, slices.Concat(edits{noRefusal}, noLookUp)...),
	rejected("C5", "BatchRepliesLost", "ClientRetries",
		"the client repeats by itself what got no answer",
		edits{
			in(settingsGo, "o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1,", "o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = 3,"),
			in(clientGo, "if o.MaxRetries > 0 {", "if o.MaxRetries > 0 && within > 0 {"),
		}, slices.Concat(edits{noMemory}, edits{noRefusal}, noAskingAgain)...),
	rejected("C3", "FleetHops", "RegistrationApartFromHeartbeat",
		"a registration does not write the heartbeat too",
		edits{in(registerLua, "assert_life()\n", "")}),
	rejected("C3", "FleetHops", "ReleaseWithoutCompare",
		"a release takes out whatever the entry names",
		edits{in(releaseLua, "if before[i] == ARGV[1] then", "if before[i] then")}),
	rejected("C3", "HealOfTheFormerOwner", "HealOverwrites",
		"a heal overwrites whatever the entry names",
		edits{in(healLua, "if now and now ~= me and now ~= '' and not (dead and dead[now]) then", "if false then")}),
	rejected("C4", "AskedToStopBeforeItsScript", "ReleaseBeforeJoin",
		"a leader that leaves gives the lease back before its work has ended",
		edits{in(leadGo,
			"\te.join(t, w)\n\te.release(ctx, t)\n",
			"\te.release(ctx, t)\n\te.join(t, w)\n")}, edits{noTokenCheck}...),
	rejected("C7", "LeaderKilledBeforeItsScript", "IndexDroppedFirst",
		"the quick way drops an owner's index before it evicts what that names",
		edits{in(quickWayGo,
			"\tif err := b.flush(ctx); err != nil || b.left[owner] || p.DryRun() {\n",
			"\tp.Client().Del(ctx, index)\n\tif err := b.flush(ctx); err != nil || b.left[owner] || p.DryRun() {\n")}, noFullScan...),
	rejected("C1", "OwnerBackBeforeTheScript", "NaiveJanitor",
		"EXISTS, HGET, HDEL, one by one, in place of the guard",
		edits{
			in(guardGo,
				"\tctx = failpoint.HitPast(ctx, failpoint.BeforeScript)\n\tout, err := b.Body.script.Run(ctx, g.client, keys, args...).Slice()\n",
				"\t_, _ = keys, args\n\tout, err := g.naive(ctx, b, owner)\n"),
			in(guardGo, "func parseAnswer(", naive+"func parseAnswer("),
		}),
	rejected("C3", "TwoProcessesOfOneID", "NoBootTokens",
		"owner scripts do not compare boot tokens",
		edits{in(ownerLua, "if token and #token == 26 and token > ARGV[2] and\n", "if false and\n")}),
	rejected("C5", "KilledWithoutGoodbye", "CountedTwice",
		"the total grows by twice what was evicted",
		edits{in(guardLua, "'evicted_total', deleted)", "'evicted_total', 2 * deleted)")}),
	rejected("C7", "RestartedUnderItsID", "NothingHandedBack",
		"an owner hands back nothing that it does not hold",
		edits{in(reconcileGo, "\t\th = t.add(id, releasing)\n", "\t\treturn &holding{id: id}\n")}),
	rejected("C9", "CommandsWhileReplicasFail", "CommandsUnmarked",
		"a command is not marked before it is sent",
		edits{
			in(claimLua, "remember(KEYS[1], 'sent', ARGV[2], KEYS[2], ARGV[1], left)\n", ""),
			in(claimLua, "if not sent then redis.call('XCLAIM', KEYS[2], ARGV[6], ARGV[7], 0, ARGV[1], 'FORCE', 'JUSTID') end\n", ""),
		}),
	rejected("C9", "CommandsWhileReplicasFail", "DuplicatesSent",
		"a command is sent although its id stands for another",
		edits{in(claimLua, "if sent or word then\n", "if sent then\n")}),
	rejected("C9", "CommandsWaitForDevices", "QueuedCommandsSentAgain",
		"an instance sends a queued command that another has sent",
		edits{in(claimLua, "if sent or word then\n", "if false then\n")}),
	rejected("C9", "CommandsWaitForDevices", "QueuedCommandsExpireThoughSent",
		"a queued command that a killed instance has sent expires as if it had not",
		edits{in(settleLua, "if not mine and (since or word) then\n", "if false then\n")}),
	rejected("C9", "CommandsWhileReplicasFail", "DuplicatesAnsweredForTheDead",
		"the sweep of commands answers those that have an outcome",
		edits{in(answerLua, "(sent or not word) then", "true then")}),
	rejected("C9", "CommandsWhileReplicasFail", "LateAnswersTaken",
		"an answer is not marked although it may be an earlier command's",
		edits{in(commandGo, "	o.unsure = (s.commands.unsure|s.g.store.notes.talks(s.imei))&bitOf(o.codec) != 0\n", "	o.unsure = false\n")}),
	rejected("C9", "CommandsWhileReplicasFail", "SecondFramesTaken",
		"a command is sent at once when the one before it has its answer",
		edits{in(commandGo, "left := s.unquiet(); left > 0 {", "left := s.unquiet(); left > time.Hour {")}),
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

// rejected is a mutant for which one of some checks must reject a row.
func rejected(checks, row, name, what string, edits edits, without ...harness.Edit) harness.Mutant {
	return harness.Mutant{Name: name, What: what, Edits: edits, Without: without, Row: row, Checks: strings.Fields(checks)}
}

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, r := range matrix() {
		rows = append(rows, r.name)
	}
	mutants.Fit(t, rows...)
	searchMutants.Fit(t)
}

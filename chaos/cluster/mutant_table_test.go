package cluster

import (
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

var (
	noCompare = harness.Edit{
		File: "internal/guard/witness.lua",
		From: "  elseif id ~= '' and w.server ~= id or fell(w.connections, connections) or fell(w.commands, commands) or fell(w.refused, refused) then\n",
		To:   "  elseif false then\n",
	}
)

// mutants are without a protection that matters on a Cluster, or that a test of its package shows
// better than a row. What is here needs no tag, so that the next run of all tests notices a change
// of the code which a mutant rests on.
var mutants = harness.Mutants{
	Rejects: oracleRejects,
	All: []harness.Mutant{
		{
			Name: "NoRunID", What: "the witness does not know one server from another",
			Edits: []harness.Edit{noCompare},
			Row:   "SlotMovesWhileItsSourceDies",
		},
		{
			Name: "TicksWithoutTheNeverKey", What: "ticks are answered while the slot moves",
			Edits: []harness.Edit{{
				File: "internal/guard/witness.go",
				From: "l.Roster(), l.Never(), ",
				To:   "l.Roster(), l.Roster(), ",
			}},
			Without: []harness.Edit{noCompare},
			Row:     "HeartbeatMovesLongBeforeTheRest",
		},
		harness.ByTest("WhoYieldsNeverLooks", "who yields waits for ever for those that go first",
			"TestWhoYieldsForLongestLeadsWithinTwoTTLsWhenAllOthersDied", "lease",
			harness.In("lease/campaign.go", "return left + e.yield()", "return left + 1000*e.yield()")),
		harness.ByTest("FollowersTickUnseen", "who does not lead does not look when somebody last ticked",
			"TestAReplicaTicksWhileNobodyElseDoesAndItCannotLead", "janitor",
			harness.In("internal/guard/tick.lua", " or now - last >= tonumber(ARGV[4]) then", " then")),
		harness.ByTest("LeasesGivenToTheDead", "leases are given up to replicas that may be dead",
			"TestWhoeverDiesAtOnceSomebodyLeadsAndTheDeadGo", "internal/partition",
			harness.In("internal/partition/seats.go", "give := time.Since(fair) > s.dead", "give := time.Since(fair) >= 0")),
		harness.ByTest("LookUpWithAnUndeclaredKey", "a look-up reads a heartbeat that it does not declare",
			"TestALookUpWhileTheSlotMovesDoesNotSayThatTheOwnerIsDead", "registry",
			harness.In("registry/lookup.lua", "(ARGV[4] ~= '1' or declared[ARGV[3] .. owner])", "true")),
		harness.ByTest("NoWitness", "the guard does not wait for GRACE after a hold",
			"TestGuardKeeps", "internal/guard",
			harness.In("internal/guard/guard.lua", "if now - since < need then return", "if false then return")),
		harness.ByTest("EvictedIsDead", "an owner is dead when its heartbeat is gone, however fresh its record",
			"TestTheScriptAndTheRuleComeToTheSameVerdict", "internal/guard",
			harness.In("internal/guard/guard.lua", "  if state ~= 'b' and fell > now then return 'ALIVE' end", "  if false then return 'ALIVE' end")),
		harness.ByTest("StaleReading", "the guard takes an old reading of the others for a fresh one",
			"TestWithinAGraceOfTheFallAnOldReadingProvesNothing", "internal/guard",
			harness.In("internal/guard/guard.lua", "(now < read_at or now - read_at > 2000)", "false")),
		harness.ByTest("RecordNotCompared", "the guard does not mind that the owner's record is another than the leader read",
			"TestAnOwnerWaitsWhileItsRecordProvesNothing", "internal/guard",
			harness.In("internal/guard/guard.lua", "  if record ~= seen then return 'WAIT', 'stale' end\n", "")),
		harness.ByTest("NoRecordIsSilence", "an owner without a record is dead",
			"TestAnOwnerWaitsWhileItsRecordProvesNothing", "internal/guard",
			harness.In("internal/guard/guard.lua", "  if not last then return 'WAIT', 'unknown' end\n", "  if not last then return end\n")),
		harness.ByTest("OwnersGraceNotHeld", "an owner with a longer TTL is judged by the fleet's",
			"TestTheScriptAndTheRuleComeToTheSameVerdict", "internal/guard",
			harness.In("internal/guard/guard.lua", "  if now - since < grace then return 'WAIT', 'held' end", "  if false then return 'WAIT', 'held' end")),
		harness.ByTest("EvictedKeysForgotten", "a sweep without an owner does not mind that Redis evicts",
			"TestAfterAnEvictionABatchWithoutAnOwnerIsHeldForAGrace", "internal/guard",
			harness.In("internal/guard/guard.lua", "if ARGV[6] == '' and now - (count(w.evicted_at) or -need) < need then", "if false then")),
		harness.ByTest("UnreadableIsNoEvidence", "who may not read how many were turned away notes nothing",
			"TestWhatCannotBeReadIsNoEvidence", "internal/guard",
			harness.In("internal/guard/witness.lua", "if w.refused and w.refused ~= refused or", "if w.refused and refused ~= '' and w.refused ~= refused or")),
		harness.ByTest("RecordsOverwritten", "the leader overwrites what an owner has written since",
			"TestALeaderWritesOnlyRecordsThatAreAsItReadThem", "internal/guard",
			harness.In("internal/guard/records.lua", "(redis.call('HGET', KEYS[2], ARGV[i]) or '') ~= ARGV[i + 1]", "false")),
		harness.ByTest("FormerAnswers", "a former primary answers a leader",
			"TestAFormerPrimaryAnswersNothing", "internal/guard",
			harness.In("internal/guard/former.lua", "if last and last < tonumber(newest) then", "if false then")),
		harness.ByTest("BackNotWritten", "an owner's record does not have when it was back",
			"TestOwnerScripts", "registry",
			harness.In("registry/record.lua", "    back = now\n", "")),
		harness.ByTest("BornBeforeItHeld", "an owner that holds anew counts as if it always had",
			"TestOwnerScripts", "registry",
			harness.In("registry/record.lua", "if not last or state == 'i' or state == 'b' then", "if not last then")),
		harness.ByTest("SuccessionUnheard", "an owner takes over from the silent as soon as Redis is back",
			"TestAHealOverTheDeadDecidesByTheirRecords", "registry",
			harness.In("registry/heal.lua", " and now - since >= due then", " then")),
		harness.ByTest("SuccessionOverTheLiving", "an owner takes over from one whose heartbeat is there, or whose record is fresh",
			"TestAHealOverTheDeadDecidesByTheirRecords", "registry",
			harness.In("registry/heal.lua", "if redis.call('EXISTS', KEYS[i]) == 0 then", "if true then"),
			harness.In("registry/heal.lua", "(state == 'b' or last + ttl <= now)", "true")),
		harness.ByTest("PlainOutlived", "an owner takes over from one that writes no records, by a record that no leader renews",
			"TestAHealOverTheDeadDecidesByTheirRecords", "registry",
			harness.In("registry/heal.lua", "last and state ~= 'p' and", "last and")),
		harness.ByTest("ChannelsOfAllDatabases", "owners in two databases hear each other",
			"TestFleetsInTwoDatabasesDoNotHearEachOther", "registry",
			harness.In("registry/record.lua", "'PUBLISH', ARGV[8] .. string", "'PUBLISH', string")),
		harness.ByTest("RetriedCommands", "what was not answered is sent again",
			"TestOnAClusterNothingIsSentTwiceAndASlotThatMovedIsFound", "lease",
			harness.In("lease/client.go", "\"MaxRedirects\": -1", "\"MaxRedirects\": 3")),
	},
}

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, r := range matrix() {
		rows = append(rows, r.name)
	}
	mutants.Fit(t, rows...)
}

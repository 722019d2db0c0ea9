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
		{
			Name: "WhoYieldsNeverLooks", What: "who yields waits for ever for those that go first",
			Edits: []harness.Edit{{
				File: "lease/campaign.go",
				From: "return left + e.yield()",
				To:   "return left + 1000*e.yield()",
			}},
			Test: "TestWhoYieldsForLongestLeadsWithinTwoTTLsWhenAllOthersDied", Of: "lease",
		},
		{
			Name: "FollowersTickUnseen", What: "who does not lead does not look when somebody last ticked",
			Edits: []harness.Edit{{
				File: "internal/guard/tick.lua", From: " or now - last >= tonumber(ARGV[4]) then", To: " then",
			}},
			Test: "TestAReplicaTicksWhileNobodyElseDoesAndItCannotLead", Of: "janitor",
		},
		{
			Name: "LeasesGivenToTheDead", What: "leases are given up to replicas that may be dead",
			Edits: []harness.Edit{{
				File: "internal/partition/seats.go",
				From: "give := time.Since(fair) > s.dead",
				To:   "give := time.Since(fair) >= 0",
			}},
			Test: "TestWhoeverDiesAtOnceSomebodyLeadsAndTheDeadGo", Of: "internal/partition",
		},
		{
			Name: "LookUpWithAnUndeclaredKey", What: "a look-up reads a heartbeat that it does not declare",
			Edits: []harness.Edit{{
				File: "registry/lookup.lua",
				From: "(ARGV[4] ~= '1' or declared[ARGV[3] .. owner])",
				To:   "true",
			}},
			Test: "TestALookUpWhileTheSlotMovesDoesNotSayThatTheOwnerIsDead", Of: "registry",
		},
		{
			Name: "NoWitness", What: "the guard does not wait for GRACE after a hold",
			Edits: []harness.Edit{{File: "internal/guard/guard.lua",
				From: "if now - since < need then return", To: "if false then return"}},
			Test: "TestGuardKeeps", Of: "internal/guard",
		},
		{
			Name: "EvictedIsDead", What: "an owner is dead when its heartbeat is gone, however fresh its record",
			Edits: []harness.Edit{{File: "internal/guard/guard.lua",
				From: "  if state ~= 'b' and fell > now then return 'ALIVE' end",
				To:   "  if false then return 'ALIVE' end"}},
			Test: "TestTheScriptAndTheRuleComeToTheSameVerdict", Of: "internal/guard",
		},
		{
			Name: "StaleReading", What: "the guard takes an old reading of the others for a fresh one",
			Edits: []harness.Edit{{File: "internal/guard/guard.lua",
				From: "(now < read_at or now - read_at > 2000)", To: "false"}},
			Test: "TestWithinAGraceOfTheFallAnOldReadingProvesNothing", Of: "internal/guard",
		},
		{
			Name: "RecordNotCompared", What: "the guard does not mind that the owner's record is another than the leader read",
			Edits: []harness.Edit{{File: "internal/guard/guard.lua",
				From: "  if record ~= seen then return 'WAIT', 'stale' end\n", To: ""}},
			Test: "TestAnOwnerWaitsWhileItsRecordProvesNothing", Of: "internal/guard",
		},
		{
			Name: "NoRecordIsSilence", What: "an owner without a record is dead",
			Edits: []harness.Edit{{File: "internal/guard/guard.lua",
				From: "  if not last then return 'WAIT', 'unknown' end\n",
				To:   "  if not last then return end\n"}},
			Test: "TestAnOwnerWaitsWhileItsRecordProvesNothing", Of: "internal/guard",
		},
		{
			Name: "OwnersGraceNotHeld", What: "an owner with a longer TTL is judged by the fleet's",
			Edits: []harness.Edit{{File: "internal/guard/guard.lua",
				From: "  if now - since < grace then return 'WAIT', 'held' end",
				To:   "  if false then return 'WAIT', 'held' end"}},
			Test: "TestTheScriptAndTheRuleComeToTheSameVerdict", Of: "internal/guard",
		},
		{
			Name: "EvictedKeysForgotten", What: "a sweep without an owner does not mind that Redis evicts",
			Edits: []harness.Edit{{File: "internal/guard/guard.lua",
				From: "if ARGV[6] == '' and now - (count(w.evicted_at) or -need) < need then",
				To:   "if false then"}},
			Test: "TestAfterAnEvictionABatchWithoutAnOwnerIsHeldForAGrace", Of: "internal/guard",
		},
		{
			Name: "UnreadableIsNoEvidence", What: "who may not read how many were turned away notes nothing",
			Edits: []harness.Edit{{File: "internal/guard/witness.lua",
				From: "if w.refused and w.refused ~= refused or",
				To:   "if w.refused and refused ~= '' and w.refused ~= refused or"}},
			Test: "TestWhatCannotBeReadIsNoEvidence", Of: "internal/guard",
		},
		{
			Name: "RecordsOverwritten", What: "the leader overwrites what an owner has written since",
			Edits: []harness.Edit{{File: "internal/guard/records.lua",
				From: "(redis.call('HGET', KEYS[2], ARGV[i]) or '') ~= ARGV[i + 1]", To: "false"}},
			Test: "TestALeaderWritesOnlyRecordsThatAreAsItReadThem", Of: "internal/guard",
		},
		{
			Name: "FormerAnswers", What: "a former primary answers a leader",
			Edits: []harness.Edit{{File: "internal/guard/former.lua",
				From: "if last and last < tonumber(newest) then", To: "if false then"}},
			Test: "TestAFormerPrimaryAnswersNothing", Of: "internal/guard",
		},
		{
			Name: "BackNotWritten", What: "an owner's record does not have when it was back",
			Edits: []harness.Edit{{File: "registry/record.lua", From: "    back = now\n", To: ""}},
			Test:  "TestOwnerScripts", Of: "registry",
		},
		{
			Name: "BornBeforeItHeld", What: "an owner that holds anew counts as if it always had",
			Edits: []harness.Edit{{File: "registry/record.lua", From: "if not last or state == 'i' or state == 'b' then", To: "if not last then"}},
			Test:  "TestOwnerScripts", Of: "registry",
		},
		{
			Name: "SuccessionUnheard", What: "an owner takes over from the silent as soon as Redis is back",
			Edits: []harness.Edit{{File: "registry/heal.lua", From: " and now - since >= due then", To: " then"}},
			Test:  "TestAHealOverTheDeadDecidesByTheirRecords", Of: "registry",
		},
		{
			Name: "SuccessionOverTheLiving", What: "an owner takes over from one whose heartbeat is there, or whose record is fresh",
			Edits: []harness.Edit{
				{File: "registry/heal.lua", From: "if redis.call('EXISTS', KEYS[i]) == 0 then", To: "if true then"},
				{File: "registry/heal.lua", From: "(state == 'b' or last + ttl <= now)", To: "true"},
			},
			Test: "TestAHealOverTheDeadDecidesByTheirRecords", Of: "registry",
		},
		{
			Name: "PlainOutlived", What: "an owner takes over from one that writes no records, by a record that no leader renews",
			Edits: []harness.Edit{{File: "registry/heal.lua", From: "last and state ~= 'p' and", To: "last and"}},
			Test:  "TestAHealOverTheDeadDecidesByTheirRecords", Of: "registry",
		},
		{
			Name: "ChannelsOfAllDatabases", What: "owners in two databases hear each other",
			Edits: []harness.Edit{{File: "registry/record.lua", From: "'PUBLISH', ARGV[8] .. string", To: "'PUBLISH', string"}},
			Test:  "TestFleetsInTwoDatabasesDoNotHearEachOther", Of: "registry",
		},
		{
			Name: "RetriedCommands", What: "what was not answered is sent again",
			Edits: []harness.Edit{{
				File: "lease/client.go",
				From: "\"MaxRedirects\": -1",
				To:   "\"MaxRedirects\": 3",
			}},
			Test: "TestOnAClusterNothingIsSentTwiceAndASlotThatMovedIsFound", Of: "lease",
		},
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

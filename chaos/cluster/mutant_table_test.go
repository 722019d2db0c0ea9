package cluster

import (
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

var (
	noRunID = harness.Edit{
		File: "guard/witness.lua",
		From: "if id ~= '' and w[6] ~= id then return 'restarted' end",
		To:   "",
	}
	noCounters = harness.Edit{
		File: "guard/witness.lua",
		From: "if fell(w[7], connections) or fell(w[8], commands) or fell(w[9], evicted) then return 'restarted' end",
		To:   "",
	}
	noSaying = harness.Edit{
		File: "registry/beat.lua",
		From: "if ARGV[6] == '1' then lost = tell_gap(KEYS[4], at) end\n",
		To:   "",
	}
)

// mutants are without a protection that matters on a Cluster. What is here needs no tag, so that a
// change of the code which a mutant rests on is told by the next run of all tests.
var mutants = harness.Mutants{
	Rejects: oracleRejects,
	All: []harness.Mutant{
		{
			Name: "NoRunID", What: "the witness does not know one server from another",
			Edits: []harness.Edit{noRunID}, Without: []harness.Edit{noCounters},
			Row: "SlotMovesWhileItsSourceDies",
		},
		{
			Name: "TicksWithoutTheNeverKey", What: "ticks are answered while the slot moves",
			Edits: []harness.Edit{{
				File: "guard/witness.go",
				From: "l.Roster(), l.Never(), ",
				To:   "l.Roster(), l.Roster(), ",
			}},
			Without: []harness.Edit{noRunID, noCounters, noSaying},
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
				File: "guard/tick.lua", From: " or now - last >= tonumber(ARGV[4]) then", To: " then",
			}},
			Test: "TestAReplicaTicksWhileNobodyElseDoesAndItCannotLead", Of: "janitor",
		},
		{
			Name: "LeasesGivenToTheDead", What: "leases are given up to replicas that may be dead",
			Edits: []harness.Edit{{
				File: "partition/seats.go",
				From: "give := time.Since(fair) > s.dead",
				To:   "give := time.Since(fair) >= 0",
			}},
			Test: "TestWhoeverDiesAtOnceSomebodyLeadsAndTheDeadGo", Of: "partition",
		},
		{
			Name: "LookUpWithAnUndeclaredKey", What: "a look-up reads a heartbeat that it does not declare",
			Edits: []harness.Edit{{
				File: "registry/lookup.lua",
				From: "if ARGV[3] == '1' and KEYS[2] ~= heartbeat then return { owner } end\n",
				To:   "",
			}},
			Test: "TestALookUpWhileTheSlotMovesDoesNotSayThatTheOwnerIsDead", Of: "registry",
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

package chaos

const (
	seatsGo   = "internal/partition/seats.go"
	electorGo = "lease/elector.go"
)

// fleetMutants are protections that the search of chaos/search must notice the absence of.
// No row of the matrix is about them. The table has no build tag, so that the next run of all tests
// reports a change of the code that a mutant no longer fits.
var fleetMutants = []mutant{
	{
		name: "DeadNotOutlived",
		what: "an owner does not overwrite an entry that names a dead one",
		edits: []edit{{
			disputeGo, "\treturn h.dispute != nil && h.dispute.silent && !now.Before(t.outliveAt)\n", "\treturn false\n",
		}},
	},
	{
		name:  "AnswersUnheard",
		what:  "an answer that was lost has nothing checked, though it may have been the only sign of a loss",
		edits: []edit{{reconcileGo, "\tcase s.unheard:\n", "\tcase false:\n"}},
	},
	{
		name:  "ByesCounted",
		what:  "those that left in good order count among those that are not off",
		edits: []edit{{doubtGo, "(y.State == Idle || y.State == Bye)", "y.State == Idle"}},
	},
	{
		name:  "BackForgotten",
		what:  "who is back counts as if it had never been off",
		edits: []edit{{doubtGo, "\t\tcase y.Back > heard:\n", "\t\tcase false:\n"}},
	},
	{
		name:  "JoinersCounted",
		what:  "who came after the silence began counts among those that are not off",
		edits: []edit{{doubtGo, "case y.Born >= heard && !silent && other != id:", "case false:"}},
	},
	{
		name:  "NoFormer",
		what:  "nobody notices that a server lacks a newer heartbeat",
		edits: []edit{{"internal/guard/former.lua", "if last and last < tonumber(newest) then", "if false then"}},
	},
	{
		name:  "EverybodyRanked",
		what:  "replicas that embed the registry alone are ranked among those that contend",
		edits: []edit{{seatsGo, "s.client.SScan(ctx, of.Contenders(), ", "s.client.SScan(ctx, of.Roster(), "}},
		without: []layer{
			{"low ranks yield for half a TTL", []edit{{seatsGo, "yield += s.ttl / 2", "yield += time.Hour"}}},
			{"at most two thirds of one", []edit{{electorGo, "min(c.Yield(), c.TTL*2/3)", "c.Yield()"}}},
		},
	},
}

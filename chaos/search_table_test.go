package chaos

const (
	seatsGo    = "partition/seats.go"
	electorGo  = "lease/elector.go"
	outlivedGo = "registry/outlived.go"
	surpriseGo = "registry/reconcile.go"
)

// fleetMutants are protections that the search of chaos/search must notice the absence of.
// No row of the matrix is about them. The table has no build tag, so that the next run of all tests
// reports a change of the code that a mutant no longer fits.
var fleetMutants = []mutant{
	{
		name: "DeadNotOutlived",
		what: "an owner does not overwrite an entry that names a dead one",
		edits: []edit{{
			outlivedGo, "\treturn h.dispute != nil && h.dispute.silent && h.state != contested && !now.Before(t.outliveAt)\n", "\treturn false\n",
		}},
	},
	{
		name:  "AnswersUnheard",
		what:  "an answer that was lost has nothing checked, though it may have been the only sign of a loss",
		edits: []edit{{surpriseGo, " || s.unheard) {", ") {"}},
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

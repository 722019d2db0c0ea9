package chaos

const (
	seatsGo    = "partition/seats.go"
	campaignGo = "lease/campaign.go"
	outlivedGo = "registry/outlived.go"
)

// fleetMutants are those that the search of chaos/search must find. No row of the matrix hunts
// them: what they take away shows only where several things come together. Like mutants they need
// no tag, so that a change of the code which one rests on is noticed by the next run of all tests.
var fleetMutants = []mutant{
	{
		name:  "LateNotCounted",
		what:  "the breaker counts owners whose heartbeat has ended, and not those that are overdue",
		edits: []edit{{breakerGo, "\tsilent := c.fallen + c.late\n", "\tsilent := c.fallen\n"}},
	},
	{
		name:  "RefusalsIgnored",
		what:  "that the server turns clients away is no hold",
		edits: []edit{{witnessLua, "  if w[15] and refused ~= '' and w[15] ~= refused then return 'redis_refusing' end\n", ""}},
	},
	{
		name: "DeadNotOutlived",
		what: "an owner does not overwrite an entry that names a dead one",
		edits: []edit{{
			outlivedGo, "\treturn d.dispute != nil && d.dispute.silent && d.state != contested && !now.Before(t.outliveAt)\n", "\treturn false\n",
		}},
	},
	{
		name:  "EverybodyRanked",
		what:  "replicas that embed the registry alone are ranked among those that contend",
		edits: []edit{{seatsGo, "s.client.SScan(ctx, of.Contenders(), ", "s.client.SScan(ctx, of.Roster(), "}},
		without: []layer{
			{"more than three seats", []edit{{seatsGo, "\tfullSeats, leastSeats = 32, 3\n", "\tfullSeats, leastSeats = 3, 3\n"}}},
			{"reserves", []edit{{
				campaignGo, "\tif !first {\n\t\tafter = e.reserveAfter\n\t}\n",
				"\tif !first && e.acquirePending == nil {\n\t\treturn nil, next, nil\n\t}\n",
			}}},
		},
	},
}

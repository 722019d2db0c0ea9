package chaos

import (
	"github.com/rollcall-redis/rollcall/chaos/harness"
)

const (
	seatsGo   = "internal/partition/seats.go"
	electorGo = "lease/elector.go"
)

// searchMutants are protections that the search of chaos/search must notice the absence of.
var searchMutants = harness.Mutants{All: searched(
	harness.Mutant{
		Name:  "DeadNotOutlived",
		What:  "an owner does not overwrite an entry that names a dead one",
		Edits: edits{in(disputeGo, "\treturn h.dispute != nil && h.dispute.silent && !now.Before(t.outliveAt)\n", "\treturn false\n")},
	},
	harness.Mutant{
		Name:  "AnswersUnheard",
		What:  "an answer that was lost has nothing checked, though it may have been the only sign of a loss",
		Edits: edits{in(reconcileGo, "\tcase s.unheard:\n", "\tcase false:\n")},
	},
	harness.Mutant{
		Name:  "ByesCounted",
		What:  "those that left in good order count among those that are not off",
		Edits: edits{in(doubtGo, "(y.State == Idle || y.State == Bye)", "y.State == Idle")},
	},
	harness.Mutant{
		Name:  "BackForgotten",
		What:  "who is back counts as if it had never been off",
		Edits: edits{in(doubtGo, "\t\tcase y.Back > heard:\n", "\t\tcase false:\n")},
	},
	harness.Mutant{
		Name:  "JoinersCounted",
		What:  "who came after the silence began counts among those that are not off",
		Edits: edits{in(doubtGo, "case y.Born >= heard && !silent && other != id:", "case false:")},
	},
	harness.Mutant{
		Name:  "NoFormer",
		What:  "nobody notices that a server lacks a newer heartbeat",
		Edits: edits{in("internal/guard/former.lua", "if last and last < tonumber(newest) then", "if false then")},
	},
	harness.Mutant{
		Name: "EverybodyRanked",
		What: "replicas that embed the registry alone are ranked among those that contend",
		Edits: edits{ // and low ranks yield for no longer than half a TTL, at most two thirds of one
			in(seatsGo, "s.client.SScan(ctx, of.Contenders(), ", "s.client.SScan(ctx, of.Roster(), "),
			in(seatsGo, "yield += s.ttl / 2", "yield += time.Hour"),
			in(electorGo, "min(c.Yield(), c.TTL*2/3)", "c.Yield()"),
		},
	},
	harness.Mutant{
		Name:  "MostNotDoubted",
		What:  "nobody asks whether most were off at the same time",
		Edits: edits{in(doubtGo, "\tcase quiet < r.Grace() && most:\n\t\treturn Most\n", "")},
	},
	harness.Mutant{
		Name:  "OverdueNotCounted",
		What:  "an owner counts as off only when its heartbeat has ended",
		Edits: edits{in(doubtGo, "silent := y.Last+y.Due <= now || y.Last < x.Last+x.Due", "silent := y.Fell() <= now")},
	},
	harness.Mutant{
		Name:  "RefusedNotDoubted",
		What:  "silence proves death while the server turns clients away",
		Edits: notDoubted,
	},
)}

// searched are mutants that the search may survive for a million steps at most.
func searched(all ...harness.Mutant) []harness.Mutant {
	for i := range all {
		all[i].Test, all[i].Of, all[i].Steps = "TestSearch", "chaos/search", 1_000_000
	}
	return all
}

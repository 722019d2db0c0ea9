package orphans

import (
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

const gapsTest = "TestWhatIsMadeAnewInAnyGapSurvives"

// mutants are of the engine. What is here needs no tag, so that a change of the code which a mutant
// rests on is told by the next run of all tests.
var mutants = harness.Mutants{
	Dir: "orphan", Tests: []string{"orphan"}, Program: "cleanup", Given: givenCleanup, Rejects: oracleRejects,
	All: []harness.Mutant{
		{
			Name: "NoComparison", What: "the script does not compare answers with those of the look",
			Edits: []harness.Edit{{From: "if not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then", To: "if own[ARGV[i + 2]] and not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then"}},
			Test:  gapsTest,
		},
		{
			Name: "NoIdentity", What: "the script does not compare what a key is",
			Edits: []harness.Edit{{From: "if not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then", To: "if ARGV[i + 2] ~= 'IDENTITY' and not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then"}},
			Test:  gapsTest,
		},
		{
			Name: "NoProof", What: "an intent needs no mark",
			Edits: []harness.Edit{{From: "  if ripe(c) then\n", To: "  if true then\n"}},
			Test:  "TestTheScriptItselfAsksHowOldTheEvidenceIs",
		},
		{
			Name: "AnyServer", What: "the step that deletes does not ask whether its server was restarted",
			Edits: []harness.Edit{{From: "if life ~= ARGV[3] or not all_same(6)", To: "if not all_same(6)"}},
			Test:  "TestAServerThatIsRestartedBehindTheLastLookKeeps",
		},
		{
			Name: "NoStanding", What: "the step that deletes does not compare the worker's own keys",
			Edits: []harness.Edit{{From: "x.premises, x.standing(id))", To: "x.premises)"}},
			Test:  "TestWhatWasIntendedGoesOnlyWhileItsPassGoesOn",
		},
		{
			Name: "NoDeadline", What: "a look counts for ever",
			Edits: []harness.Edit{{From: "> tonumber(ARGV[1]) then return -1 end", To: "> tonumber(ARGV[1]) + 1e9 then return -1 end"}},
			Test:  "TestOnAClusterNothingGoesByEvidenceThatIsTooOld",
		},
		{
			Name: "NoGrace", What: "a candidate is ripe with its mark",
			Edits: []harness.Edit{{From: "case marked && since >= grace:", To: "case marked:"}},
			Test:  "TestASignOfLifeBetweenTwoLooksMakesTheFirstWorthless",
		},
		{
			Name: "LossesEndNothing", What: "a lost place holds the rule, and ends no chain",
			Edits: []harness.Edit{{From: "return cmp.Or(x.End(ctx, refs.lost), x.hold(heldLost, refs.lost))", To: "return x.hold(heldLost, refs.lost)"}},
			Test:  "TestASignThatCouldNotBeRecordedEndsTheEvidence",
		},
		{
			Name: "ServersAreNoBasis", What: "marks outlive a server that was restarted",
			Edits: []harness.Edit{{From: "Basis: x.meaning + \" \" + x.servers.digest()", To: "Basis: x.meaning"}},
			Test:  "TestOnAClusterAMarkOfBeforeAnotherMasterWasRestartedIsWorthless",
		},
		{
			Name: "ExpiryIsAge", What: "an age that an expiry tells is believed at once",
			Edits: []harness.Edit{{From: "f.doubted = true", To: "f.doubted = false"}},
			Test:  "TestAnAgeFromAnExpiryHasToBeSeen",
		},
		{
			Name: "MissingIsEmpty", What: "a field that is missing holds the empty text",
			Edits: []harness.Edit{{From: "\t\t\tif !ok {\n\t\t\t\tf.keep(unreadable, \"it has no %s\", s.field)\n", To: "\t\t\tif !ok && false {\n"}},
			Test:  "TestWhatASignTells",
		},
		{
			Name: "AnyTimeIsOne", What: "a zero time is long ago",
			Edits: []harness.Edit{{From: "known = ok && believed(at)", To: "known = ok || believed(at)"}},
			Test:  "TestATimeThatStandsForNoneIsNoStatement",
		},
		{
			Name: "NoPremises", What: "the step that deletes does not ask for the references again",
			Edits: []harness.Edit{{From: "f.observations, x.premises, x.standing", To: "f.observations, x.standing"}},
			Test:  "TestAPlaceThatIsLostJustBeforeTheDeleteHoldsTheRule",
		},
		{
			Name: "UnknownIsGone", What: "a document that is not there says that all is over",
			Edits: []harness.Edit{{From: "\t\t\t\tf.keep(unknown, \"%s has no document %s\", q.Collection, id)\n", To: "\t\t\t\ttold(f, true)\n"}},
			Test:  "TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished",
		},
		{
			Name: "UnansweredIsSilent", What: "a channel of which no server tells has no subscribers",
			Edits: []harness.Edit{{From: "\t\t\t\tcase err != nil || !known:\n", To: "\t\t\t\tcase false && known:\n"}},
			Test:  "TestAChannelOfWhichNoServerTellsKeeps",
		},
		{
			Name: "UnreadableIsGone", What: "what does not parse has no fields",
			Edits: []harness.Edit{{From: "\t\t\tf.keep(unreadable, \"it is no JSON object\")\n\t\t\treturn\n", To: ""},
				{From: "\t\t\tf.keep(unreadable, \"it has no %s\", at)\n\t\t\treturn\n", To: ""}},
			Test: "TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
		},
		{
			Name: "PartIsAll", What: "a pass that has not read every master condemns all the same",
			Edits: []harness.Edit{{
				From: "\t\tx.r.Coverage.Complete = false\n\t\tx.Log().Warn(\"pass has not read",
				To:   "\t\tx.r.Coverage.Masters = -1\n\t\tx.Log().Warn(\"pass has not read",
			}},
			Test: "TestOnAClusterNothingGoesInAPassThatMissesAMasterItDoesNotNeed",
		},
		{
			Name: "SettledTwice", What: "an intent is counted by whoever comes",
			Edits: []harness.Edit{{From: "  redis.call('HDEL', KEYS[6], c.id)\n", To: ""}},
			Test:  "TestADeleteIsCountedOnceWhateverIsLostInBetween",
		},
		{
			Name: "NoAge", What: "what is young goes",
			Edits: []harness.Edit{{From: "\t\tif age <= a.Over {", To: "\t\tif false {"}},
			Test:  "TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
		},
		{
			Name: "AbsentIsGone", What: "sets that are gone since now are gone for long",
			Edits: []harness.Edit{{From: "if at.Sub(since) >= ref.OrFor {", To: "if at.Sub(since) >= 0 {"}},
			Test:  "TestALostReferenceHoldsTheRule",
		},
		{
			Name: "UnknownIsGoneInTheWild", What: "a document that is not there says that all is over",
			Edits: []harness.Edit{{From: "\t\t\t\tf.keep(unknown, \"%s has no document %s\", q.Collection, id)\n", To: "\t\t\t\ttold(f, true)\n"}},
			Row:   "NoFault",
		},
		{
			Name: "NobodySubscribes", What: "no channel has subscribers",
			Edits: []harness.Edit{
				{From: "\t\t\t\tcase n > 0:\n", To: "\t\t\t\tcase n > 1<<30:\n"},
				{From: "valueText([]any{name, int64(0)})", To: "valueText([]any{name, n})"}, // or the script would notice
			},
			Row: "NoFault",
		},
		{
			Name: "NoCap", What: "a pass deletes as many as it likes",
			Edits: []harness.Edit{{From: "\tif len(names) > x.Cap {", To: "\tif false {"}},
			Test:  "TestTooManyNewlyCondemnedHoldTheRuleOnce",
		},
	},
}

// proofMutants are of the evidence that ages.
var proofMutants = harness.Mutants{
	Dir: "janitor/proof", Tests: []string{"janitor/proof"},
	All: []harness.Mutant{
		{
			Name: "GapsEndNothing", What: "a chain goes on however long nobody looked",
			Edits: []harness.Edit{{From: "case gap > longest(b.o.Apart):", To: "case false:"}},
			Test:  "TestAChainCondemnsAfterItsGraceAlone",
		},
		{
			Name: "BrokenPassesEndNothing", What: "a pass that broke off leaves the evidence as it was",
			Edits: []harness.Edit{{From: "}, []string{lookedField})\n}\n\nfunc (b *Book) readState", To: "}, nil)\n}\n\nfunc (b *Book) readState"}},
			Test:  "TestAChainCondemnsAfterItsGraceAlone",
		},
		{
			Name: "NoBasis", What: "a chain goes on after a hold, or with another meaning",
			Edits: []harness.Edit{{From: "case b.state[basisField] != b.basis():", To: "case false:"}},
			Test:  "TestAChainCondemnsAfterItsGraceAlone",
		},
		{
			Name: "AnyChain", What: "a mark of another chain counts",
			Edits: []harness.Edit{{From: "return at.Sub(m.At), has && m.Chain == b.chain", To: "return at.Sub(m.At), has"},
				{From: "stands := m.Chain == b.chain && m.Print == f.Print", To: "stands := m.Print == f.Print"}},
			Test: "TestAChainCondemnsAfterItsGraceAlone",
		},
		{
			Name: "NoFence", What: "a former leader writes",
			Edits: []harness.Edit{{From: "~= ARGV[1] then return 0 end", To: "== '' then return 0 end"}},
			Test:  "TestAFormerLeaderWritesNothing",
		},
		{
			Name: "ChainsGoBack", What: "a write that lands late revives a chain",
			Edits: []harness.Edit{{From: "> tonumber(ARGV[2]) then return -1 end", To: "> tonumber(ARGV[2]) then return 1 end"}},
			Test:  "TestALateWriteEndsNoNewerChain",
		},
		{
			Name: "NoBreaker", What: "no wave holds",
			Edits: []harness.Edit{{From: "if of < fewest || newly <= of/2 ||", To: "if true ||"}},
			Test:  "TestAWaveHoldsOnce",
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
	searchMutants.Fit(t)
	proofMutants.Fit(t)
}

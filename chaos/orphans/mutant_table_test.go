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
		harness.ByTest("NoComparison", "the script does not compare answers with those of the look",
			gapsTest, "",
			harness.In("", "if not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then", "if own[ARGV[i + 2]] and not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then")),
		harness.ByTest("NoIdentity", "the script does not compare what a key is",
			gapsTest, "",
			harness.In("", "if not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then", "if ARGV[i + 2] ~= 'IDENTITY' and not same(ARGV[i + 1], again(unpack(ARGV, i + 2, last))) then")),
		harness.ByTest("NoProof", "an intent needs no mark",
			"TestTheScriptItselfAsksHowOldTheEvidenceIs", "",
			harness.In("", "  if ripe(c) then\n", "  if true then\n")),
		harness.ByTest("AnyServer", "the step that deletes does not ask whether its server was restarted",
			"TestAServerThatIsRestartedBehindTheLastLookKeeps", "",
			harness.In("", "if life ~= ARGV[3] or not all_same(6)", "if not all_same(6)")),
		harness.ByTest("NoStanding", "the step that deletes does not compare the worker's own keys",
			"TestWhatWasIntendedGoesOnlyWhileItsPassGoesOn", "",
			harness.In("", "x.premises, x.standing(id))", "x.premises)")),
		harness.ByTest("NoDeadline", "a look counts for ever",
			"TestOnAClusterNothingGoesByEvidenceThatIsTooOld", "",
			harness.In("", "> tonumber(ARGV[1]) then return -1 end", "> tonumber(ARGV[1]) + 1e9 then return -1 end")),
		harness.ByTest("NoGrace", "a candidate is ripe with its mark",
			"TestASignOfLifeBetweenTwoLooksMakesTheFirstWorthless", "",
			harness.In("", "case marked && since >= grace:", "case marked:")),
		harness.ByTest("LossesEndNothing", "a lost place holds the rule, and ends no chain",
			"TestASignThatCouldNotBeRecordedEndsTheEvidence", "",
			harness.In("", "return cmp.Or(x.End(ctx, refs.lost), x.hold(heldLost, refs.lost))", "return x.hold(heldLost, refs.lost)")),
		harness.ByTest("ServersAreNoBasis", "marks outlive a server that was restarted",
			"TestOnAClusterAMarkOfBeforeAnotherMasterWasRestartedIsWorthless", "",
			harness.In("", "Basis: x.meaning + \" \" + x.servers.digest()", "Basis: x.meaning")),
		harness.ByTest("ExpiryIsAge", "an age that an expiry tells is believed at once",
			"TestAnAgeFromAnExpiryHasToBeSeen", "",
			harness.In("", "f.doubted = true", "f.doubted = false")),
		harness.ByTest("MissingIsEmpty", "a field that is missing holds the empty text",
			"TestWhatASignTells", "",
			harness.In("", "\t\t\tif !ok {\n\t\t\t\tf.keep(unreadable, \"it has no %s\", s.field)\n", "\t\t\tif !ok && false {\n")),
		harness.ByTest("AnyTimeIsOne", "a zero time is long ago",
			"TestATimeThatStandsForNoneIsNoStatement", "",
			harness.In("", "known = ok && believed(at)", "known = ok || believed(at)")),
		harness.ByTest("NoPremises", "the step that deletes does not ask for the references again",
			"TestAPlaceThatIsLostJustBeforeTheDeleteHoldsTheRule", "",
			harness.In("", "f.observations, x.premises, x.standing", "f.observations, x.standing")),
		harness.ByTest("UnknownIsGone", "a document that is not there says that all is over",
			"TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished", "",
			harness.In("", "\t\t\t\tf.keep(unknown, \"%s has no document %s\", q.Collection, id)\n", "\t\t\t\ttold(f, true)\n")),
		harness.ByTest("UnansweredIsSilent", "a channel of which no server tells has no subscribers",
			"TestAChannelOfWhichNoServerTellsKeeps", "",
			harness.In("", "\t\t\t\tcase err != nil || !known:\n", "\t\t\t\tcase false && known:\n")),
		harness.ByTest("UnreadableIsGone", "what does not parse has no fields",
			"TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays", "",
			harness.In("", "\t\t\tf.keep(unreadable, \"it is no JSON object\")\n\t\t\treturn\n", ""),
			harness.In("", "\t\t\tf.keep(unreadable, \"it has no %s\", at)\n\t\t\treturn\n", "")),
		harness.ByTest("PartIsAll", "a pass that has not read every master condemns all the same",
			"TestOnAClusterNothingGoesInAPassThatMissesAMasterItDoesNotNeed", "",
			harness.In("", "\t\tx.r.Coverage.Complete = false\n\t\tx.Log().Warn(\"pass has not read", "\t\tx.r.Coverage.Masters = -1\n\t\tx.Log().Warn(\"pass has not read")),
		harness.ByTest("SettledTwice", "an intent is counted by whoever comes",
			"TestADeleteIsCountedOnceWhateverIsLostInBetween", "",
			harness.In("", "  redis.call('HDEL', KEYS[6], c.id)\n", "")),
		harness.ByTest("NoAge", "what is young goes",
			"TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays", "",
			harness.In("", "\t\tif age <= a.Over {", "\t\tif false {")),
		harness.ByTest("AbsentIsGone", "sets that are gone since now are gone for long",
			"TestALostReferenceHoldsTheRule", "",
			harness.In("", "if at.Sub(since) >= ref.OrFor {", "if at.Sub(since) >= 0 {")),
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
		harness.ByTest("NoCap", "a pass deletes as many as it likes",
			"TestTooManyNewlyCondemnedHoldTheRuleOnce", "",
			harness.In("", "\tif len(names) > x.Cap {", "\tif false {")),
	},
}

// proofMutants are of the evidence that ages.
var proofMutants = harness.Mutants{
	Dir: "janitor/proof", Tests: []string{"janitor/proof"},
	All: []harness.Mutant{
		harness.ByTest("GapsEndNothing", "a chain goes on however long nobody looked",
			"TestAChainCondemnsAfterItsGraceAlone", "",
			harness.In("", "case gap > longest(b.o.Apart):", "case false:")),
		harness.ByTest("BrokenPassesEndNothing", "a pass that broke off leaves the evidence as it was",
			"TestAChainCondemnsAfterItsGraceAlone", "",
			harness.In("", "}, []string{lookedField})\n}\n\nfunc (b *Book) readState", "}, nil)\n}\n\nfunc (b *Book) readState")),
		harness.ByTest("NoBasis", "a chain goes on after a hold, or with another meaning",
			"TestAChainCondemnsAfterItsGraceAlone", "",
			harness.In("", "case b.state[basisField] != b.basis():", "case false:")),
		harness.ByTest("AnyChain", "a mark of another chain counts",
			"TestAChainCondemnsAfterItsGraceAlone", "",
			harness.In("", "return at.Sub(m.At), has && m.Chain == b.chain", "return at.Sub(m.At), has"),
			harness.In("", "stands := m.Chain == b.chain && m.Print == f.Print", "stands := m.Print == f.Print")),
		harness.ByTest("NoFence", "a former leader writes",
			"TestAFormerLeaderWritesNothing", "",
			harness.In("", "~= ARGV[1] then return 0 end", "== '' then return 0 end")),
		harness.ByTest("ChainsGoBack", "a write that lands late revives a chain",
			"TestALateWriteEndsNoNewerChain", "",
			harness.In("", "> tonumber(ARGV[2]) then return -1 end", "> tonumber(ARGV[2]) then return 1 end")),
		harness.ByTest("NoBreaker", "no wave holds",
			"TestAWaveHoldsOnce", "",
			harness.In("", "if of < fewest || newly <= of/2 ||", "if true ||")),
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

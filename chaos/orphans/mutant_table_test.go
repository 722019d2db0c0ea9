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
			Name: "NoGraceInTheScript", What: "the script does not ask how old a mark is",
			Edits: []harness.Edit{{From: "return recent(c) and now - first >= c.grace", To: "return recent(c)"}},
			Test:  "TestTheScriptItselfAsksHowOldAMarkIs",
		},
		{
			Name: "NoHoldInTheScript", What: "to the script marks of before a hold count",
			Edits: []harness.Edit{{From: "return since == c.since and now >= c.looked", To: "return now >= c.looked"}},
			Test:  "TestTheScriptItselfAsksWhetherAHoldCameAfterTheMark",
		},
		{
			Name: "LooksNeverAge", What: "to the script a look counts for ever",
			Edits: []harness.Edit{{From: "and now >= c.looked and now - c.looked <= c.expires", To: ""}},
			Test:  "TestTheScriptItselfAsksHowOldTheLookIs",
		},
		{
			Name: "MarksNeverAge", What: "marks count however long nobody looked",
			Edits: []harness.Edit{{From: "m.at.Before(x.began) && x.since(f) > longest(apart)", To: "m.at.Before(x.began) && x.since(f) > longest(apart) && false"}},
			Test:  "TestAGapBetweenLooksEndsTheEvidence",
		},
		{
			Name: "BrokenOffIsLooked", What: "a pass that broke off leaves the evidence as it was",
			Edits: []harness.Edit{{From: "\tif x.complete || x.DryRun() {\n", To: "\tif x.complete || !x.DryRun() {\n"}},
			Test:  "TestAPassThatDidNotLookEndsTheEvidence",
		},
		{
			Name: "AnyMeaningLooks", What: "a look of a rule that meant something else counts",
			Edits: []harness.Edit{{From: "err == nil && meaning == x.meaning && ", To: "err == nil && meaning != \"\" && "}},
			Test:  "TestAPassThatDidNotLookEndsTheEvidence",
		},
		{
			Name: "NoStep", What: "nobody asks whether the clock was set",
			Edits: []harness.Edit{{From: "off.Abs() > clockStep", To: "off.Abs() > clockStep && false"}},
			Test:  "TestAPassThatDidNotLookEndsTheEvidence",
		},
		{
			Name: "BacklogCounts", What: "the breaker counts what is condemned for long as alive",
			Edits: []harness.Edit{{From: "of := x.r.Kept[alive] + newly", To: "of := x.r.Scanned"}},
			Test:  "TestTheBreakerDoesNotCountABacklog",
		},
		{
			Name: "NothingIsNewAfterAGap", What: "the breaker takes what nobody looked at for known",
			Edits: []harness.Edit{{From: "case !has || ended && x.since(f) != never:", To: "case !has:"}},
			Test:  "TestTheBreakerCountsWhatNobodyLookedAtForAWhile",
		},
		{
			Name: "NoPieces", What: "of what is large nothing but its ends is compared",
			Edits: []harness.Edit{{From: "s.WriteString(piece + \"\\n\")", To: "_ = piece"}},
			Test:  "TestAChangeInTheMiddleOfWhatIsLargeIsSeen",
		},
		{
			Name: "BeyondIsTheSame", What: "what cannot be compared is taken for the same",
			Edits: []harness.Edit{{From: "if id.beyond != \"\" {", To: "if false {"}},
			Test:  "TestWhatIsBeyondTheBoundIsKeptAndCounted",
		},
		{
			Name: "ExpiryIsAge", What: "an age that an expiry tells is believed at once",
			Edits: []harness.Edit{{From: "f.doubted = true", To: "f.doubted = false"}},
			Test:  "TestAnAgeFromAnExpiryHasToBeSeen",
		},
		{
			Name: "MissingIsEmpty", What: "a field that is missing holds the empty text",
			Edits: []harness.Edit{{From: "l.text(f, s.field); {\n\t\tcase !ok:\n", To: "l.text(f, s.field); {\n\t\tcase !ok && false:\n"}},
			Test:  "TestAMissingFieldIsNoEnd",
		},
		{
			Name: "AnyTimeIsOne", What: "a zero time is long ago",
			Edits: []harness.Edit{{From: "known = ok && believed(at)", To: "known = ok || believed(at)"}},
			Test:  "TestATimeThatStandsForNoneIsNoStatement",
		},
		{
			Name: "NoOtherRule", What: "a rule does not hear what others keep",
			Edits: []harness.Edit{{From: "if err != nil || len(r.others) == 0 {", To: "if true {"}},
			Test:  "TestAKeyThatOneRuleKeepsDoesNotGoByAnother",
		},
		{
			Name: "RelatedIsTaken", What: "a related key goes whoever else it belongs to",
			Edits: []harness.Edit{{From: "ok && l.belongs(t, key, f)", To: "ok"}},
			Test:  "TestAMemberTakesNoKeyWhoseNameIsReadOtherwise",
		},
		{
			Name: "ClaimedIsTaken", What: "a related key goes though a candidate of another rule has it, too",
			Edits: []harness.Edit{{From: "return claimed[key] })", To: "return false && claimed[key] })"}},
			Test:  "TestARelatedKeyOfTwoRulesStaysAsLongAsACandidateOfEitherExists",
		},
		{
			Name: "RestsNeedNoGrace", What: "what has the name of a candidate that has gone goes at once",
			Edits: []harness.Edit{{From: "if f.alone && f.rest != nil {", To: "if false {"}},
			Test:  "TestWhatIsWrittenUnderTheNameOfACandidateThatHasGoneDoesNotGoAtOnce",
		},
		{
			Name: "VariablesGoOn", What: "a variable takes what follows it",
			Edits: []harness.Edit{{File: "rules/template.go", From: "p.ends += t.parts[i+1].text[:size]", To: "_ = size"}},
			Test:  "TestAVariableTakesNoNameThatIsNotMeant",
		},
		{
			Name: "NoHoldForMarks", What: "a hold with a time before that of the marks does not void them",
			Edits: []harness.Edit{{From: "x.notes.state[heardSince] != since {", To: "since == \"\" {"}},
			Test:  "TestAHoldBetweenTwoLooksMakesTheFirstWorthless",
		},
		{
			Name: "AnyMark", What: "the script takes any mark for the look's",
			Edits: []harness.Edit{{From: "if redis.call('HGET', KEYS[6], c.name) ~= c.mark then return false end", To: ""}},
			Test:  gapsTest,
		},
		{
			Name: "NoComparison", What: "the script does not compare answers with those of the look",
			Edits: []harness.Edit{{From: "if not same(s[1], redis.pcall(unpack(s, 2))) then return false end", To: ""}},
			Test:  gapsTest,
		},
		{
			Name: "NoPremises", What: "the script does not ask for the references again",
			Edits: []harness.Edit{{From: "if c.premises and not all_same(c.premises) then", To: "if false then"}},
			Test:  "TestTheScriptItselfAsksForTheReferences",
		},
		{
			Name: "NoGrace", What: "one look is enough",
			Edits: []harness.Edit{{From: "wait := n.grace - since; wait > 0", To: "wait := n.grace - since; wait > n.grace"}},
			Test:  "TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
		},
		{
			Name: "NoHold", What: "marks of before a hold count",
			Edits: []harness.Edit{{From: " || m.at.Before(x.notes.valid)", To: ""}},
			Test:  "TestAHoldBetweenTwoLooksMakesTheFirstWorthless",
		},
		{
			Name: "NoUnmark", What: "a candidate that shows a sign of life keeps its mark",
			Edits: []harness.Edit{{From: "\t\t\tif has {\n\t\t\t\tunset = append(unset, name)\n\t\t\t\tdelete(x.notes.marks, name)", To: "\t\t\tif false {\n\t\t\t\tunset = append(unset, name)\n\t\t\t\tdelete(x.notes.marks, name)"}},
			Test:  "TestASignOfLifeBetweenTwoLooksMakesTheFirstWorthless",
		},
		{
			Name: "NoFingerprint", What: "a mark stands for whatever has the name",
			Edits: []harness.Edit{
				{From: " || m.print != f.fingerprint", To: ""},
				{From: " || f.fingerprint != x.notes.marks[f.name()].print", To: ""},
			},
			Test: gapsTest,
		},
		{
			Name: "NoFingerprintAtTheLastLook", What: "the last look does not ask whether it is the same",
			Edits: []harness.Edit{{From: " || f.fingerprint != x.notes.marks[f.name()].print", To: ""}},
			Test:  gapsTest,
		},
		{
			Name: "NoBreaker", What: "the breaker never holds",
			Edits: []harness.Edit{{From: "if of >= breakerLeast && newly > of/2 {", To: "if false {"}},
			Test:  "TestTooManyNewlyCondemnedHoldTheRuleOnce",
		},
		{
			Name: "NoReference", What: "a lost reference holds nothing",
			Edits: []harness.Edit{{From: "\tif refs.lost != \"\" {", To: "\tif false {"}},
			Test:  "TestALostReferenceHoldsTheRule",
		},
		{
			Name: "NoEmptyCollection", What: "an empty collection holds nothing",
			Edits: []harness.Edit{{From: "\tif empty != \"\" {", To: "\tif false {"}},
			Test:  "TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished",
		},
		{
			Name: "OlderTermsNote", What: "a pass of an older term notes what it found",
			Edits: []harness.Edit{{From: "if newest[1] and string.match(newest[1][1], '^%d+') ~= ARGV[1] then return 0 end", To: ""}},
			Test:  "TestAPassOfAnOlderTermNotesNothing",
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
			Edits: []harness.Edit{{From: "\t\t\tf.keep(unreadable, \"it is no JSON object\")\n\t\t\treturn\n", To: "\t\t\tf.value = map[string]any{}\n"},
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
			Name: "NoDeadline", What: "on a Cluster the evidence counts for ever",
			Edits: []harness.Edit{{From: "if now > tonumber(ARGV[1]) then return -1 end", To: ""}},
			Test:  "TestOnAClusterNothingGoesByEvidenceThatIsTooOld",
		},
		{
			Name: "SettledTwice", What: "an intent is counted by whoever comes",
			Edits: []harness.Edit{{From: "  redis.call('HDEL', KEYS[6], c.id)\n", To: ""}},
			Test:  "TestOnAClusterADeleteIsCountedOnceWhateverIsLostInBetween",
		},
		{
			Name: "NoGuardForIntents", What: "on a Cluster an intent does not ask for the mark",
			Edits: []harness.Edit{{From: "ready = ripe(c)\n  end\n  if ready then", To: "ready = true\n  end\n  if ready then"}},
			Test:  "TestOnAClusterAnIntentAsksForTheMark",
		},
		{
			Name: "NoAge", What: "what is young goes",
			Edits: []harness.Edit{{From: "\t\tif age <= a.Over {", To: "\t\tif false {"}},
			Test:  "TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
		},
		{
			Name: "NoParent", What: "a related key goes though its parent is there",
			Edits: []harness.Edit{{From: "f.verdict == \"\" && there != \"_\" && there != \":0\"", To: "false && there != \"_\""}},
			Test:  "TestAUserWhoWaitsForLongWithoutAReservationGoesWhateverTheRating",
		},
		{
			Name: "MarksOutliveReferences", What: "marks of before a reference was lost count",
			Edits: []harness.Edit{{From: "time.UnixMilli(max(since, lost))", To: "time.UnixMilli(max(since, lost*0))"}},
			Test:  "TestAMarkOfBeforeAReferenceWasLostIsWorthless",
		},
		{
			Name: "MarksOutliveServers", What: "on a Cluster marks of before a master was restarted count",
			Edits: []harness.Edit{{From: "if x.notes.state[serversWere] == is {", To: "if is != \"\" {"}},
			Test:  "TestOnAClusterAMarkOfBeforeAnotherMasterWasRestartedIsWorthless",
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
			Name: "NoComparisonInTheWild", What: "the script does not compare answers with those of the look",
			Edits: []harness.Edit{{From: "if not same(s[1], redis.pcall(unpack(s, 2))) then return false end", To: ""}},
			Row:   "MadeAnewInEveryGap",
		},
		{
			Name: "NoReferenceInTheWild", What: "a lost reference holds nothing",
			Edits: []harness.Edit{
				{From: "\tif refs.lost != \"\" {", To: "\tif false {"},
				{From: "\tif found.lost != \"\" {", To: "\tif false {"},
			},
			Row: "BotSetsDeleted",
		},
		{
			Name: "NoCap", What: "a pass deletes as many as it likes",
			Edits: []harness.Edit{{From: "\tif len(names) > x.Cap {", To: "\tif false {"}},
			Test:  "TestTooManyNewlyCondemnedHoldTheRuleOnce",
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
}

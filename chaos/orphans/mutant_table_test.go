package orphans

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant is the engine with one of its protections taken away, which a test of package orphan, or
// the oracle in a row, must notice: TestMutants sees it fail. It is a few changes to the text of
// the code, put over the files when the test is built (go test -overlay). What is here needs no
// tag, so that a change of the code which a mutant rests on is told by the next run of all tests.
type mutant struct {
	name  string
	what  string // is changed
	edits []edit
	test  string // of package orphan, that fails
	row   string // of the matrix, in place of a test: the oracle rejects what came of it
}

// An edit replaces what stands exactly once in package orphan.
type edit struct{ from, to string }

const gapsTest = "TestWhatIsMadeAnewInAnyGapSurvives"

var mutants = []mutant{
	{
		name: "NoGraceInTheScript", what: "the script does not ask how old a mark is",
		edits: []edit{{"return at >= since and now - at >= c.grace", "return at >= since"}},
		test:  "TestTheScriptItselfAsksHowOldAMarkIs",
	},
	{
		name: "NoHoldInTheScript", what: "to the script marks of before a hold count",
		edits: []edit{{"return at >= since and now - at >= c.grace", "return now - at >= c.grace"}},
		test:  "TestTheScriptItselfAsksWhetherAHoldCameAfterTheMark",
	},
	{
		name: "AnyMark", what: "the script takes any mark for the look's",
		edits: []edit{{"if redis.call('HGET', KEYS[6], c.name) ~= c.mark then return false end", ""}},
		test:  gapsTest,
	},
	{
		name: "NoComparison", what: "the script does not compare answers with those of the look",
		edits: []edit{{"if not same(s[1], redis.pcall(unpack(s, 2))) then return false end", ""}},
		test:  gapsTest,
	},
	{
		name: "NoPremises", what: "the script does not ask for the references again",
		edits: []edit{{"if c.premises and not all_same(c.premises) then", "if false then"}},
		test:  "TestTheScriptItselfAsksForTheReferences",
	},
	{
		name: "NoGrace", what: "one look is enough",
		edits: []edit{{"wait := x.graceOf(f) - f.at.Sub(m.at); wait > 0", "wait := x.graceOf(f) - f.at.Sub(m.at); wait > x.Grace"}},
		test:  "TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
	},
	{
		name: "NoHold", what: "marks of before a hold count",
		edits: []edit{{" || m.at.Before(x.notes.valid)", ""}},
		test:  "TestAHoldBetweenTwoLooksMakesTheFirstWorthless",
	},
	{
		name: "NoUnmark", what: "a candidate that shows a sign of life keeps its mark",
		edits: []edit{{"\t\t\tif has {\n\t\t\t\tunset = append(unset, name)\n\t\t\t\tdelete(x.notes.marks, name)",
			"\t\t\tif false {\n\t\t\t\tunset = append(unset, name)\n\t\t\t\tdelete(x.notes.marks, name)"}},
		test: "TestASignOfLifeBetweenTwoLooksMakesTheFirstWorthless",
	},
	{
		name: "NoFingerprint", what: "a mark stands for whatever has the name",
		edits: []edit{
			{" || m.print != f.fingerprint", ""},
			{" || f.fingerprint != x.notes.marks[f.name()].print", ""},
		},
		test: gapsTest,
	},
	{
		name: "NoFingerprintAtTheLastLook", what: "the last look does not ask whether it is the same",
		edits: []edit{{" || f.fingerprint != x.notes.marks[f.name()].print", ""}},
		test:  gapsTest,
	},
	{
		name: "NoBreaker", what: "the breaker never holds",
		edits: []edit{{"if of >= breakerLeast && newly > of/2 {", "if false {"}},
		test:  "TestTooManyNewlyCondemnedHoldTheRuleOnce",
	},
	{
		name: "NoReference", what: "a lost reference holds nothing",
		edits: []edit{{"\tif refs.lost != \"\" {", "\tif false {"}},
		test:  "TestALostReferenceHoldsTheRule",
	},
	{
		name: "NoEmptyCollection", what: "an empty collection holds nothing",
		edits: []edit{{"\tif empty != \"\" {", "\tif false {"}},
		test:  "TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished",
	},
	{
		name: "OlderTermsNote", what: "a pass of an older term notes what it found",
		edits: []edit{{"if newest[1] and string.match(newest[1][1], '^%d+') ~= ARGV[1] then return 0 end", ""}},
		test:  "TestAPassOfAnOlderTermNotesNothing",
	},
	{
		name: "UnknownIsGone", what: "a document that is not there says that all is over",
		edits: []edit{{"\t\t\t\tf.keep(unknown, \"%s has no document %s\", q.Collection, id)\n", "\t\t\t\ttold(f, true)\n"}},
		test:  "TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished",
	},
	{
		name: "UnansweredIsSilent", what: "a channel of which no server tells has no subscribers",
		edits: []edit{{"\t\t\t\tcase err != nil || !known:\n", "\t\t\t\tcase false && known:\n"}},
		test:  "TestAChannelOfWhichNoServerTellsKeeps",
	},
	{
		name: "UnreadableIsGone", what: "what does not parse has no fields",
		edits: []edit{{"\t\t\tf.keep(unreadable, \"it is no JSON object\")\n\t\t\treturn\n", "\t\t\tf.value = map[string]any{}\n"},
			{"\t\t\tf.keep(unreadable, \"it has no %s\", at)\n\t\t\treturn\n", ""}},
		test: "TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
	},
	{
		name: "PartIsAll", what: "a pass that has not read every master condemns all the same",
		edits: []edit{{"\t\tx.r.Coverage.Complete = false\n", "\t\tx.r.Coverage.Masters = -1\n"}},
		test:  "TestOnAClusterNothingGoesInAPassThatMissesAMasterItDoesNotNeed",
	},
	{
		name: "NoDeadline", what: "on a Cluster the evidence counts for ever",
		edits: []edit{{"if now > tonumber(ARGV[1]) then return -1 end", ""}},
		test:  "TestOnAClusterNothingGoesByEvidenceThatIsTooOld",
	},
	{
		name: "SettledTwice", what: "an intent is counted by whoever comes",
		edits: []edit{{"if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then", "redis.call('HDEL', KEYS[1], ARGV[1])\nif false then"}},
		test:  "TestOnAClusterADeleteIsCountedOnceWhateverIsLostInBetween",
	},
	{
		name: "NoGuardForIntents", what: "on a Cluster an intent does not ask for the mark",
		edits: []edit{{"redis.call('HGET', KEYS[6], c.name) == c.mark and at >= since and now - at >= c.grace", "true"}},
		test:  "TestOnAClusterAnIntentAsksForTheMark",
	},
	{
		name: "NoAge", what: "what is young goes",
		edits: []edit{{"\t\tif age <= a.Over {", "\t\tif false {"}},
		test:  "TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
	},
	{
		name: "NoParent", what: "a related key goes though its parent is there",
		edits: []edit{{"f.verdict == \"\" && there != \"_\" && there != \":0\"", "false && there != \"_\""}},
		test:  "TestAUserWhoWaitsForLongWithoutAReservationGoesWhateverTheRating",
	},
	{
		name: "MarksOutliveReferences", what: "marks of before a reference was lost count",
		edits: []edit{{"time.UnixMilli(max(since, lost))", "time.UnixMilli(max(since, lost*0))"}},
		test:  "TestAMarkOfBeforeAReferenceWasLostIsWorthless",
	},
	{
		name: "MarksOutliveServers", what: "on a Cluster marks of before a master was restarted count",
		edits: []edit{{"if x.notes.state[serversWere] == is {", "if is != \"\" {"}},
		test:  "TestOnAClusterAMarkOfBeforeAnotherMasterWasRestartedIsWorthless",
	},
	{
		name: "AbsentIsGone", what: "sets that are gone since now are gone for long",
		edits: []edit{{"if at.Sub(since) >= ref.OrFor {", "if at.Sub(since) >= 0 {"}},
		test:  "TestALostReferenceHoldsTheRule",
	},
	{
		name: "UnknownIsGoneInTheWild", what: "a document that is not there says that all is over",
		edits: []edit{{"\t\t\t\tf.keep(unknown, \"%s has no document %s\", q.Collection, id)\n", "\t\t\t\ttold(f, true)\n"}},
		row:   "NoFault",
	},
	{
		name: "NobodySubscribes", what: "no channel has subscribers",
		edits: []edit{
			{"\t\t\t\tcase n > 0:\n", "\t\t\t\tcase n > 1<<30:\n"},
			{"valueText([]any{name, int64(0)})", "valueText([]any{name, n})"}, // or the script would notice
		},
		row: "NoFault",
	},
	{
		name: "NoComparisonInTheWild", what: "the script does not compare answers with those of the look",
		edits: []edit{{"if not same(s[1], redis.pcall(unpack(s, 2))) then return false end", ""}},
		row:   "MadeAnewInEveryGap",
	},
	{
		name: "NoReferenceInTheWild", what: "a lost reference holds nothing",
		edits: []edit{
			{"\tif refs.lost != \"\" {", "\tif false {"},
			{"\tif found.lost != \"\" {", "\tif false {"},
		},
		row: "BotSetsDeleted",
	},
	{
		name: "NoCap", what: "a pass deletes as many as it likes",
		edits: []edit{{"\tif len(names) > x.Cap {", "\tif false {"}},
		test:  "TestTooManyNewlyCondemnedHoldTheRuleOnce",
	},
}

// changed is the text of each file that a mutant changes, by its name.
func (m mutant) changed(t *testing.T) map[string]string {
	t.Helper()
	all, changed := engine(t), map[string]string{}
	for _, e := range m.edits {
		places := 0
		for name, text := range all {
			if n := strings.Count(text, e.from); n > 0 {
				places += n
				all[name] = strings.Replace(text, e.from, e.to, 1)
				changed[name] = all[name]
			}
		}
		require.Equal(t, 1, places, "mutant %s does not fit any more: %q", m.name, e.from)
	}
	return changed
}

// engine is the text of each file of package orphan, without its tests.
func engine(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, kind := range []string{"*.go", "*.lua"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "orphan", kind))
		require.NoError(t, err)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				all[filepath.Base(file)] = string(text)
			}
		}
	}
	return all
}

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Parallel()
	tests := ""
	files, err := filepath.Glob(filepath.Join("..", "..", "orphan", "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tests += string(text)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		require.False(t, names[m.name], "two mutants %s", m.name)
		names[m.name] = true
		require.NotEmpty(t, m.changed(t), m.name)
		if m.row != "" {
			require.True(t, slices.ContainsFunc(matrix(), func(r row) bool { return r.name == m.row }), m.name)
		} else {
			require.Contains(t, tests, "\nfunc "+m.test+"(", "mutant %s", m.name)
		}
	}
}

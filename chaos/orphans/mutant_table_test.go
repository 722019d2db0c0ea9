package orphans

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant is the engine with one of its protections taken away, which a test of package orphan must
// notice: TestMutants sees it fail. It is a few changes to the text of the code, put over the files when
// the test is built (go test -overlay). What is here needs no tag, so that a change of the code which a
// mutant rests on is told by the next run of all tests.
type mutant struct {
	name  string
	what  string // is changed
	edits []edit
	test  string // of package orphan, that fails
}

// An edit replaces what stands exactly once in a file of package orphan.
type edit struct{ file, from, to string }

const gapsTest = "TestWhatIsMadeAnewInAnyGapSurvives"

var mutants = []mutant{
	{
		"NoGraceInTheScript", "the script does not ask how old a mark is",
		[]edit{{"delete.lua", "return at >= since and now - at >= c.grace", "return at >= since"}},
		"TestTheScriptItselfAsksHowOldAMarkIs",
	},
	{
		"NoHoldInTheScript", "to the script marks of before a hold count",
		[]edit{{"delete.lua", "return at >= since and now - at >= c.grace", "return now - at >= c.grace"}},
		"TestTheScriptItselfAsksWhetherAHoldCameAfterTheMark",
	},
	{
		"AnyMark", "the script takes any mark for the look's",
		[]edit{{"delete.lua", "if redis.call('HGET', KEYS[6], c.name) ~= c.mark then return false end", ""}},
		gapsTest,
	},
	{
		"NoComparison", "the script does not compare answers with those of the look",
		[]edit{{"same.lua", "if not same(s[1], redis.pcall(unpack(s, 2))) then return false end", ""}},
		gapsTest,
	},
	{
		"NoPremises", "the script does not ask for the references again",
		[]edit{{"delete.lua", "if c.premises and not all_same(c.premises) then", "if false then"}},
		"TestTheScriptItselfAsksForTheReferences",
	},
	{
		"NoGrace", "one look is enough",
		[]edit{{"sweep.go", "wait := x.graceOf(f) - f.at.Sub(m.at); wait > 0", "wait := x.graceOf(f) - f.at.Sub(m.at); wait > x.Grace"}},
		"TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
	},
	{
		"NoHold", "marks of before a hold count",
		[]edit{{"sweep.go", " || m.at.Before(x.notes.valid)", ""}},
		"TestAHoldBetweenTwoLooksMakesTheFirstWorthless",
	},
	{
		"NoUnmark", "a candidate that shows a sign of life keeps its mark",
		[]edit{{"sweep.go", "\t\t\tif has {\n\t\t\t\tunset = append(unset, name)\n\t\t\t\tdelete(x.notes.marks, name)",
			"\t\t\tif false {\n\t\t\t\tunset = append(unset, name)\n\t\t\t\tdelete(x.notes.marks, name)"}},
		"TestASignOfLifeBetweenTwoLooksMakesTheFirstWorthless",
	},
	{
		"NoFingerprint", "a mark stands for whatever has the name",
		[]edit{
			{"sweep.go", " || m.print != f.fingerprint", ""},
			{"reap.go", " || f.fingerprint != x.notes.marks[f.name()].print", ""},
		},
		gapsTest,
	},
	{
		"NoFingerprintAtTheLastLook", "the last look does not ask whether it is the same",
		[]edit{{"reap.go", " || f.fingerprint != x.notes.marks[f.name()].print", ""}},
		gapsTest,
	},
	{
		"NoBreaker", "the breaker never holds",
		[]edit{{"sweep.go", "if of >= breakerLeast && newly > of/2 {", "if false {"}},
		"TestTooManyNewlyCondemnedHoldTheRuleOnce",
	},
	{
		"NoReference", "a lost reference holds nothing",
		[]edit{{"sweep.go", "\tif refs.lost != \"\" {", "\tif false {"}},
		"TestALostReferenceHoldsTheRule",
	},
	{
		"NoEmptyCollection", "an empty collection holds nothing",
		[]edit{{"sweep.go", "\tif empty != \"\" {", "\tif false {"}},
		"TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished",
	},
	{
		"OlderTermsNote", "a pass of an older term notes what it found",
		[]edit{{"note.lua", "if newest[1] and string.match(newest[1][1], '^%d+') ~= ARGV[1] then return 0 end", ""}},
		"TestAPassOfAnOlderTermNotesNothing",
	},
	{
		"UnknownIsGone", "a document that is not there says that all is over",
		[]edit{{"look.go", "\t\t\t\tf.keep(unknown, \"%s has no document %s\", q.Collection, id)\n", "\t\t\t\ttold(f, true)\n"}},
		"TestAMatchGoesWithAllThatBelongsToItAnHourAfterTheDatabaseCallsItFinished",
	},
	{
		"UnansweredIsSilent", "a channel of which no server tells has no subscribers",
		[]edit{{"look.go", "\t\t\t\tcase err != nil || !known:\n", "\t\t\t\tcase false && known:\n"}},
		"TestAChannelOfWhichNoServerTellsKeeps",
	},
	{
		"UnreadableIsGone", "what does not parse has no fields",
		[]edit{{"look.go", "\t\t\tf.keep(unreadable, \"it is no JSON object\")\n\t\t\treturn\n", "\t\t\tf.value = map[string]any{}\n"},
			{"look.go", "\t\t\tf.keep(unreadable, \"it has no %s\", at)\n\t\t\treturn\n", ""}},
		"TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays",
	},
	{
		"PartIsAll", "a pass that has not read every master condemns all the same",
		[]edit{{"sweep.go", "\t\tx.r.Coverage.Complete = false\n", "\t\tx.r.Coverage.Masters = -1\n"}},
		"TestOnAClusterAPassThatMissesAMasterCondemnsNothing",
	},
	{
		"NoDeadline", "on a Cluster the evidence counts for ever",
		[]edit{{"away.lua", "if now > tonumber(ARGV[1]) then return -1 end", ""}},
		"TestOnAClusterNothingGoesByEvidenceThatIsTooOld",
	},
	{
		"SettledTwice", "an intent is counted by whoever comes",
		[]edit{{"settle.lua", "if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then", "redis.call('HDEL', KEYS[1], ARGV[1])\nif false then"}},
		"TestOnAClusterADeleteIsCountedOnceWhateverIsLostInBetween",
	},
	{
		"NoGuardForIntents", "on a Cluster an intent does not ask for the mark",
		[]edit{{"intend.lua", "redis.call('HGET', KEYS[6], c.name) == c.mark and at >= since and now - at >= c.grace", "true"}},
		"TestOnAClusterAnIntentAsksForTheMark",
	},
	{
		"NoCap", "a pass deletes as many as it likes",
		[]edit{{"sweep.go", "\tif len(names) > x.Cap {", "\tif false {"}},
		"TestTooManyNewlyCondemnedHoldTheRuleOnce",
	},
}

// changed is the text of each file that a mutant changes, by its name.
func (m mutant) changed(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			original, err := os.ReadFile(filepath.Join("..", "..", "orphan", e.file))
			require.NoError(t, err)
			text = string(original)
		}
		require.Equal(t, 1, strings.Count(text, e.from),
			"mutant %s does not fit any more: in orphan/%s, %q", m.name, e.file, e.from)
		files[e.file] = strings.Replace(text, e.from, e.to, 1)
	}
	return files
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
		require.Contains(t, tests, "\nfunc "+m.test+"(", "mutant %s", m.name)
	}
}

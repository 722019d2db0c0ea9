package availability

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant is the program with one of its protections taken away, which a test, or the judges of a
// row, must notice: TestMutants sees it fail. It is a few changes to the text of the code, put over
// the files when it is built (go test -overlay). What is here needs no tag, so that a change of the
// code which a mutant rests on is told by the next run of all tests.
type mutant struct {
	name  string
	what  string // is changed
	edits []edit
	test  string // of package availability, or of its postgres, that fails
	row   string // of the matrix, in place of a test: the judges reject what came of it
}

// An edit replaces what stands in a file, once or wherever it does.
type edit struct {
	file, from, to string
	everywhere     bool
}

// Files below the folder of package availability.
const (
	applyLua     = "apply.lua"
	condemnLua   = "condemn.lua"
	heartbeatLua = "heartbeat.lua"
	seedLua      = "seed.lua"
	offlineGo    = "offline.go"
	feedGo       = "feed.go"
	reconcileGo  = "reconcile.go"
	settingsGo   = "settings.go"
	writeGo      = "write.go"
	statesGo     = "postgres/states.go"
	stateSQL     = "postgres/migrations/00002_state.sql"
	writersSQL   = "postgres/migrations/00003_writers.sql"
)

var mutants = []mutant{
	{
		name: "NoVersionGuard", what: "states are applied whatever version stands",
		edits: []edit{{file: applyLua, from: "  if new > old then\n    kind", to: "  if new > 0 then\n    kind"}},
		test:  "TestStatesAreAppliedByVersionAlone",
	},
	{
		name: "NoVersionGuardInTheWild", what: "states are applied whatever version stands",
		edits: []edit{
			{file: applyLua, from: "  if new > old then\n    kind", to: "  if new > 0 then\n    kind"},
			{file: applyLua, from: "    if new > old then\n      redis", to: "    if new > 0 then\n      redis"},
		},
		row: "WriterStoppedBetweenCommitAndApply",
	},
	{
		name: "XmaxInTheFeed", what: "the feed goes on behind transactions that are not over",
		edits: []edit{{
			file: statesGo, from: "SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin",
			to: "SELECT pg_snapshot_xmax(pg_current_snapshot()) AS xmin",
		}},
		test: "TestTheFeedSeesAChangeThatCommitsLate",
	},
	{
		name: "FeedGoesOnAfterARestart", what: "the feed takes another server's transactions for this one's",
		edits: []edit{{file: statesGo, from: "WHEN life THEN $1::xid8 ELSE '0' END", to: "ELSE $1::xid8 END"}},
		test:  "TestAServerThatIsBackAfterItsEndIsReadFromTheBeginning",
	},
	{
		name: "FeedMovesOnWhateverArrived", what: "the cursor moves before the states have arrived",
		edits: []edit{{
			file: feedGo, from: "\tbrought, err := f.apply(ctx, newer, states...)",
			to: "\tf.cursor, f.reading = next, true\n\tbrought, err := f.apply(ctx, newer, states...)",
		}},
		test: "TestAWriteStandsThoughRedisIsAwayAndTheFeedBringsIt",
	},
	{
		name: "TrueToTrueTakesNoVersion", what: "a statement that names is_online, and changes nothing, takes no version",
		edits: []edit{{file: stateSQL, from: "WHERE named OR n.is_online", to: "WHERE n.is_online"}},
		test:  "TestAStatementThatNamesIsOnlineTakesAVersionAlsoIfTheValueStays",
	},
	{
		name: "RowLevelTriggers", what: "a trigger runs for each row of a statement",
		edits: []edit{
			{file: stateSQL, from: "FROM old_rows o FULL JOIN new_rows n",
				to: "FROM (SELECT OLD.*) o FULL JOIN (SELECT NEW.*) n", everywhere: true},
			{file: stateSQL, from: "FROM new_rows", to: "FROM (SELECT NEW.*) new_rows", everywhere: true},
			{file: stateSQL, from: "FROM old_rows", to: "FROM (SELECT OLD.*) old_rows", everywhere: true},
			{file: stateSQL, from: "ON %I REFERENCING %s\n                      FOR EACH STATEMENT",
				to: "ON %I /* %s */\n                      FOR EACH ROW"},
		},
		test: "TestABulkEndWritesEachMitrasStateOnce",
	},
	{
		name: "SeededWithoutItsToken", what: "a seeding is certified though its token is gone",
		edits: []edit{{
			file: seedLua, from: "if held ~= token .. ' ' .. at then return '' end",
			to: "if held ~= token .. ' ' .. at then at = iso(nowms()) end",
		}},
		test: "TestASeedThatIsFlushedInItsMiddleCertifiesNothing",
	},
	{
		name: "SeededWithoutItsTokenInTheWild", what: "a seeding is certified though its token is gone",
		edits: []edit{{
			file: seedLua, from: "if held ~= token .. ' ' .. at then return '' end",
			to: "if held ~= token .. ' ' .. at then at = iso(nowms()) end",
		}},
		row: "FlushedWhileSeeding",
	},
	{
		name: "NotSeededAnew", what: "a connection to Redis that begins anew is not noticed",
		edits: []edit{{file: settingsGo, from: "\t\t\tif again {", to: "\t\t\tif again && !begun {"}},
		test:  "TestAConnectionThatBeginsAnewIsSeededThoughTheMirrorSeemsWhole",
	},
	{
		name: "MarksNotReadAgain", what: "nobody looks at the marks before the commit",
		edits: []edit{{
			file: offlineGo, from: "stand[i] != strconv.FormatInt(c.Version, 10) {\n\t\t\treturn errMarks",
			to: "stand[i] != strconv.FormatInt(c.Version, 10) {\n\t\t\tcontinue",
		}},
		test: "TestAMarkThatWentBeforeTheCommitRollsItBack",
	},
	{
		name: "NoCutoffInPostgres", what: "Postgres does not ask its own heartbeats",
		edits: []edit{{file: writersSQL, from: " AND s.is_online AND a.seen >= cutoff IS NOT TRUE", to: " AND s.is_online"}},
		test:  "TestTheSilentGoOfflineAtTheVersionAtWhichTheyWereCondemned",
	},
	{
		name: "NoFenceInPostgres", what: "Postgres does not ask for the version of the mark",
		edits: []edit{{file: writersSQL, from: "ON a.mitra_id = c.id AND a.version = c.version", to: "ON a.mitra_id = c.id"}},
		test:  "TestTheSilentGoOfflineAtTheVersionAtWhichTheyWereCondemned",
	},
	{
		name: "HeartbeatsOfTheCondemned", what: "heartbeats are kept while an auto-offline is under way",
		edits: []edit{{
			file: heartbeatLua, from: "if call('HEXISTS', prefix .. 'mitras:condemned', id) == 1 then return 'not_online' end", to: "",
		}},
		test: "TestAHeartbeatIsRefusedByName",
	},
	{
		name: "HeartbeatsOfTheCondemnedInTheWild", what: "heartbeats are kept while an auto-offline is under way",
		edits: []edit{{
			file: heartbeatLua, from: "if call('HEXISTS', prefix .. 'mitras:condemned', id) == 1 then return 'not_online' end", to: "",
		}},
		row: "PingsBetweenMarkAndTransaction",
	},
	{
		name: "NoWitness", what: "silence is judged though nobody has listened",
		edits: []edit{
			{file: offlineGo, from: "listened < x.stale {", to: "listened < 0 {"},
			{file: condemnLua, from: "if now - since < tonumber(stale) then", to: "if false then"},
		},
		test: "TestNobodyGoesOffline",
	},
	{
		name: "NoWitnessInTheScript", what: "the script condemns though nobody has listened",
		edits: []edit{{file: condemnLua, from: "if now - since < tonumber(stale) then", to: "if false then"}},
		test:  "TestAHoldBehindTheLookKeepsEverybody",
	},
	{
		name: "NoSecondLook", what: "the script condemns whom the look has found, whatever came since",
		edits: []edit{{file: condemnLua, from: "if v and silent and", to: "if v and"}},
		test:  "TestAPingBehindTheLookKeepsAMitra",
	},
	{
		name: "NoBreaker", what: "most may go offline at once",
		edits: []edit{{file: offlineGo, from: "\ttooMany := x.online >= breakerLeast &&", to: "\ttooMany := false &&"}},
		test:  "TestAMassFailureHoldsOnceAndThenWhoIsSilentStillGoes",
	},
	{
		name: "AppliedBeforeTheCommit", what: "to go online is brought to Redis before it is committed",
		edits: []edit{{
			file: writeGo, from: "\treturn m.wrote(ctx)(m.source.SetOnline(ctx, id, true))",
			to: "\tif s, err := m.source.States(ctx, []string{id}); err == nil && len(s) == 1 {\n" +
				"\t\ts[0].Version, s[0].Online = s[0].Version+1, true\n\t\tm.applied(ctx, s[0])\n\t}\n" +
				"\treturn m.wrote(ctx)(m.source.SetOnline(ctx, id, true))",
		}},
		test: "TestEachWriterCommitsInTheSourceFirstAndBringsItRightAfter",
	},
	{
		name: "AppliedBeforeTheCommitInTheWild", what: "to go online is brought to Redis before it is committed",
		edits: []edit{{
			file: writeGo, from: "\treturn m.wrote(ctx)(m.source.SetOnline(ctx, id, true))",
			to: "\tif s, err := m.source.States(ctx, []string{id}); err == nil && len(s) == 1 {\n" +
				"\t\ts[0].Version, s[0].Online = s[0].Version+1, true\n\t\tm.applied(ctx, s[0])\n\t}\n" +
				"\treturn m.wrote(ctx)(m.source.SetOnline(ctx, id, true))",
		}},
		row: "PostgresKilled",
	},
	{
		name: "FlipAppliedBeforeTheCommit", what: "an auto-offline is brought to Redis before it is committed",
		edits: []edit{{
			file: offlineGo, from: "\tfailpoint.Hit(failpoint.Confirmed)",
			to: "\tfor _, c := range those {\n\t\tif s, err := x.source.States(ctx, []string{c.ID}); err == nil {\n" +
				"\t\t\ts[0].Version, s[0].Online = c.Version+1, false\n\t\t\tx.applied(ctx, s[0])\n\t\t}\n\t}\n" +
				"\tfailpoint.Hit(failpoint.Confirmed)",
		}},
		row: "LeaderKilledBeforeTheCommit",
	},
	{
		name: "RerouteInTwoSteps", what: "a reroute's two states are applied one after the other",
		edits: []edit{{
			file: writeGo, from: "\t\tif err == nil && len(states) > 0 {\n\t\t\tm.applied(ctx, states...)",
			to: "\t\tfor _, one := range states {\n\t\t\tm.applied(ctx, one)",
		}},
		test: "TestARerouteIsSeenOnBothOrOnNeither",
	},
	{
		name: "NobodyOutbids", what: "a Redis that is ahead of Postgres stays so",
		edits: []edit{{file: reconcileGo, from: "\tif len(ahead) == 0 {", to: "\tif len(ahead) >= 0 {"}},
		test:  "TestAReconciliationNamesEachKindOfDriftAndHealsIt",
	},
	{
		name: "AcceptDoesNotLookForRoom", what: "a mitra is given more sessions than it may have",
		edits: []edit{{file: writersSQL, from: "ELSIF busy >= most THEN", to: "ELSIF false THEN", everywhere: true}},
		test:  "TestAThousandAcceptsAtOnceFillEveryPlaceAndNoMore",
	},
	{
		name: "AcceptDoesNotLockTheRoom", what: "the room is looked at before it is locked",
		edits: []edit{{
			file: writersSQL, from: "FROM mitra_availability a WHERE a.mitra_id = mitra FOR NO KEY UPDATE;",
			to: "FROM mitra_availability a WHERE a.mitra_id = mitra;",
		}},
		test: "TestAThousandAcceptsAtOnceFillEveryPlaceAndNoMore",
	},
	{
		name: "RerouteLocksInAnotherOrder", what: "a reroute locks the later id first",
		edits: []edit{{
			file: writersSQL, from: "      ORDER BY a.mitra_id FOR NO KEY UPDATE;",
			to: "      ORDER BY a.mitra_id DESC FOR NO KEY UPDATE;",
		}},
		test: "TestARerouteLocksStatesInTheirOrder",
	},
	{
		name: "HeartbeatsGoBack", what: "an older heartbeat is stored over a newer one",
		edits: []edit{{file: writersSQL, from: "WHERE h.moment <= s.last_heartbeat_at IS NOT TRUE", to: "WHERE true"}},
		test:  "TestHeartbeatsAreStoredOnlyIfTheyAreNewer",
	},
	{
		name: "ApplyTakesHeartbeatsBack", what: "Postgres' older heartbeat is written over that of Redis",
		edits: []edit{{file: applyLua, from: "if seen(id) < at then redis.call", to: "if at ~= '' then redis.call"}},
		test:  "TestStatesAreAppliedByVersionAlone",
	},
}

// source is the folder of package availability.
func source(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "availability"))
	require.NoError(t, err)
	return dir
}

// changed is the text of each file that a mutant changes, by its name.
func (m mutant) changed(t *testing.T) map[string]string {
	t.Helper()
	changed := map[string]string{}
	for _, e := range m.edits {
		text, has := changed[e.file]
		if !has {
			read, err := os.ReadFile(filepath.Join(source(t), e.file))
			require.NoError(t, err)
			text = string(read)
		}
		n := strings.Count(text, e.from)
		require.True(t, n == 1 || e.everywhere && n > 1, "mutant %s does not fit any more: %q stands %d times",
			m.name, e.from, n)
		changed[e.file] = strings.ReplaceAll(text, e.from, e.to)
	}
	return changed
}

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Parallel()
	tests := ""
	for _, folder := range []string{"", "postgres"} {
		files, err := filepath.Glob(filepath.Join(source(t), folder, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			tests += string(text)
		}
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

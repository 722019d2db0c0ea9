package availability

import (
	"slices"
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// Files below the folder of package availability.
const (
	applyLua     = "apply.lua"
	heardLua     = "heard.lua"
	fitLua       = "fit.lua"
	condemnLua   = "condemn.lua"
	feedLua      = "feed.lua"
	offlineGo    = "offline.go"
	feedGo       = "feed.go"
	settingsGo   = "settings.go"
	writeGo      = "write.go"
	applyGo      = "apply.go"
	readGo       = "read.go"
	clocksGo     = "clocks.go"
	snapshotGo   = "snapshot.go"
	sourceFeedGo = "postgres/feed.go"
	schemaSQL    = "postgres/migrations/00001_availability.sql"
	limitsGo     = "postgres/settings.go"
)

// The search for what nobody thought of, which has to find these mutants too.
const theSearch, searchDir = "TestSearch", "chaos/availability/search"

// mutants: what is here needs no tag, so that a change of the code which a mutant rests on is told
// by the next run of all tests.
var mutants = harness.Mutants{
	Dir: "availability", Tests: []string{"availability", "availability/postgres"},
	Program: "availability", Given: givenProgram, Rejects: judgeRejects,
	All: found([]harness.Mutant{
		{
			Name: "NoVersionGuard", What: "states are applied whatever version stands",
			Edits: []harness.Edit{{File: applyLua, From: "  if new > old then\n    kind", To: "  if new > 0 then\n    kind"}},
			Test:  "TestStatesAreAppliedByVersionAlone",
		},
		{
			Name: "NoVersionGuardInTheWild", What: "states are applied whatever version stands",
			Edits: []harness.Edit{
				{File: applyLua, From: "  if new > old then\n    kind", To: "  if new > 0 then\n    kind"},
				{File: applyLua, From: "    if new > old then redis", To: "    if new > 0 then redis"},
			},
			Row: "WriterStoppedBetweenCommitAndApply",
		},
		{
			Name: "XmaxInTheFeed", What: "the feed goes on behind transactions that are not over",
			Edits: []harness.Edit{{
				File: sourceFeedGo, From: "SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin",
				To: "SELECT pg_snapshot_xmax(pg_current_snapshot()) AS xmin",
			}},
			Test: "TestTheFeedSeesAChangeThatCommitsLate",
		},
		{
			Name: "FeedGoesOnAfterARestart", What: "the feed takes another server's transactions for this one's",
			Edits: []harness.Edit{
				{File: sourceFeedGo, From: "WHEN (SELECT life FROM now) THEN", To: "WHEN $3::text THEN"},
				{File: sourceFeedGo, From: "since.Connection != now.Connection", To: "false"},
			},
			Test: "TestAServerThatIsBackAfterItsEndIsReadFromTheBeginning",
		},
		{
			Name: "AConnectionIsNoLife", What: "the end of the feed's connection is not noticed",
			Edits: []harness.Edit{{File: sourceFeedGo, From: "since.Connection != now.Connection", To: "false"}},
			Test:  "TestWhateverMayBringOtherCommitsIsAnotherLife",
		},
		{
			Name: "OpenTransactionsAreReadAgain", What: "all since the oldest open transaction is read at each look",
			Edits: []harness.Edit{{
				File: sourceFeedGo, From: "AND NOT pg_visible_in_snapshot(changed_xid, (SELECT since FROM now))", To: "",
			}},
			Test: "TestAnOpenTransactionHasNoStateReadTwice",
		},
		{
			Name: "WritersDoNotOutbid", What: "a write that Redis takes for an old one is left to the next comparison",
			Edits: []harness.Edit{{File: applyGo, From: "r.settle(ctx, found); err != nil {", To: "r.settle(ctx, found[:0]); err != nil {"}},
			Test:  "TestAWriteBehindLostCommitsIsInRedisWhenItIsAcknowledged",
		},
		{
			Name: "ReadsTrustAFeedThatIsBehind", What: "reads do not ask Postgres while the feed cannot be read",
			Edits: []harness.Edit{{File: readGo, From: "if !known || a.Age > 0 {", To: "if !known {"}},
			Test:  "TestReadsAskTheSourceWhileTheFeedDoesNotKnow",
		},
		{
			Name: "ClocksAreNotCorrected", What: "times of two clocks are compared as they are",
			Edits: []harness.Edit{{File: clocksGo, From: "c.skew = measured", To: "c.skew = 0"}},
			Test:  "TestTwoClocksAreComparedWhateverOursSays",
		},
		{
			Name: "JudgementsAreLast", What: "a heartbeat that was taken behind a judgement is overruled",
			Edits: []harness.Edit{{
				File: applyLua, From: "kind = not keeps and is_alive(id, at) and 'alive' or 'behind'", To: "kind = 'behind'",
			}},
			Test: "TestAHeartbeatThatIsKeptWhileACommitTakesItsTimeIsNotOverruled",
		},
		{
			Name: "SnapshotsDoNotPause", What: "a long computation loses its place to the next",
			Edits: []harness.Edit{{File: snapshotGo, From: "computingLasts  = 10 *", To: "computingLasts  = 1 *"}},
			Test:  "TestSnapshotsThatTakeLongAreComputedByOneAtATimeAndPause",
		},
		{
			Name: "SnapshotsOutliveTheirTime", What: "a poll that comes late gets a snapshot of twice its time",
			Edits: []harness.Edit{{File: snapshotGo, From: "snapshotServed = snapshotLasts + callTimeout", To: "snapshotServed = 2 * snapshotLasts"}},
			Test:  "TestASnapshotIsNotServedLongAfterItsTime",
		},
		{
			Name: "OneRowTakesAllConnections", What: "callers of a row that somebody has locked take every connection",
			Edits: []harness.Edit{{File: "postgres/postgres.go", From: "config.MaxConns-half), lockedWaits}", To: "config.MaxConns-half), s.timeout}"}},
			Test:  "TestARowThatSomebodyHasLockedLeavesConnectionsForOthers",
		},
		{
			Name: "TheMarkIsNotRead", What: "a Redis that was set back while it runs is taken for what it was",
			Edits: []harness.Edit{{File: feedLua, From: "if ARGV[i] == fed[3] and not back then", To: "if not back then"}},
			Test:  "TestARedisThatWasSetBackIsComparedBeforeItAnswers",
		},
		{
			Name: "NoRoomForAnotherFleet", What: "heartbeats of another fleet that are on their way do not count",
			Edits: []harness.Edit{{File: offlineGo, From: "x.stale+x.room", To: "x.stale"}},
			Test:  "TestWhoMayHaveSentAHeartbeatToAnotherFleetStaysOnline",
		},
		{
			Name: "LongMembersStay", What: "a page of the mirror that is too long for a reply is never read",
			Edits: []harness.Edit{{File: "scan.lua", From: "if #name > 64 or #value > 64 then", To: "if false then"}},
			Test:  "TestWhatSomebodyMadeLargeIsNotReadWhole",
		},
		{
			Name: "FeedMovesOnWhateverArrived", What: "the cursor moves before the states have arrived",
			Edits: []harness.Edit{{
				File: feedGo, From: "\tbrought, err := f.reconciliation(newer, directly)",
				To: "\tf.cursor = next\n\tbrought, err := f.reconciliation(newer, directly)",
			}},
			Test: "TestAWriteStandsThoughRedisIsAwayAndTheFeedBringsIt",
		},
		{
			Name: "TrueToTrueTakesNoVersion", What: "a statement that names is_online, and changes nothing, takes no version",
			Edits: []harness.Edit{{File: schemaSQL, From: "WHERE named OR n.is_online", To: "WHERE n.is_online"}},
			Test:  "TestAStatementThatNamesIsOnlineTakesAVersionAlsoIfTheValueStays",
		},
		{
			Name: "RowLevelTriggers", What: "a trigger runs for each row of a statement",
			Edits: []harness.Edit{
				{File: schemaSQL, From: "FROM old_rows o FULL JOIN new_rows n",
					To: "FROM (SELECT OLD.*) o FULL JOIN (SELECT NEW.*) n", Everywhere: true},
				{File: schemaSQL, From: "FROM new_rows", To: "FROM (SELECT NEW.*) new_rows", Everywhere: true},
				{File: schemaSQL, From: "FROM old_rows", To: "FROM (SELECT OLD.*) old_rows", Everywhere: true},
				{File: schemaSQL, From: "ON %I REFERENCING %s\n                      FOR EACH STATEMENT",
					To: "ON %I /* %s */\n                      FOR EACH ROW"},
			},
			Test: "TestABulkEndWritesEachMitrasStateOnce",
		},
		{
			Name: "SeededWithoutItsToken", What: "a seeding is certified though its lease is gone",
			Edits: []harness.Edit{{
				File: feedGo, From: "if f.anew || !f.feeding {", To: "if false {",
			}, {
				File: feedLua, From: "elseif role == 'same' and what == 'certify' then", To: "elseif what == 'certify' then",
			}},
			Test: "TestASeedThatIsFlushedInItsMiddleCertifiesNothing",
		},
		{
			Name: "NotSeededAnew", What: "a connection to Redis that begins anew is not noticed",
			Edits: []harness.Edit{{File: settingsGo, From: "\t\t\tif again {", To: "\t\t\tif again && !begun {"}},
			Test:  "TestAConnectionThatBeginsAnewIsSeededThoughTheMirrorSeemsWhole",
		},
		{
			Name: "NoCutoffInPostgres", What: "Postgres does not ask its own heartbeats",
			Edits: []harness.Edit{{File: schemaSQL, From: "AND s.is_online AND a.seen >= cutoff IS NOT TRUE", To: "AND s.is_online"}},
			Test:  "TestTheSilentGoOfflineAtTheVersionAtWhichTheyWereCondemned",
		},
		{
			Name: "NoFenceInPostgres", What: "Postgres does not ask for the version of the mark",
			Edits: []harness.Edit{{File: schemaSQL, From: "ON a.mitra_id = c.id AND a.version = c.version", To: "ON a.mitra_id = c.id"}},
			Test:  "TestTheSilentGoOfflineAtTheVersionAtWhichTheyWereCondemned",
		},
		{
			Name: "NoWitness", What: "silence is judged though nobody has listened",
			Edits: []harness.Edit{
				{File: offlineGo, From: "page.listened < x.stale:", To: "page.listened < 0:"},
				{File: condemnLua, From: "if now - since < tonumber(stale) then", To: "if false then"},
			},
			Test: "TestNobodyGoesOffline",
		},
		{
			Name: "NoWitnessInTheScript", What: "the guard confirms though nobody has listened",
			Edits: []harness.Edit{{File: condemnLua, From: "if now - since < tonumber(stale) then", To: "if false then"}},
			Test:  "TestALookThatHasAgedKeepsEverybody",
		},
		{
			Name: "NoSecondLook", What: "nobody looks at the silent again before the commit",
			Edits: []harness.Edit{{File: offlineGo, From: "case a.Reowned > 0:", To: "case false:"}},
			Test:  "TestOneWhoComesBackBeforeTheCommitKeepsAllOfManyOnline",
		},
		{
			Name: "NoBreaker", What: "most may go offline at once",
			Edits: []harness.Edit{{File: offlineGo, From: "\twave := len(x.silent) > 0 &&", To: "\twave := false &&"}},
			Test:  "TestAMassFailureHoldsOnceAndThenWhoIsSilentStillGoes",
		},
		{
			Name: "BreakerCountsTheSilentAlone", What: "the first of a wave go offline before the breaker holds",
			Edits: []harness.Edit{{File: offlineGo, From: "x.late > x.online/2", To: "len(x.silent) > x.online/2"}},
			Test:  "TestAMassFailureHoldsBeforeTheFirstOfItsWaveGoesOffline",
		},
		{
			Name: "AppliedBeforeTheCommit", What: "to go online is brought to Redis before it is committed",
			Edits: []harness.Edit{{
				File: writeGo, From: "\treturn m.wrote(ctx)(m.source.SetOnline(ctx, id, true))",
				To: "\tif s, err := m.source.States(ctx, []string{id}); err == nil && len(s) == 1 {\n" +
					"\t\ts[0].Version, s[0].Online = s[0].Version+1, true\n\t\tm.applied(ctx, s[0])\n\t}\n" +
					"\treturn m.wrote(ctx)(m.source.SetOnline(ctx, id, true))",
			}},
			Test: "TestEachWriterCommitsInTheSourceFirstAndBringsItRightAfter",
		},
		{
			Name: "FlipAppliedBeforeTheCommit", What: "an auto-offline is brought to Redis before it is committed",
			Edits: []harness.Edit{{
				File: offlineGo, From: "\tfailpoint.Hit(failpoint.Confirmed)",
				To: "\tfor _, c := range x.silent {\n\t\tif s, err := x.source.States(ctx, []string{c.ID}); err == nil {\n" +
					"\t\t\ts[0].Version, s[0].Online = c.Version+1, false\n\t\t\tx.applied(ctx, s[0])\n\t\t}\n\t}\n" +
					"\tfailpoint.Hit(failpoint.Confirmed)",
			}},
			Row: "LeaderKilledBeforeTheCommit",
		},
		{
			Name: "RerouteInTwoSteps", What: "a reroute's two states are applied one after the other",
			Edits: []harness.Edit{{
				File: writeGo, From: "\t\tif err == nil && len(states) > 0 {\n\t\t\tm.applied(ctx, states...)",
				To: "\t\tfor _, one := range states {\n\t\t\tm.applied(ctx, one)",
			}},
			Test: "TestARerouteIsSeenOnBothOrOnNeither",
		},
		{
			Name: "NobodyOutbids", What: "a Redis that is ahead of Postgres stays so",
			Edits: []harness.Edit{{File: applyGo, From: "\tif len(ahead) == 0 {", To: "\tif len(ahead) >= 0 {"}},
			Test:  "TestAReconciliationNamesEachKindOfDriftAndHealsIt",
		},
		{
			Name: "AcceptDoesNotLookForRoom", What: "a mitra is given more sessions than it may have",
			Edits: []harness.Edit{{File: schemaSQL, From: "THEN 'full' ELSE 'done' END", To: "THEN 'done' ELSE 'done' END"}},
			Test:  "TestAThousandAcceptsAtOnceFillEveryPlaceAndNoMore",
		},
		{
			Name: "AcceptDoesNotLockTheRoom", What: "the room is looked at before it is locked",
			Edits: []harness.Edit{{
				File: schemaSQL, From: "IN (holder, mitra)\n      ORDER BY a.mitra_id FOR NO KEY UPDATE;", To: "IN (holder, mitra);",
			}},
			Test: "TestAThousandAcceptsAtOnceFillEveryPlaceAndNoMore",
		},
		{
			Name: "RerouteLocksInAnotherOrder", What: "a reroute locks the later id first",
			Edits: []harness.Edit{{
				File: schemaSQL, From: "      ORDER BY a.mitra_id FOR NO KEY UPDATE;",
				To: "      ORDER BY a.mitra_id DESC FOR NO KEY UPDATE;",
			}},
			Test: "TestARerouteLocksStatesInTheirOrder",
		},
		{
			Name: "HeartbeatsGoBack", What: "an older heartbeat is stored over a newer one",
			Edits: []harness.Edit{{File: schemaSQL, From: "WHERE h.moment <= s.last_heartbeat_at IS NOT TRUE", To: "WHERE true"}},
			Test:  "TestHeartbeatsAreStoredOnlyIfTheyAreNewer",
		},
		{
			Name: "ApplyTakesHeartbeatsBack", What: "Postgres' older heartbeat is written over that of Redis",
			Edits: []harness.Edit{{File: applyLua, From: "if was < at then redis.call", To: "if at ~= '' then redis.call"}},
			Test:  "TestStatesAreAppliedByVersionAlone",
		},
		{
			Name: "OneBadHeartbeatStopsTheMirror", What: "a heartbeat of another type ends the script for all of its mitras",
			Edits: []harness.Edit{{File: heardLua, From: "return redis.pcall('GETRANGE'", To: "return redis.call('GETRANGE'"}},
			Test:  "TestAnyKeyOfAnyTypeAndValueStopsNobodyElse",
		},
		{
			Name: "BadKeysStay", What: "nobody looks at the types of shared keys",
			Edits: []harness.Edit{{File: fitLua, From: "if is[i] ~= 'none' and is[i] ~= wanted[i] then", To: "if false then"}},
			Test:  "TestAnyKeyOfAnyTypeAndValueStopsNobodyElse",
		},
		{
			Name: "SomebodysKeyIsTaken", What: "a key is unlinked though nothing says that it is the mirror's",
			Edits: []harness.Edit{{File: fitLua, From: "local ours = ARGV[1] == '1' or", To: "local ours = true or"}},
			Test:  "TestAKeyOfAnotherTypeThatWasThereBeforeTheMirrorIsKeptAndNamed",
		},
		{
			Name: "ABadHeartbeatIsSilence", What: "who lost a heartbeat to nonsense is judged by an older one",
			Edits: []harness.Edit{{File: applyLua, From: "if bad then excuse(id, now) end", To: ""}},
			Test:  "TestABadHeartbeatIsNoSilence",
		},
		{
			Name: "NonsenseReachesPostgres", What: "a heartbeat of the year 9999 is stored in Postgres",
			Edits: []harness.Edit{{File: heardLua, From: "#at ~= 24 or at > latest", To: "#at ~= 24"}},
			Test:  "TestABadHeartbeatIsNoSilence",
		},
		{
			Name: "RoomByTheCounter", What: "room is judged by the state, whatever rows there are",
			Edits: []harness.Edit{{
				File: schemaSQL, From: "(SELECT count(*) FROM chat_sessions c\n                       WHERE c.mitra_id = mitra AND c.status IN ('active', 'pending_payment'))",
				To: "(SELECT a.active_sessions FROM mitra_availability a WHERE a.mitra_id = mitra)",
			}},
			Test: "TestRowsThatNoTriggerSawCountWhenASessionIsAccepted",
		},
		{
			Name: "LimitOfTheCaller", What: "a limit that was lowered is not seen until the caller has read it",
			Edits: []harness.Edit{{File: schemaSQL, From: "least(known, (SELECT", To: "coalesce(known, (SELECT"}},
			Test:  "TestALoweredLimitAppliesFromItsCommit",
		},
		{
			Name: "AGoneSettingHasItsDefault", What: "a row of app_config that is gone gives way to the default",
			Edits: []harness.Edit{{File: limitsGo, From: "\t\terr := errNoRow\n", To: "\t\tvar err error\n"}},
			Test:  "TestSettingsAreReadAndStoredByTheirNames",
		},
		{
			Name: "TruncateOfAnOlderSnapshot", What: "TRUNCATE counts by a snapshot that lacks what it removes",
			Edits: []harness.Edit{{
				File: schemaSQL, From: "IF current_setting('transaction_isolation') <> 'read committed' THEN", To: "IF false THEN",
			}},
			Test: "TestATruncateThatCannotBeCountedIsRefused",
		},
		{
			Name: "ALifeIsNeverOverInTheSearch", What: "the feed does not notice that Postgres recovered or was restored",
			Edits: []harness.Edit{
				{File: sourceFeedGo, From: "WHEN (SELECT life FROM now) THEN", To: "WHEN $3::text THEN"},
				{File: sourceFeedGo, From: "since.Connection != now.Connection", To: "false"},
				{File: feedGo, From: "another = f.life != nil && life != *f.life; another {", To: "another = false; another {"},
			},
			Test: theSearch, Of: searchDir,
		},
		{
			Name: "BeatByTheReplicasClockInTheSearch", What: "a heartbeat that Postgres keeps has the replica's time",
			Edits: []harness.Edit{{
				File: schemaSQL, From: "moment := clock_timestamp(); -- after all waiting\n    -- A heartbeat of a time",
				To: "moment := pg_catalog.clock_timestamp(); -- by the clock that the search gives the replicas",
			}},
			Test: theSearch, Of: searchDir,
		},
		{
			Name: "TheFallbackStandsStillInTheSearch", What: "while Redis is away nobody falls silent",
			Edits: []harness.Edit{{File: readGo, From: "time.Since(kept) >= s.StaleAfter &&", To: "time.Since(kept) < 0 &&"}},
			Test:  theSearch, Of: searchDir,
		},
		{
			Name: "BeatTakesNoVersionInTheSearch", What: "a heartbeat that Postgres keeps does not reach other replicas",
			Edits: []harness.Edit{{
				File: schemaSQL, From: "WHERE named OR n.is_online", To: "WHERE n.is_online",
			}},
			Test: theSearch, Of: searchDir,
		},
	}),
}

// found adds those that rows or the search have to find as well.
func found(all []harness.Mutant) []harness.Mutant {
	rows := map[string]string{
		"SeededWithoutItsToken": "FlushedWhileSeeding", "AppliedBeforeTheCommit": "PostgresKilled",
	}
	searched := []string{"OneBadHeartbeatStopsTheMirror", "BadKeysStay", "JudgementsAreLast", "RoomByTheCounter"}
	for _, m := range all {
		if row := rows[m.Name]; row != "" {
			all = append(all, harness.Mutant{Name: m.Name + "InTheWild", What: m.What, Edits: m.Edits, Row: row})
		}
		if slices.Contains(searched, m.Name) {
			m.Name, m.Test, m.Of = m.Name+"InTheSearch", theSearch, searchDir
			all = append(all, m)
		}
	}
	return all
}

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, r := range matrix() {
		rows = append(rows, r.name)
	}
	mutants.Fit(t, rows...)
}

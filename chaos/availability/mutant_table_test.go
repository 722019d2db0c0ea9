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
	readGo       = "read.go"
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
		tested("NoVersionGuard", "states are applied whatever version stands",
			applyLua, "  if new > old then\n    kind",
			"  if new > 0 then\n    kind",
			"TestStatesAreAppliedByVersionAlone"),
		{
			Name: "NoVersionGuardInTheWild", What: "states are applied whatever version stands",
			Edits: []harness.Edit{
				{File: applyLua, From: "  if new > old then\n    kind", To: "  if new > 0 then\n    kind"},
				{File: applyLua, From: "    if new > old then redis", To: "    if new > 0 then redis"},
			},
			Row: "WriterStoppedBetweenCommitAndApply",
		},
		tested("XmaxInTheFeed", "the feed goes on behind transactions that are not over",
			sourceFeedGo, "SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin",
			"SELECT pg_snapshot_xmax(pg_current_snapshot()) AS xmin",
			"TestTheFeedSeesAChangeThatCommitsLate"),
		{
			Name: "FeedGoesOnAfterARestart", What: "the feed takes another server's transactions for this one's",
			Edits: []harness.Edit{
				{File: sourceFeedGo, From: "WHEN (SELECT life FROM now) THEN", To: "WHEN $3::text THEN"},
				{File: sourceFeedGo, From: "since.Connection != now.Connection", To: "false"},
			},
			Test: "TestAServerThatIsBackAfterItsEndIsReadFromTheBeginning",
		},
		tested("AConnectionIsNoLife", "the end of the feed's connection is not noticed",
			sourceFeedGo, "since.Connection != now.Connection",
			"false",
			"TestWhateverMayBringOtherCommitsIsAnotherLife"),
		tested("OpenTransactionsAreReadAgain", "all since the oldest open transaction is read at each look",
			sourceFeedGo, "AND NOT pg_visible_in_snapshot(changed_xid, (SELECT since FROM now))",
			"",
			"TestAnOpenTransactionHasNoStateReadTwice"),
		tested("WritersDoNotOutbid", "a write that Redis takes for an old one is left to the next comparison",
			writeGo, "r.settle(ctx, found); err != nil {",
			"r.settle(ctx, found[:0]); err != nil {",
			"TestAWriteBehindLostCommitsIsInRedisWhenItIsAcknowledged"),
		tested("ReadsTrustAFeedThatIsBehind", "reads do not ask Postgres while the feed cannot be read",
			readGo, "if !known || a.Age > 0 {",
			"if !known {",
			"TestReadsAskTheSourceWhileTheFeedDoesNotKnow"),
		tested("ClocksAreNotCorrected", "times of two clocks are compared as they are",
			offlineGo, "c.skew = measured",
			"c.skew = 0",
			"TestTwoClocksAreComparedWhateverOursSays"),
		tested("JudgementsAreLast", "a heartbeat that was taken behind a judgement is overruled",
			applyLua, "kind = not keeps and is_alive(id, at) and 'alive' or 'behind'",
			"kind = 'behind'",
			"TestAHeartbeatThatIsKeptWhileACommitTakesItsTimeIsNotOverruled"),
		tested("SnapshotsDoNotPause", "a long computation loses its place to the next",
			snapshotGo, "computingLasts  = 10 *",
			"computingLasts  = 1 *",
			"TestSnapshotsThatTakeLongAreComputedByOneAtATimeAndPause"),
		tested("SnapshotsOutliveTheirTime", "a poll that comes late gets a snapshot of twice its time",
			snapshotGo, "snapshotServed = snapshotLasts + callTimeout",
			"snapshotServed = 2 * snapshotLasts",
			"TestASnapshotIsNotServedLongAfterItsTime"),
		tested("OneRowTakesAllConnections", "callers of a row that somebody has locked take every connection",
			"postgres/postgres.go", "config.MaxConns-half), lockedWaits}",
			"config.MaxConns-half), s.timeout}",
			"TestARowThatSomebodyHasLockedLeavesConnectionsForOthers"),
		tested("TheMarkIsNotRead", "a Redis that was set back while it runs is taken for what it was",
			feedLua, "if ARGV[i] == fed[3] and not back then",
			"if not back then",
			"TestARedisThatWasSetBackIsComparedBeforeItAnswers"),
		tested("NoRoomForAnotherFleet", "heartbeats of another fleet that are on their way do not count",
			offlineGo, "x.stale+x.room",
			"x.stale",
			"TestWhoMayHaveSentAHeartbeatToAnotherFleetStaysOnline"),
		tested("LongMembersStay", "a page of the mirror that is too long for a reply is never read",
			"scan.lua", "if #name > 64 or #value > 64 then",
			"if false then",
			"TestWhatSomebodyMadeLargeIsNotReadWhole"),
		tested("FeedMovesOnWhateverArrived", "the cursor moves before the states have arrived",
			feedGo, "\tbrought, err := f.reconciliation(newer, directly)",
			"\tf.cursor = next\n\tbrought, err := f.reconciliation(newer, directly)",
			"TestAWriteStandsThoughRedisIsAwayAndTheFeedBringsIt"),
		tested("TrueToTrueTakesNoVersion", "a statement that names is_online, and changes nothing, takes no version",
			schemaSQL, "WHERE named OR n.is_online",
			"WHERE n.is_online",
			"TestAStatementThatNamesIsOnlineTakesAVersionAlsoIfTheValueStays"),
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
		tested("NotSeededAnew", "a connection to Redis that begins anew is not noticed",
			settingsGo, "\t\t\tif again {",
			"\t\t\tif again && !begun {",
			"TestAConnectionThatBeginsAnewIsSeededThoughTheMirrorSeemsWhole"),
		tested("NoCutoffInPostgres", "Postgres does not ask its own heartbeats",
			schemaSQL, "AND s.is_online AND a.seen >= cutoff IS NOT TRUE",
			"AND s.is_online",
			"TestTheSilentGoOfflineAtTheVersionAtWhichTheyWereCondemned"),
		tested("NoFenceInPostgres", "Postgres does not ask for the version of the mark",
			schemaSQL, "ON a.mitra_id = c.id AND a.version = c.version",
			"ON a.mitra_id = c.id",
			"TestTheSilentGoOfflineAtTheVersionAtWhichTheyWereCondemned"),
		{
			Name: "NoWitness", What: "silence is judged though nobody has listened",
			Edits: []harness.Edit{
				{File: offlineGo, From: "page.listened < x.stale:", To: "page.listened < 0:"},
				{File: condemnLua, From: "if now - since < tonumber(stale) then", To: "if false then"},
			},
			Test: "TestNobodyGoesOffline",
		},
		tested("NoWitnessInTheScript", "the guard confirms though nobody has listened",
			condemnLua, "if now - since < tonumber(stale) then",
			"if false then",
			"TestALookThatHasAgedKeepsEverybody"),
		tested("NoSecondLook", "nobody looks at the silent again before the commit",
			offlineGo, "case a.Reowned > 0:",
			"case false:",
			"TestOneWhoComesBackBeforeTheCommitKeepsAllOfManyOnline"),
		tested("NoBreaker", "most may go offline at once",
			offlineGo, "\twave := len(x.silent) > 0 &&",
			"\twave := false &&",
			"TestAMassFailureHoldsOnceAndThenWhoIsSilentStillGoes"),
		tested("BreakerCountsTheSilentAlone", "the first of a wave go offline before the breaker holds",
			offlineGo, "x.late > x.online/2",
			"len(x.silent) > x.online/2",
			"TestAMassFailureHoldsBeforeTheFirstOfItsWaveGoesOffline"),
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
		tested("RerouteInTwoSteps", "a reroute's two states are applied one after the other",
			writeGo, "\t\tif err == nil && len(states) > 0 {\n\t\t\tm.applied(ctx, states...)",
			"\t\tfor _, one := range states {\n\t\t\tm.applied(ctx, one)",
			"TestARerouteIsSeenOnBothOrOnNeither"),
		tested("NobodyOutbids", "a Redis that is ahead of Postgres stays so",
			writeGo, "\tif len(ahead) == 0 {",
			"\tif len(ahead) >= 0 {",
			"TestAReconciliationNamesEachKindOfDriftAndHealsIt"),
		tested("AcceptDoesNotLookForRoom", "a mitra is given more sessions than it may have",
			schemaSQL, "THEN 'full' ELSE 'done' END",
			"THEN 'done' ELSE 'done' END",
			"TestAThousandAcceptsAtOnceFillEveryPlaceAndNoMore"),
		tested("AcceptDoesNotLockTheRoom", "the room is looked at before it is locked",
			schemaSQL, "IN (holder, mitra)\n      ORDER BY a.mitra_id FOR NO KEY UPDATE;",
			"IN (holder, mitra);",
			"TestAThousandAcceptsAtOnceFillEveryPlaceAndNoMore"),
		tested("RerouteLocksInAnotherOrder", "a reroute locks the later id first",
			schemaSQL, "      ORDER BY a.mitra_id FOR NO KEY UPDATE;",
			"      ORDER BY a.mitra_id DESC FOR NO KEY UPDATE;",
			"TestARerouteLocksStatesInTheirOrder"),
		tested("HeartbeatsGoBack", "an older heartbeat is stored over a newer one",
			schemaSQL, "WHERE h.moment <= s.last_heartbeat_at IS NOT TRUE",
			"WHERE true",
			"TestHeartbeatsAreStoredOnlyIfTheyAreNewer"),
		tested("ApplyTakesHeartbeatsBack", "Postgres' older heartbeat is written over that of Redis",
			applyLua, "if was < at then redis.call",
			"if at ~= '' then redis.call",
			"TestStatesAreAppliedByVersionAlone"),
		tested("OneBadHeartbeatStopsTheMirror", "a heartbeat of another type ends the script for all of its mitras",
			heardLua, "return redis.pcall('GETRANGE'",
			"return redis.call('GETRANGE'",
			"TestAnyKeyOfAnyTypeAndValueStopsNobodyElse"),
		tested("BadKeysStay", "nobody looks at the types of shared keys",
			fitLua, "if is[i] ~= 'none' and is[i] ~= wanted[i] then",
			"if false then",
			"TestAnyKeyOfAnyTypeAndValueStopsNobodyElse"),
		tested("SomebodysKeyIsTaken", "a key is unlinked though nothing says that it is the mirror's",
			fitLua, "local ours = ARGV[1] == '1' or",
			"local ours = true or",
			"TestAKeyOfAnotherTypeThatWasThereBeforeTheMirrorIsKeptAndNamed"),
		tested("ABadHeartbeatIsSilence", "who lost a heartbeat to nonsense is judged by an older one",
			applyLua, "if bad then excuse(id, now) end",
			"",
			"TestABadHeartbeatIsNoSilence"),
		tested("NonsenseReachesPostgres", "a heartbeat of the year 9999 is stored in Postgres",
			heardLua, "#at ~= 24 or at > latest",
			"#at ~= 24",
			"TestABadHeartbeatIsNoSilence"),
		tested("RoomByTheCounter", "room is judged by the state, whatever rows there are",
			schemaSQL, "(SELECT count(*) FROM chat_sessions c\n                       WHERE c.mitra_id = mitra AND c.status IN ('active', 'pending_payment'))",
			"(SELECT a.active_sessions FROM mitra_availability a WHERE a.mitra_id = mitra)",
			"TestRowsThatNoTriggerSawCountWhenASessionIsAccepted"),
		tested("LimitOfTheCaller", "a limit that was lowered is not seen until the caller has read it",
			schemaSQL, "least(known, (SELECT",
			"coalesce(known, (SELECT",
			"TestALoweredLimitAppliesFromItsCommit"),
		tested("AGoneSettingHasItsDefault", "a row of app_config that is gone gives way to the default",
			limitsGo, "\t\terr := errNoRow\n",
			"\t\tvar err error\n",
			"TestSettingsAreReadAndStoredByTheirNames"),
		tested("TruncateOfAnOlderSnapshot", "TRUNCATE counts by a snapshot that lacks what it removes",
			schemaSQL, "IF current_setting('transaction_isolation') <> 'read committed' THEN",
			"IF false THEN",
			"TestATruncateThatCannotBeCountedIsRefused"),
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

// tested is a mutant of one edit, which a test notices.
func tested(name, what, file, from, to, test string) harness.Mutant {
	return harness.Mutant{Name: name, What: what, Edits: []harness.Edit{{File: file, From: from, To: to}}, Test: test}
}

// found adds those that rows or the search have to find as well.
func found(all []harness.Mutant) []harness.Mutant {
	rows := map[string]string{
		"SeededWithoutItsToken": "FlushedWhileSeeding", "AppliedBeforeTheCommit": "PostgresKilled",
	}
	searched := []string{
		"OneBadHeartbeatStopsTheMirror", "BadKeysStay", "JudgementsAreLast", "RoomByTheCounter", "TheMarkIsNotRead",
	}
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

// Package availability answers which workers (mitras) can take work now: online, active, recently
// heard from and below their capacity. Postgres is the durable truth. Redis, or Valkey, holds a
// mirror that serves reads and takes the heartbeats.
//
//	m, err := availability.New(availability.Config{Source: source, Client: rdb, Control: ctl})
//	jan, err := janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg, Sweeps: m.Sweeps()})
//	go m.Run(ctx)                          // on every replica: one of them feeds Redis for all
//	go jan.Run(ctx)                        // one replica at a time sweeps
//	<-m.Ready()                            // or wait no longer than you like: reads fall back
//	beat, err := m.Heartbeat(ctx, id)      // Redis alone
//	s, err := m.Accept(ctx, session, id)   // the source first, then Redis
//	found, err := m.FindAvailable(ctx, 10) // found.From is where the answer came from
//
// # The rules
//
//  1. Postgres has one state row per mitra. Triggers keep it, under its row lock. Every change
//     takes a version. State rows are never deleted.
//  2. The version is the order. One script applies states to Redis, each only if its version is
//     newer. Writers commit in Postgres first and apply right after, best effort.
//  3. The feed returns rows whose transaction it has not seen, and waits for nobody. Anything that
//     ends its connection starts another life of Postgres: everything is repaired and compared. If
//     Redis is ahead because commits were lost, the feed and each writer that notices outbid it.
//  4. Whole or not: `mitras:seeded` exists only after a complete seed during which the feeding
//     replica's last mark stayed in Redis. A mark that is not the last one, another run id or
//     replication id, begin another life of Redis: everything is compared.
//  5. A heartbeat is never invented. Silence counts only once the janitor's witness has listened
//     for stale_after, heartbeats have been required that long, and stale_after is longer than the
//     pause between two of them.
//  6. Accepting a session is a conditional statement under the row lock: overbooking is
//     impossible. A session keeps its place while its customer pays for more time.
//
// # From a ping to a read
//
//	Mirror.Heartbeat         heartbeat.lua: refuses who is deactivated, or offline in a whole mirror;
//	                         otherwise SET mitra:heartbeat:{id}, by the server's clock
//	Mirror.askBehind         while Redis may lack commits, the source refuses, not Redis
//	Mirror.HeartbeatAtSource the caller's way if Redis does not answer: Source.Beat, then the feed
//	Mirror.mirrorHeartbeats  each HeartbeatInterval the leader copies them (beats.lua) to the source
//
// Meanwhile every replica looks at each Tick, and one feeds Redis for all:
//
//	Mirror.follow, feed.look feed.turn: feed.lua has the lease, and how recent all is (feed.heard)
//	feed.read                Source.Feed; reconciliation.deliver, Mirror.apply: apply.lua
//	feed.seed                compares everything, if the mirror is not whole; then `mitras:seeded`
//
// Somebody reads:
//
//	Mirror.FindAvailable     or Status, Reachable: Mirror.Settings, then read
//	Mirror.stale, judges     whether silence counts, as far as settings decide
//	Mirror.scanAvailable     findpage.lua, or statusHere: status.lua. Without `mitras:seeded` both
//	                         refuse. listened (witness.lua): whether Redis was heard for stale_after.
//	                         heard (heard.lua): the ping; before now - stale_after it is silence
//	Mirror.behind            if Redis may lack commits, Mirror.askBehind: the source wins
//	Mirror.fallback          if Redis does not answer: Source.Available, after Mirror.cutoff
//	Answer.From              where the answer came from
//
// One who stays silent goes offline, by the leader's sweep:
//
//	offline.pass             checkPass, readSettings, Pass.CheckHeld, checkNotes: silence counts
//	offlinePass.find         beats.lua, with the same heard and listened
//	offlinePass.wave         most fell at once: a hold, once
//	offlinePass.flip         Source.AutoOffline: one transaction, conditional on the versions
//	offlinePass.confirm      before its commit: Pass.Delete, guard.lua and condemn.lua judge all again
//	Mirror.revive            a ping accepted after that reverses it: Source.Revive
//
// # What is not guaranteed
//
//   - A read may be outdated when it arrives. Only the source decides, in Accept and Reroute.
//   - While neither a writer nor the feed reaches Redis, readers see old states.
//   - If another writer changes one of a reroute's two mitras at the same moment, readers see the
//     session with both mitras or with neither, for milliseconds or at worst a Tick.
//   - More than 250,000 mitras online are read from the source.
//   - Heartbeats that Redis loses are lost. The witness notices: nobody is judged before
//     stale_after has passed. The source's heartbeats are up to HeartbeatInterval old.
//   - If the source loses the commit that set a mitra offline, its earlier heartbeats in Redis are
//     gone as well.
//   - A mitra whose judgement is reversed was offline in Postgres for the length of that commit.
//   - After BeatNotOnline an app must go online again.
//   - Differences of a second or more between Redis' clock and the source's are corrected, as the
//     feeding replica measures them. Its own dates nothing. A heartbeat from a clock up to a day
//     ahead counts until that time; one further ahead is ignored.
//   - A Redis that evicts keys may lose parts of the mirror but not `mitras:seeded`, so its
//     maxmemory-policy must be noeviction. Reconciliation finds what is missing.
//   - A writer that was frozen while the source lost commits may apply a lost state. It remains
//     until a newer version or a reconciliation.
//   - While the mirror is not whole, a heartbeat of any id is kept: the caller checks the id.
//   - When stale_after is shortened, mitras without a recent enough heartbeat are silent at once.
//     When require_ping is turned on, the same holds for reads; going offline waits.
//   - Counters and heartbeats of an id that is in no set and no hash stay, unread.
package availability

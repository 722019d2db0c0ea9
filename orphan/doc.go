// Package orphan deletes keys that point at nothing, by rule: reservations of rooms that are gone,
// members of a queue that nobody waits in. The rules, of package rules, become sweeps of package
// janitor, under the same guard as everything else that Rollcall deletes.
//
//	all, err := rules.Parse(yaml)          // or Go structs; all faults at once, with their lines
//	set, err := orphan.New(orphan.Config{Rules: all, Client: rdb, Source: mongo, Layout: layout})
//	found, err := set.Plan(ctx)            // what would go, and why; deletes and writes nothing
//	jan, err := janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg, Sweeps: set.Sweeps()})
//	go jan.Run(ctx)
//
// # What may condemn
//
// Absence is not evidence. A candidate is deleted only if:
//
//  1. Its evidence is positive (Rule.GoneIf: a document states that it finished an hour ago), or it
//     lasts: no sign of life (Rule.KeepIf) for the whole of Rule.Grace.
//  2. The place that it is missing from is itself alive (Rule.UnlessLost). Otherwise the rule is
//     held, with reason reference_lost.
//  3. It is the same thing all that time.
//  4. It can be read: anything else is kept as unreadable.
//  5. Few fall at once. A pass deletes at most Rule.Cap candidates. If more than half of at least
//     20 candidates are newly condemned, the rule is held once, for a grace period, with reason
//     mass_failure. A backlog of known orphans does not count.
//  6. The guard agrees: lease, fence, witness, log record; see package guard.
//
// # The evidence of absence
//
// A chain of looks condemns a candidate; package proof states when it ends. All looks find no sign
// of life and the same thing, the first and the last are at least Rule.Grace apart, and no gap is
// too long. All times are the server's.
//
// Looks are planned A apart: the shorter of the grace and Config.Interval, but at least a second
// and 1/50 of the interval. A gap is too long above A + max(A, 1s). A sign that lapses for less
// than a grace therefore condemns nothing, unless the looks at both ends fall into two lapses. A
// look counts for A + max(A, 1s), at least 5 s; the deleting script refuses an older one.
//
// # What a sign is
//
// A sign is a question to a key, a field, a member, a channel, the candidate's own value, another
// key's JSON, or a document. Its answer is alive, not alive or unknown, which keeps the candidate.
// Unknown are an error, a missing document or field, no answer, a size that cannot be asked for,
// and a time before September 2001 or after 2286, since a zero value states nothing. A sign's name
// needs a variable.
//
// An age is a sign too. One taken from an expiry assumes how its writer sets it, so the candidate
// must also be condemned for MinAge.Over.
//
// # The same thing
//
// A key is compared by its type, expiry, number of elements and content, if it has at most 512
// elements and 64 KiB; same.lua does it, in the look and in the deleting script alike. A larger one
// is compared by type, expiry and number alone, and goes only into a bin, which can be undone;
// without Rule.Bin it is kept, as large. A member is compared by its score or value, and the expiry
// of a field. A stream that a consumer has read within two graces is in use.
//
// # From a candidate to its delete
//
//	sweep.Run                 a full pass each interval or on request, otherwise a look at the marked
//	pass.run                  Pass.CheckHeld: nothing holds sweeping, and nobody paused it
//	pass.begin                masters: the servers that are read
//	pass.settleLeft           ends intents that an earlier pass left
//	proof.Open                the marks, and whether their chain of looks goes on (open.lua)
//	pass.checkReferences      a lost place ends the chain, and holds the rule
//
// It looks at every candidate, or at those with a mark:
//
//	pass.lookAt, rule.walk    SCAN, shared with rules that look at the same time (walks.join);
//	                          walkMembers: the members of a key
//	pass.judge, rule.look     a page: types, readValues, signs, evidence, premised, ages, identify.
//	                          What Redis answered is an observation; questions without a command
//	                          that takes bounded time are put by ask.lua. Only Go judges them.
//	Book.Look                 what lives loses its mark at once
//	pass.end                  the servers again: if they changed, the pass condemns nothing
//	Book.Looked               marks the newly condemned; if too many fell at once, the rule is held
//
// What is condemned for its grace, in one chain, goes:
//
//	pass.reap                 the oldest first, at most Rule.Cap
//	pass.reapSome, rule.look  the last look finds the same fingerprint, or the mark goes
//	pass.itemOf               the observations that the key's own server can compare; standing adds
//	                          those of the worker's own keys
//	pass.stillThere           no server was restarted since the look, no place was lost
//	pass.note, Pass.Delete    guard.lua, ripe.lua, intend.lua: an intent takes the place of the mark
//	pass.moveAway             away.lua, on the key's own server, in one step: every answer is as it
//	                          was (same.lua), and the key is renamed into the bin, or the member
//	pass.settle, Pass.Delete  guard.lua, settle.lua: the intent ends, the delete is in the log
//	Set.removed               counts it, once
//	pass.dropBins             UNLINK, then drop.lua: at once, or when Rule.Bin is over
//
// On one server that step compares every command, also those about the worker's own keys: nothing
// can happen between last look and delete.
//
// # Related keys
//
// Each template of Rule.Related is a rule of its own, a companion: see rules.Companions. New makes
// them.
//
// # A Cluster
//
// Every master is scanned separately. A pass that has not read all of them, or during which slots
// moved, condemns nothing. Marks, log and guard are on one server, so Layout.Prefix has a hash tag.
// A key's own server compares within two seconds of the look; answers from other servers are of the
// last look.
//
// # What is not guaranteed
//
//   - A live thing that shows none of a rule's signs is an orphan to it.
//   - A thing that is made anew with the same content and expiry is the same thing. So is a large
//     value whose number of elements and expiry stay. A bin can restore it.
//   - The deleting script does not ask documents and channels again.
//   - On a Cluster, a sign on another server than the candidate's may come back within the two
//     seconds. A bin can restore a thing deleted then.
//   - Members of one key whose compact encoding has more than 256 KiB are not read: the pass fails.
//   - The embedded server, for trying out, does not delete a candidate that is not text.
//   - It needs Redis 7: PEXPIRETIME.
package orphan

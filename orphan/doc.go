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
// A chain of looks condemns a candidate; see package proof. All find no sign of life and the same
// thing, the first and the last are at least Rule.Grace apart, and no gap is too long. The last
// look comes right before the delete. All times are the server's.
//
// Looks are planned A apart: the shorter of the grace and Config.Interval, but at least a second
// and 1/50 of the interval. A gap is too long above A + max(A, 1s). A sign that lapses for less
// than a grace therefore condemns nothing, unless the looks at both ends fall into two lapses.
// Between two full passes the sweep looks only at marked candidates.
//
// The chain ends for all of a rule's candidates if a gap was too long, if a pass did not look at
// everything marked (it failed, it was held or paused, a reference or the source was away, a master
// of a Cluster was not read), if the rule's meaning changed (Category, Delete, Cap and Bin are not
// part of it), after a hold of the witness, if a server of a Cluster was restarted or failed over,
// and if the server's clock was set by two seconds or more.
//
// A pass held by mass_failure still looks at marked candidates. A look counts for A + max(A, 1s),
// at least 5 s, by the server's clock; the deleting script refuses an older one.
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
// # A pass
//
//	SCAN ──► look, in pipelines ──► marks in Redis ──► look again ──► intent ──► compare, move ──► settle
//	paged    each command's answer   first seen,       the ripe,      under      every answer      under
//	         is an observation       fingerprint       Cap at most    the guard  must be as seen   the guard
//
// The same walk in code: sweep.Run, pass.begin and lookAt (sweep.go), rule.walk (walk.go), look
// (look.go) with its steps (value.go, signs.go, references.go, identity.go), pass.judge and end
// (sweep.go), pass.reap, reapSome and take (reap.go), and dropBins (bin.go).
//
// A look records read commands, and questions that same.lua answers in bounded time, with their
// answers: observations. Only Go code judges them. The guard's server notes an intent for each ripe
// candidate. The key's own server repeats the commands that it has answered, and moves the key
// aside only if every answer is unchanged, in one atomic step. Then it is settled and counted. On
// one server that is every command, also those about the worker's own keys: nothing can happen
// between last look and delete.
//
// A rule has at most ten times Rule.Cap marks, with names of 4 MiB; further candidates are kept,
// with reason marks.
//
// # Related keys
//
// Each template of Rule.Related is a rule of its own, a companion: see rules.Companions. New makes
// them.
//
// # Walks and bins
//
// Rules that look at the same time share one SCAN. One that takes long, as for its database, goes
// on alone. A later pass unlinks what is in a bin once its time is over:
// it expires only a week after that, in case nobody does. An entry that cannot be read is logged
// and stays.
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

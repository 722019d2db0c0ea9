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
//  7. No other rule of the Set keeps it. All rules that cover a candidate must condemn it. A
//     related key that is another rule's candidate is left to that rule. One that another rule
//     relates to its own candidate stays as long as that candidate exists.
//
// # The evidence of absence
//
// A chain of looks condemns a candidate. All find no sign of life and the same thing, the first and
// the last are at least Rule.Grace apart, and no gap is too long. The last look comes right before
// the delete. All times are the server's.
//
// Looks are planned A apart: the shorter of the grace and Config.Interval, but at least a second
// and 1/50 of the interval. A gap is too long above A + max(A, 1s). A sign that lapses for less
// than a grace therefore condemns nothing, unless the looks at both ends fall into two lapses.
// Between two full passes the sweep looks only at marked candidates. Only full passes meet a key
// without its parent, so A is the interval there.
//
// The chain ends, and the grace starts again with the next look, if
//
//   - the gap was too long: no worker ran, the rule was not in RULES, leaders ran in dry mode,
//   - a pass ended before it had looked at everything marked or recorded what it found: it failed,
//     it was held or paused, the source or a reference was away, or it did not read every master of
//     a Cluster,
//   - the rule's meaning changed (Category, Delete, Cap and Bin are not part of it),
//   - since the mark was made, the witness had a hold, a reference was lost, or a server of a
//     Cluster was restarted or failed over,
//   - the server's clock was set: it moved two seconds more or less than the leader's own clock.
//
// A pass held by mass_failure still looks at marked candidates. A look counts for A + max(A, 1s),
// at least 5 s, by the server's clock; the deleting script refuses an older one. If the last look
// takes longer than half a second, its signs are asked again at its end, and it counts from then.
//
// # What a sign is
//
// A sign is a question to a key, a field, a member, a channel, the candidate's own value, or a
// document. Its answer is alive, not alive or unknown, which keeps the candidate. Unknown are an
// error, a missing document or field, no answer, and a time before September 2001 or after 2286,
// since a zero value states nothing. A sign's name needs a variable.
//
// An age is a sign too. One taken from an expiry assumes how its writer sets it, so the candidate
// must also be condemned for MinAge.Over.
//
// # The same thing
//
// A thing is compared by the type, expiry and content of its key, including the expiries of a
// hash's fields, the scores of a sorted set, and the groups and pending entries of a stream. A
// member is compared by its score or value, and the expiry of a field. The deleting script
// compares up to 64 KiB or 512 elements whole. Each look reads larger values in pieces of that
// size; the script then compares type, expiry, size, both ends, and pending entries. A stream
// that a consumer has read within two graces is in use. Beyond 8192 pieces, 64 groups or 1,000
// consumers, or if its type is unknown, a candidate is kept, with reason large.
//
// # A pass
//
//	SCAN or ZSCAN ──► look, in pipelines ──► marks in Redis ──► look again ──► guard ──► compare, delete
//	   paged         each command's answer      first seen,      the ripe,      one       every answer
//	                 is an observation          fingerprint      Cap at most    batch     must be as seen
//
// A look records read commands with their answers: observations. Only Go code judges them. The
// deleting script repeats the commands, and deletes a candidate only if every answer is unchanged,
// in one atomic step: nothing can happen between the last look and the delete.
//
// # Marks
//
// Each rule has a hash of marks: candidate -> first look of the chain (the server's ms),
// fingerprint. They survive a change of leader. A candidate that shows a sign of life is unmarked
// before anything else happens. A rule has at most ten times Rule.Cap marks; further candidates are
// kept, with reason marks.
//
// # Related keys
//
// Rule.Related is deleted with its parent: as many keys as fit in one script in the same step, the
// others later. Until all are deleted, Redis keeps a rest: the values that the rule read in the
// parent, which was counted. Related keys without a parent or a rest are a candidate of their
// own, judged by the same signs.
//
// # Walks and bins
//
// Rules that look at the same time share one SCAN. Nothing in a bin expires: a later pass unlinks
// it once its time is over. An entry that cannot be read is logged and stays.
//
// # A Cluster
//
// Every master is scanned separately. A pass that has not read all of them, or during which slots
// moved, condemns nothing. Marks, log and guard are on one server, so Layout.Prefix has a hash tag.
// Candidates are deleted in three steps: the guard's server records the intent, the key's own
// server compares and moves it away within two seconds of the look, and the intent is settled and
// counted. Things of removed rules stay in their bin for seven days.
//
// # What is not guaranteed
//
//   - A live thing that shows none of a rule's signs is an orphan to it.
//   - A thing that is made anew with the same content and expiry is the same thing. So is a large
//     value that is changed in the middle between the last look and the delete.
//   - The deleting script does not ask documents, channels and pieces of large values again.
//   - At most 10,000 related keys that only a pattern finds are deleted with a candidate, the
//     others later, counted with it.
//   - On a Cluster, a sign on another server than the candidate's may come back within the two
//     seconds. A bin can restore a thing deleted then.
//   - The embedded server, for trying out, does not delete a candidate that is not text.
//   - It needs Redis 7: PEXPIRETIME.
package orphan

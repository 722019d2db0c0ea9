// Package orphan deletes keys that point at nothing, by rule: reservations of rooms that are gone,
// members of a queue that nobody waits in, state of matches that a database calls finished. The
// rules become sweeps of package janitor, behind the same guard as everything else that Rollcall
// deletes.
//
//	rules, err := orphan.Parse(yaml)       // or Go structs; all faults at once, with their lines
//	set, err := orphan.New(orphan.Config{Rules: rules, Client: rdb, Source: mongo, Layout: layout})
//	found, err := set.Plan(ctx)            // what would go, and why; deletes and writes nothing
//	jan, err := janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg, Sweeps: set.Sweeps()})
//	go jan.Run(ctx)
//
// # What may condemn
//
// Absence is no evidence. A candidate goes only if all of this holds:
//
//  1. Its evidence is positive (Rule.GoneIf: a document says finished since an hour), or it lasts:
//     no sign of life (Rule.KeepIf), seen in two looks at least Rule.Grace apart by the server's
//     time, with no hold of the witness and no other answer in between.
//  2. The place that it is missing from is itself alive (Rule.UnlessLost). Else the rule is held,
//     with reason reference_lost.
//  3. It is the same thing as at the first look: its bytes, its digest, its score, and its expiry.
//     A thing that was changed, or made anew under the same name, is looked at from the beginning.
//     Of what is larger than 64 KiB or 512 elements, size and parts are compared: there a change
//     that leaves both as they were is not seen.
//  4. It can be read. What cannot is kept, and counted as unreadable.
//  5. Not too many fall at once. A pass deletes Rule.Cap candidates at most. If more than half of
//     at least 20 candidates are newly condemned, the rule is held once, for a grace period, with
//     reason mass_failure. A pass that fails has condemned nothing newly.
//  6. The guard agrees: lease, fence, witness, log record; see package guard.
//
// Whatever cannot tell keeps: a document that is missing, a database or a node that does not
// answer.
//
// # A pass
//
//	SCAN or ZSCAN ──► look, in pipelines ──► marks in Redis ──► look again ──► guard ──► compare, delete
//	   paged         each command's answer      first seen,      the ripe,      one       every answer
//	                 is an observation          fingerprint      Cap at most    batch     must be as seen
//
// A look sends read commands, and remembers each with its answer: an observation. Go code alone
// decides what the answers mean. The script that deletes sends the same commands again, and deletes
// a candidate only if each answer is the same as before, in one atomic step with the delete. So
// there is one evaluator of rules, and nothing can happen between the last look and the delete.
//
// Between two full passes the sweep looks at marked candidates alone, as soon as their grace is
// over.
//
// # Marks
//
// Marks are a hash for each rule: candidate -> first seen (the server's ms), fingerprint. They
// survive a change of leader. A mark counts only if, since it was made, the witness has listened,
// no reference was lost, the rule judges as it did, and no server of a Cluster was restarted or
// failed over. A candidate that shows a sign of life is unmarked before anything else happens.
// There are at most ten times Rule.Cap marks of a rule; further candidates wait, and are counted as
// kept, reason marks.
//
// # Related keys
//
// Rule.Related goes with its parent: as many keys as one script may take in the same step, and the
// others in steps behind it. Until all have gone Redis remembers the rest: what the rule had read in
// the parent, and that it is counted. A related key without its parent is found too: with a rest it
// is part of that one, else a candidate of its own, judged by the same signs.
//
// # Walks and bins
//
// Rules that look at the same time share one SCAN. Nothing in a bin expires: the pass that comes
// when its time is over unlinks it.
//
// # A Cluster
//
// Every master is scanned by itself. A pass that has not read all of them, or in which slots moved,
// condemns nothing. Marks, log and guard are on one server, so Layout.Prefix has a hash tag. What
// is on another goes in three steps: the intent is noted behind the guard, the key's own server
// compares and moves it away within two seconds of the look, and the intent is settled and counted.
//
// # What is not guaranteed
//
//   - A rule is as good as its signs: what lives and shows none of them is an orphan to it.
//   - Of a collection with more than 512 elements, and of a text of more than 64 KiB, not
//     everything is compared: its type, its size, its expiry, and some parts.
//   - With a candidate at most 10,000 related keys go that only a pattern finds. The rest goes
//     later, and is counted with it.
//   - On a Cluster a sign on another server than the candidate's may have come back within the two
//     seconds. What goes then can be restored, if the rule has a bin.
//   - On the embedded server, which is for trying out, a candidate that is no text does not go.
//   - It needs Redis 7: PEXPIRETIME.
package orphan

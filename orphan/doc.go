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
// Absence is not evidence. A candidate is deleted only if all of this holds:
//
//  1. Its evidence is positive (Rule.GoneIf: a document states that it finished an hour ago), or it
//     lasts: no sign of life (Rule.KeepIf) for the whole of Rule.Grace.
//  2. The place that it is missing from is itself alive (Rule.UnlessLost). Otherwise the rule is
//     held, with reason reference_lost.
//  3. It is the same thing all that time.
//  4. It can be read. Anything else is kept, and counted as unreadable.
//  5. Few fall at once. A pass deletes Rule.Cap candidates at most. If more than half of at least
//     20 candidates are newly condemned, the rule is held once, for a grace period, with reason
//     mass_failure. Only candidates that could be condemned newly count: those that show a sign
//     of life, and those that have just lost it. A backlog of known orphans does not.
//  6. The guard agrees: lease, fence, witness, log record; see package guard.
//  7. No other rule of the Set keeps it. A candidate of several rules has to be condemned by all of
//     them. A related key that is a candidate of another rule is left to that rule, and one that is
//     related by another rule, too, stays as long as that rule's candidate exists.
//
// A missing document, and a database or node that does not answer, keep.
//
// # The evidence of absence
//
// A candidate is condemned by a chain of looks. All of them find no sign of life and the same
// thing, the first and the last are at least Rule.Grace apart, and no gap between two of them is
// too long. The last one is made at the delete. All times are the server's.
//
// Looks are planned A apart: the shorter of the grace and Config.Interval, at least a second and
// 1/50 of the interval. A gap is too long if nobody looked for longer than A + max(A, 1s).
// A sign that lapses for less than a grace therefore condemns nothing, unless the looks at both
// ends fall into two lapses. Only full passes meet a key without its parent, so A is the interval
// there. A grace may be shorter than the interval: marked candidates are looked at between full
// passes.
//
// The chain ends, and the grace begins anew with the next look, if
//
//   - nobody looked for too long: no worker ran, the rule was out of RULES, leaders were dry,
//   - a pass broke off before it had looked at everything marked: it failed, it was held or paused,
//     the source or a reference was away, it did not read every master of a Cluster,
//   - the rule means something else. Category, Delete, Cap and Bin leave its meaning as it is,
//   - the witness had a hold, a reference was lost, or a server of a Cluster was restarted or
//     failed over, since the mark was made,
//   - the server's clock was set: it moved two seconds more or less than the leader's own clock.
//
// A pass that is held by mass_failure still looks at what is marked. A look counts for A + max(A,
// 1s), at least 5 s, by the server's clock; the script that deletes refuses an older one. If the
// last look takes longer than half a second, as with large values, its signs are asked once more at
// its end, and it counts from then.
//
// # What a sign is
//
// A sign is a question about this one candidate to a key, a field, a member, a channel, the
// candidate's own value, or a document. It has three answers: alive, not alive, and unknown, which
// keeps. An error is unknown, and so are a missing field, and a time before September 2001 or after
// 2286: zero values are not statements. A sign's name needs a variable.
//
// An age is a sign too. One that is taken from an expiry assumes what its writer does. So such a
// candidate has to be condemned for MinAge.Over as well.
//
// # The same thing
//
// The type, the expiry and the content of a key. Of a hash also the expiries of its fields, of a
// sorted set the scores, of a stream its groups and what is pending in them. Of a member its
// score or value, and the expiry of a field. Up to 64 KiB or 512 elements are compared whole, in
// the script that deletes. Larger values are read whole by each look, in pieces of that size; the
// script then compares type, expiry, size, both ends, and what is pending. A stream that a
// consumer has read within two graces is in use. Beyond 8192 pieces, 64 groups, 1,000 consumers, or
// of an unknown type, a candidate cannot be compared: it is kept, with reason large.
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
// Marks are a hash for each rule: candidate -> first look of the chain (the server's ms),
// fingerprint. The rule's state has when the last looks ended. Both survive a change of leader. A
// candidate that shows a sign of life is unmarked before anything else happens. There are at most
// ten times Rule.Cap marks of a rule; further candidates wait, and are counted as kept, reason
// marks.
//
// # Related keys
//
// Rule.Related goes with its parent: as many keys as one script may take in the same step, and the
// others in later steps. Until all are deleted, Redis keeps a rest: what the rule had read in the
// parent, and that it is counted. A related key without its parent is found too: with a rest it
// is part of that one, else a candidate of its own, judged by the same signs.
//
// # Walks and bins
//
// Rules that look at the same time share one SCAN. Nothing in a bin expires: the pass that comes
// when its time is over unlinks it. An entry that cannot be read is logged, and stays.
//
// # A Cluster
//
// Every master is scanned by itself. A pass that has not read all of them, or in which slots moved,
// condemns nothing. Marks, log and guard are on one server, so Layout.Prefix has a hash tag. What
// is on another goes in three steps: the intent is noted behind the guard, the key's own server
// compares and moves it away within two seconds of the look, and the intent is settled and counted.
// The first rule of the Set also settles the intents of rules that are not in use any more. What
// they moved away stays in their bin for seven days.
//
// # What is not guaranteed
//
//   - A rule is as good as its signs: what lives and shows none of them is an orphan to it.
//   - A thing that is made anew with the same content and expiry is the same thing. So is a large
//     value that is changed in the middle between the last look and the delete.
//   - Documents, channels and pieces of large values are not asked again in the deleting script.
//   - With a candidate at most 10,000 related keys go that only a pattern finds. The rest goes
//     later, and is counted with it.
//   - On a Cluster a sign on another server than the candidate's may have come back within the two
//     seconds. What goes then can be restored, if the rule has a bin.
//   - On the embedded server, which is for trying out, a candidate that is no text does not go.
//   - It needs Redis 7: PEXPIRETIME.
package orphan

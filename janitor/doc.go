// Package janitor sweeps out of Redis what dead replicas left behind. Every replica runs one; the
// one that holds a Redis lease sweeps. All contend for it and listen, so that silence means
// something; with Config.Contend most of them do so at a lower price.
//
//	ctl := redis.NewClient(lease.Options(opt)) // for the lease, ticks and heartbeats
//	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl})
//	jan, err := janitor.New(janitor.Config{
//		Client: rdb, Control: ctl, Registry: reg,
//		Sweeps: []janitor.Sweeper{mine}, // further kinds of cleaning, if there are any
//	})
//	go reg.Run(ctx)
//	go jan.Run(ctx)                                     // contends; sweeps while it leads
//	reports, err := jan.Sweep(ctx, janitor.Request{})   // a pass now, on the leader
//
// # What decides
//
// The server does, at the instant of the delete. What a sweep finds and judges here is only a
// suspicion; guard.Guard judges it again in one atomic step: the lease still holds this term's
// token, no newer term has begun, Redis has been listened to for GRACE without a hold, the leader
// can see its own heartbeat, the owner's is absent, the entry still names that owner. A janitor
// that was paused, cut off or replaced can therefore delete nothing that a correct one would not;
// leadership is for economy.
//
// # A pass
//
// A sweep finds candidates, judges their owners, and deletes the condemned:
//
//	find (HSCAN, SSCAN, SCAN, a query) ──► Pass.Liveness ──► Pass.Delete ──► guard ──► log, metrics
//	      paged and paced, Pass.Call        each owner         one batch in flight a term
//	                                        once a pass
//
// The janitor knows instances and their heartbeats, and nothing of what is swept. The registry
// brings two sweeps, see registry.Registry.Sweeps. Further kinds are handed in by Config.Sweeps.
// What a sweep may conclude from, and what not, stands with Sweeper.
//
// A pass ends in one of four ways:
//
//	done    nothing is left to do
//	held    silence is no evidence now (gap, restarted, redis_evicting, redis_refusing, settings,
//	        self_check, mass_failure), or somebody paused sweeping; not a failure: nothing is deleted
//	        until it is over
//	failed  Redis, or what the sweep asks, gave an error; the next pass comes later each time
//	lost    the term ended under it
//
// # Pace
//
// All calls of all sweeps go through one gate, one at a time. It keeps them to Config.RedisShare of
// any second, and takes less while others suffer: package internal/pacing has the rules.
//
// # A term
//
//	contending ──lease won──► opening ──log opened, own heartbeat seen,──► sweeping
//	    ▲                       │            roster read                       │
//	    └──────── term over: lease lost, FENCED, resigned, Run's ctx ended ────┘
//
// Opening writes the record `<epoch>-0` into the log: from then on no batch of an older term can be
// recorded, and what cannot be recorded is not deleted. Each sweep has a loop of its own, so that a
// long full scan does not delay the quick way; all of them share one reaper and one share of Redis'
// time. A leader whose own heartbeat stays away for GRACE/2, or whose full scan has failed for
// three intervals, resigns and cools down for a lease TTL: another may see Redis better.
//
// # Counted once
//
// A batch whose reply was lost is asked for again by its id before any other of its term; the
// server answers what it did the first time. If the term ends first, its fate is looked up in the
// log, by the witness' ticks, also when not leading. So teltonika_registry_janitor_evicted_total
// equals what the server deleted in this process' name, exactly, once the fates of all batches are
// known (Status.Unsettled is 0).
//
// # The breaker
//
// When most owners fall silent at once without a goodbye, the fault is more likely ours than
// theirs: the witness starts anew, once, and not again before 2 GRACE have passed. Beats are not in
// step, so owners whose next beat is overdue count as well. The heartbeats are read again for that
// after each death. See breaker for the rule. An owner stays on the roster until its index was swept, or until a full scan of this
// term found nothing of it: the next leader has to know which owners fell.
//
// # What is not guaranteed
//
//   - Two janitors may believe that they lead, and sweep beside one another. That wastes work and
//     deletes nothing wrong.
//   - An owner that lives but has been silent for a whole TTL is dead for everybody here. It heals
//     when it beats again.
//   - The breaker knows owners by the roster. Owners that write no roster it knows by full scans:
//     the first of a term meets them all before it sweeps any of them.
//   - If a fleet has two settings and somebody deletes the witness, the larger are forgotten.
//   - A process that dies takes its counters along; the log and the total beside it stay exact. A
//     log that was trimmed (Config.LogBytes) before a fate was looked up in it leaves that one
//     batch uncounted here; a line in the log says so.
//   - The log is as large as Config.LogBytes says only where Redis says how much it takes. Else it
//     is kept to a number of records; where it may not be trimmed, it grows.
//     WitnessStatus.ChecksOff says which.
//   - A request that was held up on its way while the leader, or a client that retries, asked again
//     and was refused, may land late. It is counted unless a hundred later batches were refused
//     meanwhile. The log and the total have it in any case.
//   - A key of another type in place of an index is left alone, and named in the log. Its owner's
//     entries go by the full scan.
//   - A sweep that deletes outside Redis is fenced only by what it makes of Pass.Epoch.
package janitor

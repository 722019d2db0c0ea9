// Package janitor removes from Redis what dead replicas left. Every replica runs one and listens,
// so that silence means something; the holder of a Redis lease sweeps.
//
//	ctl := redis.NewClient(lease.Options(opt)) // for the lease, ticks and heartbeats
//	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl})
//	jan, err := janitor.New(janitor.Config{
//		Client: rdb, Control: ctl, Registry: reg,
//		Sweeps: []janitor.Sweeper{mine}, // further sweeps, if any
//	})
//	go reg.Run(ctx)
//	go jan.Run(ctx)                                     // contends; sweeps while it leads
//	reports, err := jan.Sweep(ctx, janitor.Request{})   // one pass now, on the leader
//
// # The server decides
//
// The janitor's verdicts are only suspicions. At the instant of the delete, guard.Guard judges
// again in one atomic step, so a janitor that was paused, cut off or replaced can delete nothing
// that a correct one would not. Leadership only saves work.
//
// # A pass
//
// A sweep finds candidates, judges their owners, and deletes the condemned:
//
//	find (HSCAN, SSCAN, SCAN, a query) ──► Pass.Liveness ──► Pass.Delete ──► guard ──► log, metrics
//	      paged and paced, Pass.Call        each owner         one batch in flight a term
//	                                        once a pass
//
// The janitor knows instances and their heartbeats, but not what is swept. The registry brings two
// sweeps, Config.Sweeps others. Sweeper documents what counts as evidence.
//
// A pass ends in one of four ways:
//
//	done    nothing is left to do
//	held    silence is not evidence now (a hold of the witness), or sweeping is paused
//	failed  Redis, or what the sweep queries, returned an error; the next pass is delayed
//	lost    the term ended
//
// # Pace
//
// All calls of all sweeps go through one gate, one at a time; see package janitor/internal/pacing.
//
// # A term
//
//	contending ──lease won──► opening ──log opened, own heartbeat seen,──► sweeping
//	    ▲                       │            roster read                       │
//	    └──────── term over: lease lost, FENCED, resigned, Run's ctx ended ────┘
//
// Opening writes the record `<epoch>-0` into the log, after which no batch of an older term can
// delete. Each sweep has its own loop, so that a long full scan does not delay the quick way. A
// leader whose own heartbeat is missing for GRACE/2, or whose full scan has failed for three
// intervals, resigns and cools down for a lease TTL: another may reach Redis better.
//
// # Counted once
//
// A batch whose reply was lost is sent again under its id before any other of its term, and the
// server repeats its first answer. If the term ends first, the witness' ticks look its fate up in
// the log. So Status.Evicted equals exactly what the server deleted for this process once all fates
// are known (Status.Unsettled is 0).
//
// # The breaker
//
// If most owners fall silent at once without a goodbye, the fault is probably ours: the witness
// restarts, at most once per 2 GRACE; see breaker. An owner stays on the roster until its index was
// swept, or a full scan of this term found nothing of it: the next leader must know which owners
// fell.
//
// # What is not guaranteed
//
//   - Two janitors may believe that they lead. That wastes work but deletes nothing wrongly.
//   - A live owner that was silent for a whole TTL counts as dead. It heals when it beats again.
//   - The breaker knows owners that write no roster only by full scans: the first of a term meets
//     them all before it sweeps any.
//   - A process that dies takes its counters along, and a log trimmed before a batch's fate is
//     looked up leaves that batch uncounted here, which is logged. The log and its total stay
//     exact.
//   - The log keeps to Config.LogBytes only if Redis reports its size, otherwise to a number of
//     records; if trimming is refused, it grows.
//   - A refused batch may land late, by a delayed request. It is counted unless a hundred later
//     batches were refused meanwhile.
//   - A key of another type in place of an index is logged and left alone. The full scan deletes
//     its owner's entries.
package janitor

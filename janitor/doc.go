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
// # From a registration to its sweep
//
// A device connects, and its replica registers its IMEI:
//
//	registry.Registry.Register   the claim; register.lua writes, in one step, the entry into the hash
//	                             connections:registry, the IMEI into the owner's index, the owner
//	                             into the roster, its heartbeat (PX TTL), and its record into
//	                             janitor:beats. beat.lua renews both each INTERVAL.
//
// Each replica runs a Janitor, which contends and listens, whether it leads or not:
//
//	Janitor.Run                  runs these two
//	lease.Elector.Run            the contender: takes the lease (redsync, on this one server), renews
//	                             it, and calls Janitor.lead for a term
//	Janitor.listen               ticks the witness: Redis was awake, and the same server
//
// One server, not a quorum, is right here: what the lease guards lies on that same server. If the
// server is gone, so is all that a second leader could delete; and a second leader deletes nothing
// wrong, since guard.lua compares the lease's token, and the log's rising ids, in the step that
// deletes. The lease only saves work.
//
// The replica dies: its heartbeat expires, its record stays. The leader, in its term:
//
//	Janitor.lead                 termState.open writes the term's record into the log, and reads once
//	loop.run, termState.pass     a pass of each sweep, on its interval or on request
//
// finds the IMEI in one of two ways. The quick way, each second (quickway.go):
//
//	quickWay.Run, Pass.roster    owners.read: all records and the roster, one script (guard.Read)
//	guard.Members                the dead owner's index, SSCAN page by page
//
// The full scan, for entries without an index (fullscan.go):
//
//	fullScan.Run                 scan.walk: HSCAN of connections:registry, page by page
//	Pass.Liveness                the owners of a page. Who has a fresh record lives; for the others
//	                             Janitor.heartbeats asks, at most Config.ExistsConcurrency requests
//	                             at a time, 16 heartbeats each
//
// Either way:
//
//	owners.verdict               doubt.Record.Verdict: silent for its TTL, and nothing speaks against
//	batcher.add, Pass.Delete     a batch of one owner's IMEIs
//	reaper.reap, owners.evidence one batch at a time, with the record that the leader has read
//	guard.Do                     guard.lua judges again, and evict.lua deletes each entry that still
//	                             names the owner, in the same atomic step as the log's record
//	ledger.answered              counts it, once
//	Pass.forget                  the quick way's end: the owner leaves the roster, its index goes
//
// # The server decides
//
// The janitor's verdicts are only suspicions. At the instant of the delete, guard.Guard judges
// again in one atomic step, so a janitor that was paused, cut off or replaced can delete nothing
// that a correct one would not.
//
// # A pass
//
// The janitor knows instances and their heartbeats, but not what is swept. The registry brings two
// sweeps, Config.Sweeps others. Sweeper documents what counts as evidence. A pass ends in one of
// four ways:
//
//	done    nothing is left to do
//	held    silence is not evidence now (a hold of the witness), or sweeping is paused
//	failed  Redis, or what the sweep queries, returned an error; the next pass is delayed
//	lost    the term ended
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
// intervals, or whom a former primary answers, resigns and cools down for a lease TTL: another may
// reach Redis better.
//
// # Counted once
//
// A batch whose reply was lost is sent again under its id before any other of its term, and the
// server repeats its first answer. If the term ends first, the witness' ticks look its fate up in
// the log. So Status.Evicted equals exactly what the server deleted for this process once all fates
// are known (Status.Unsettled is 0).
//
// # What is not guaranteed
//
//   - Two janitors may believe that they lead. That wastes work but deletes nothing wrongly.
//   - A live owner that was silent for a whole TTL counts as dead. It heals when it beats again.
//   - The leader knows owners that write no records only by full scans.
//   - A process that dies takes its counters along, and a log trimmed before a batch's fate is
//     looked up leaves that batch uncounted here, which is logged. The log and its total stay
//     exact.
//   - The log keeps to Config.LogBytes only if Redis reports its size, otherwise to a number of
//     records; if trimming is refused, it grows.
//   - A key of another type in place of an index is logged and left alone. The full scan deletes
//     its owner's entries.
package janitor

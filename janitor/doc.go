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
//	registry.Registry.Register  a device connects: its claim goes into the table of this replica
//	registry.Registry.write     a batch. register.lua writes in one step: the entry, into the hash
//	                            connections:registry, the IMEI, into the owner's index, the owner,
//	                            into the roster, its heartbeat (PX TTL), and its record, into
//	                            janitor:beats. beat.lua renews the last two each INTERVAL.
//
// The replica dies: its heartbeat expires, its record stays. All others run, all the time:
//
//	Janitor.Run, listenOnce     tick.lua: the witness notes that Redis was awake, and the same server
//	lease.Elector.Run           contends for the lease, and calls Janitor.lead for a term
//
// The leader opens its term, and runs a loop for each sweep:
//
//	termState.open              open.lua writes the term's record into the log; a first reading
//	loop.run, termState.pass    a pass, on the sweep's interval or on request: Pass.run, Sweeper.Run
//
// The quick way, each second, finds the IMEI by its owner (quickway.go):
//
//	quickWay.find, owners.read  guard.Guard.Read: all records and the roster, by reading.lua
//	Janitor.heartbeats          PTTL, of owners that look silent or write no records
//	owners.verdict              doubt.Record.Verdict: silent for its TTL, and nothing else explains it
//	Pass.CheckHeld              nothing holds sweeping, and nobody paused it
//	quickWay.sweep              guard.Members: the dead owner's index, SSCAN page by page
//
// The full scan, if it can find something (due.why), finds the owner by the IMEI (fullscan.go):
//
//	fullScan.Run, scan.walk     guard.Fields: connections:registry, HSCAN page by page
//	scan.page, Pass.Liveness    the same verdicts, on the owners of a page: owners.judged
//
// Either way:
//
//	batcher.add, Pass.Delete    a batch of one owner's IMEIs
//	reaper.reap                 one batch at a time, with the record that was read: owners.evidence
//	guard.Guard.Do              guard.lua judges again, and evict.lua deletes each entry that still
//	                            names the owner, in the same atomic step as the log's record
//	ledger.answered             counts it, once
//	Pass.forget                 forget.lua: the owner leaves the roster, its index goes (quick way)
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

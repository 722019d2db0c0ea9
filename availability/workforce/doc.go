// Package workforce simulates mitras, a dispatcher and customers, who send requests to replicas of
// the program availability over HTTP:
//
//	force, err := workforce.New(workforce.Config{Mitras: 100, Targets: urls, Secret: s, Backend: db})
//	...
//	go force.Run(ctx) // until ctx ends
//	fmt.Println(force.Counts().Online, "apps are online, as they know it")
//
// # An app's life
//
//	started, at a time of its own within Config.Ramp
//	   │
//	   ▼
//	go online, until it is acknowledged ◄─────────────────┐
//	   │                                                  │
//	   ▼                                                  │
//	heartbeat each Config.Interval ──── 409, not online ──┤
//	   │              │                                   │
//	   │ rests        │ dies without a word               │
//	   ▼              ▼                                   │
//	go offline    nothing is sent ──── comes back ────────┤
//	   └──────────────────────────────────────────────────┘
//
// A request without an answer, or with a server failure, is sent again to another replica. The
// dispatcher gives each session to an available mitra, moves some, and ends them. Customers poll
// whether anybody is available.
//
// # What is known
//
// Each app keeps a book of what was acknowledged to it, and when: 16 bytes per heartbeat. [Truth]
// compares the books with Postgres and Redis, and their times with the servers', so its verdict is
// only valid if their clocks differ by far less than `stale_after_seconds`.
package workforce

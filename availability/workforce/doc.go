// Package workforce simulates mitras, and the dispatcher and customers who look for them. It
// sends requests to replicas of the program availability over HTTP, as real ones do:
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
// A request without an answer, or with a server failure as its answer, is sent again to another
// replica. Each of these requests may be repeated.
//
// A dispatcher finds mitras for sessions, as the rest of a service would: it gives each session
// to an available mitra, moves some sessions to another one, and ends them. Customers poll
// whether anybody is available.
//
// # What is known
//
// Each app keeps a book of what was acknowledged to it, and when. [Truth] compares these books
// with Postgres and Redis. It compares their times with the servers' times, so its verdict is
// only valid if their clocks differ by far less than `stale_after_seconds`.
//
// A heartbeat takes 16 bytes of the book for as long as the simulation runs.
package workforce

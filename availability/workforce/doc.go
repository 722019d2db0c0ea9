// Package workforce is a number of simulated mitras and of those who ask for them. It speaks to
// replicas of the program availability over HTTP, as real ones do:
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
// A request that gets no answer, or the answer that the server failed, is sent again, to another
// replica. Each of these requests may be made twice.
//
// A dispatcher looks for mitras for sessions, as the rest of a service would: it gives a session to
// one of those who are available, moves some of them to another, and ends them. Customers ask
// whether somebody is available.
//
// # What is known
//
// Each app keeps a book of what was acknowledged to it, and when. [Truth] compares these books with
// Postgres and with Redis. Times are compared with those of the servers: the verdict means
// something only if their clocks differ by far less than `stale_after_seconds`.
//
// A heartbeat costs 16 bytes of the book for as long as the simulation runs.
package workforce

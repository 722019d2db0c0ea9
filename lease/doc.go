// Package lease elects one leader among many processes by a Redis key that expires, and tells the
// leader, in time, when it no longer is one.
//
//	client := redis.NewClient(lease.Options(opt)) // behind Sentinel: lease.FailoverOptions
//	elector, err := lease.New(lease.Config{Client: client, Key: "jobs:leader", Instance: id})
//	err = elector.Run(ctx, func(ctx context.Context, term *lease.Term) error {
//		// What only one should do goes here, for as long as ctx lives.
//		// What must never happen twice is written under term.Epoch(), a number
//		// that grows from term to term.
//		return work(ctx, term.Epoch())
//	})
//
// # What is authoritative
//
// Redis is. The key holds `<instance>/<random>`, a token that names one attempt to win it and is
// never used twice. The process whose token stands there holds the lease. Renewal and release
// compare that token, never a name, so that a process can neither prolong nor end a lease that has
// become another's. What a process believes about itself is only a trust window, which is always
// shorter than the lease:
//
//	trusted until = when the attempt that won or last renewed the lease began
//	                + TTL - TTL/10
//
// The beginning is read from the monotonic clock before the request is sent; the key's TTL starts
// when the server gets to it, later. So the key outlives the window, however slow the reply was and
// even if there is none. A tenth of the TTL is left for clocks that do not run alike.
//
// # States
//
//	                     free, won, epoch drawn
//	┌──► campaigning ─────────────────────────────► leading ──┐
//	│    an attempt when the lease can expire,      renew every TTL/3,
//	│    at once after a release                    after a failure every TTL/20
//	│                                                         │ window over · taken ·
//	│  lead returned nil, or the term                         │ Resign · lead returned ·
//	│  was lost or resigned                                   ▼ Run's context ended
//	└───────────────────────────────────────────── leaving: cancel, join, release
//	                                                          │ lead failed, or Run's
//	                                                          ▼ context ended
//	                                                        Run returns
//
// A waiter that sees a lease which is renewed every TTL/3 reads it again after four fifths of a TTL
// on average: it is told of a release. It reads every TTL/5 ± 20 % while it is not subscribed,
// after an error, and while the lease may never end. A release whose announcement was lost is found
// when the lease could have expired.
//
// # Reserves
//
// Where many contend, Config.Contend makes most of them reserves. A reserve looks at the lease once
// a TTL, in one pipeline with the other reserves of its client, and once more within TTL/3 after
// the lease can have expired. It takes a lease that it has seen free for TTL/3 to TTL/2, so that
// those that contend first may be faster. If all of those die at once, a reserve leads within
//
//	TTL (until the lease expires) + TTL/3 (until it looks) + TTL/2 = 11/6 TTL
//
// and what its calls take. A release wakes it, and it takes the lease TTL/3 to TTL/2 later.
//
// # Leaving
//
// Leaving has one order, always: the term's context is cancelled, the work is joined, the lease is
// released. While the work finishes the lease is renewed, so that the successor does not start
// beside it, but for one TTL at most; then the lease is left to lapse, and Run keeps waiting for
// the work. Work that has not returned a minute after its term is the one thing logged as an error.
// Releasing is tried three times; if Redis cannot be reached the TTL releases the lease.
//
// # The term's context
//
// It ends no later than the trust window does, by a timer that waits for no reply, also when Redis
// hangs. [context.Cause] tells why: [ErrLost] with its reason, [ErrResigned], or what ended the
// context given to Run. [Term.Valid] does not wait for the timer either: it compares clocks, so
// that a process woken from a pause of an hour says at once that it does not lead.
//
// # The epoch
//
// Each term has a fencing number, higher than that of every earlier term:
//
//	max(previous + 1, server time in µs, highest epoch met + 1)
//
// drawn by one script that first checks that the lease still holds the term's token. The previous
// one is stored beside the lease; should a failover lose it, server time and the memory of the
// electors keep the numbers rising.
//
// A number more than 366 days ahead of the server's clock, stored or remembered, is damage, as is
// any other text. The epoch is then drawn from the clock, so that an overwritten key cannot end all
// terms. The price: if a clock was ahead by more than that and is corrected, the numbers fall once.
// Code that relies on the epoch should therefore check the lease's token too, as package guard
// does.
//
// # What is not guaranteed
//
// Two processes can believe that they lead at the same time. A failover of Redis may lose the key;
// an operator may delete it; a process may be stopped between asking [Term.Valid] and acting; a
// machine's monotonic clock may stand still while it is suspended. The lease makes this rare and
// short. What must never happen twice, or never late, has to be checked where it happens: by the
// token, if it happens in the same Redis, or by the epoch.
//
// The TTL should be the same for all contenders. A live holder with a longer one keeps its lease:
// its expiry falls until it renews. A waiter caps a lease at its own TTL only if that has no
// expiry, or one that does not fall, for a whole TTL; a key of another type too. A lease that a
// dead holder left with a longer TTL, or that somebody wrote by hand with one, lasts for that TTL.
//
// A clock of the server that goes back prolongs what is left of a lease by as much. A living holder
// mends that when it renews. If the holder died, a waiter that saw the lease before caps it after a
// TTL, where the step was longer than twelve TTLs. After a shorter one the lease may end by itself,
// within as long. It lasts to its end, however distant, where no waiter saw it before the step.
//
// On a Redis Cluster use [ClusterOptions]. All keys of a lease are in one slot; while that moves,
// and until a replica has taken over from a master that died, nobody can renew. [CheckClient]
// refuses a ring's client, and all others that it cannot check.
package lease

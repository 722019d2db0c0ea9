// Package lease elects one leader among many processes by a Redis key that expires, and ends the
// leader's context in time when it no longer leads. An [Elector] contends, leads and contends
// again; the key is a lock of redsync, which acquires, extends and releases it.
//
//	client := redis.NewClient(lease.Options(opt)) // behind Sentinel: lease.FailoverOptions
//	elector, err := lease.New(lease.Config{Client: client, Key: "jobs:leader", Instance: id})
//	err = elector.Run(ctx, func(ctx context.Context, term *lease.Term) error {
//		// Do here, while ctx lives, the work that only one process should do.
//		// Use term.Epoch(), which rises from term to term, to fence writes
//		// that must never happen twice.
//		return work(ctx, term.Epoch())
//	})
//
// # What is authoritative
//
// Redis is. The key holds `<instance>/<random>`, a token that names one attempt to win it; the
// process with that token holds the lease. Renewal and release compare the token, so a process can
// neither prolong nor end another's lease. Its own belief is a trust window, always shorter than
// the lease:
//
//	trusted until = when the attempt that won or last renewed the lease began
//	                + TTL - TTL/10
//
// The start is read from the monotonic clock before the request is sent; the key's TTL starts
// later, on the server. So the key outlives the window, however slow the reply. A tenth of the TTL
// allows for clocks of different speeds.
//
// # One server, not a quorum
//
// Redlock asks a majority of independent servers, so that a lock survives the loss of one. This
// lease asks one: the server that has the data. That is right here for three reasons:
//
//   - Safety does not rest on the lease. A delete is made by package guard's script, which compares
//     the lease's token, the owner's heartbeat and the entry in one atomic step. Other servers'
//     votes could not be compared in that step: a leader stopped between the vote and the delete
//     would delete all the same, with Redlock too.
//   - Leadership only saves work: one sweeper instead of many. Two leaders are harmless, and so is
//     none for a while.
//   - Without that server there is nothing to sweep, so a lease that outlives it is worth nothing.
//
// After a failover two processes may lead for a moment (see the last section). An action that
// must not happen then needs a check of the epoch where it happens.
//
// # States
//
//	                     free, won, epoch drawn
//	┌──► campaigning ─────────────────────────────► leading ──┐
//	│    an attempt when the lease can expire,      renew every TTL/3,
//	│    or after a release, and what it yields     after a failure every TTL/20
//	│                                                         │ window over · taken ·
//	│  lead returned nil, or the term                         │ Resign · lead returned ·
//	│  was lost or resigned                                   ▼ Run's context ended
//	└───────────────────────────────────────────── leaving: cancel, join, release
//	                                                          │ lead failed, or Run's
//	                                                          ▼ context ended
//	                                                        Run returns
//
// Waiters hear of a release, so a waiter that sees a lease renewed every TTL/3 reads it again after
// four fifths of a TTL on average. It reads every TTL/5 ± 20 % while not subscribed, after an
// error, and while the lease may never end.
//
// In a large fleet Config.Yield lets some processes go first. An elector that yields tries a free
// lease that much later, and reads a held one less often. It reads none that it sees held through
// [Elector.HolderIn]. Nobody yields for more than two thirds of a TTL. So if all others die at
// once, the last one leads after TTL + 2/3 TTL, plus the time of its calls.
//
// # Leaving
//
// The order is: cancel the term's context, join the work, release the lease. Meanwhile the lease is
// renewed for at most one TTL, so that no successor starts beside the work; then it is left to
// expire, and Run keeps waiting. Only work that has not returned a minute after its term is logged
// as an error. A release is tried three times; without Redis the lease expires. Then the client's
// idle connections are closed, since they may lead to a former primary.
//
// # The term's context
//
// It ends no later than the trust window, even if Redis hangs. [context.Cause] returns the reason:
// [ErrLost], wrapping its cause, [ErrResigned], or the end of Run's own context. [Term.Valid] needs
// no timer, so a process that wakes from an hour's pause finds at once that it does not lead.
//
// # The epoch
//
// Each term has a fencing number above every earlier term's:
//
//	max(previous + 1, server time in µs, highest epoch met + 1)
//
// One script draws it, if the lease still holds the term's token. If a failover loses the stored
// number, server time and the electors' memory keep the numbers rising.
//
// A number more than 366 days ahead of the server's clock, stored or remembered, is damage, as is
// any other text. It is ignored, so that an overwritten key cannot end all terms. The price: if a
// clock that far ahead is corrected, the numbers fall once. Code that relies on the epoch should
// therefore also check the lease's token, as package guard does.
//
// # What is not guaranteed
//
// Two processes may believe that they lead: a failover may lose the key, an operator may delete it,
// a process may be stopped between [Term.Valid] and acting, a machine's monotonic clock may stop
// during suspend. Actions that must never happen twice, or late, need a check where they happen: of
// the token, in the same Redis, or of the epoch.
//
// All contenders should have the same TTL. A live holder with a longer one keeps its lease, because
// its expiry falls until it renews. A waiter caps a lease at its own TTL only if, for a whole TTL,
// it has no expiry or one that does not fall. A lease with a longer TTL whose holder died, or that
// somebody wrote by hand, lasts for that TTL.
//
// If the server's clock goes back, the remaining lease grows by as much, until a live holder
// renews. If the holder died, a waiter that saw the lease before caps it after a TTL if the step
// was longer than twelve TTLs; after a shorter one the lease may last that much longer. If no
// waiter saw it, it lasts to its end, however distant.
//
// On a Redis Cluster use [ClusterOptions]. Nobody can renew while the lease's slot moves, or until
// a replica has replaced a dead master.
package lease

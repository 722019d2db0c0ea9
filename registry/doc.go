// Package registry keeps a Redis hash that says which replica of a service holds which device,
// true: every live socket is routable, and nothing dead is. It is the owner's side: a replica
// registers the devices that connect to it, proves by a heartbeat that it lives, and puts back what
// Redis lost.
//
//	ctl := redis.NewClient(lease.Options(opt)) // for heartbeats
//	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl})
//	go reg.Run(ctx)                       // beats and heals; when ctx ends it says goodbye
//
//	claim := reg.Register(imei)           // one for each socket; never blocks
//	defer claim.Release()
//	claim.FrameReceived()                 // for each message of the device
//	claim.FrameAcked()                    // for each answer to it
//
//	owner, err := reg.Lookup(ctx, imei)   // from any replica: where is this device?
//
// # Who is authoritative
//
// The server. Every decision is made in a script, at the instant of the write. The process keeps
// what it wants to be true (its claims) and what it believes that Redis holds, and works off the
// difference.
//
// # An entry's way
//
//	socket opens   Register       ─► table ─ queue ─► register.lua  HSET entry, SADD index, heartbeat
//	               Claim.Wait     ◄─ table ◄─ reply ─ landed
//	frame arrives  FrameReceived  ─► table ─ queue ─► HMGET         lost: heal.lua; foreign: evidence
//	socket closes  Release        ─► table ─ queue ─► release.lua   HDEL if it is ours, SREM
//	every beat     beat.lua ─ reply ─ surprise ─► HMGET of everything, SSCAN of the index
//	process dies   its heartbeat expires ─► quickway.go, fullscan.go ─► batcher.go ─► evict.lua
//
// To follow one IMEI, read in this order:
//
//   - claim.go: what a socket calls.
//   - table.go: what this replica knows of its devices. Each is in one of ten named states. The
//     table speaks to nobody and is told the time. batch.go decides what is written next, and notes
//     what became of it; dispute.go is about entries that name another instance; index.go compares
//     with the reverse index.
//   - writer.go, heartbeat.go and reconcile.go: three loops around the table. They call the scripts
//     (scripts.go, and first owner.lua).
//   - sweeps.go: what the leader does when the owner is dead. The quick way (quickway.go) and the
//     full scan (fullscan.go) find and judge; batcher.go hands full batches to janitor.Pass.Delete,
//     and so to package guard, where guard.lua asks once more before evict.lua deletes. The quick
//     way leaves the index as it is until all that it names was swept: then it goes as a whole.
//
// The writer writes one batch at a time: what comes together shares one script, and operations on
// one IMEI never overlap. An operation is decided when its batch is made, from the newest claim. So
// a burst of opens and closes becomes one write, and the late close of an old socket undoes
// nothing.
//
// # Registration, healing, evidence
//
// A registration says that the device is here, and overwrites whatever stands there. It does so
// only while it is fresh. What did not land at the first try, within a second of the handshake, is
// put back by healing, which never overwrites a claim unseen. An entry that names another instance
// is taken back only on fresh evidence: after this replica saw the foreign claim, it acknowledged a
// frame, and a further frame arrived, so the device is really at the other end of this socket. The
// write then compares with the foreign value that was seen. Evidence counts for one second after
// that frame. A call that failed drops it: then the foreign claim must be seen again first.
//
// An entry that names a dead instance needs no evidence (outlived.go). The owner that holds the
// device passes the heartbeat of the instance seen there to heal.lua, which overwrites the entry if
// the guard would sweep that instance: no heartbeat, a witness that has listened for the grace
// period, and this owner's own heartbeat in its place. It does not matter who leads, whether
// sweeping is paused, or whether anybody listens besides the owners that ask.
//
// # Two owners of one device
//
// An owner that overwrites an entry tells the former owner (PUBLISH on the channel of the name of
// its heartbeat), which checks the entry. A device that is held here while its entry names another
// instance is in dispute. Most likely one of the two sockets is half open, and a parked device
// sends nothing that could tell which. So the owner that finds it asks the other one on its
// channel: "/<own id>", then in pairs how many ms ago it heard a device (a frame, or the
// handshake), and its IMEI. A space, a control character, a "%" or a "/" at the beginning of an
// IMEI is escaped there, as in a URL. The owner that heard the device earlier calls Config.OnDisplaced: its
// socket is likely half open. If the asked owner heard it later, it answers in the same words, and
// an answer gets no answer. An owner that does not hold the device hands the entry back; the asking
// owner finds that within interval/10 and puts its own there. Otherwise the asked owner answers
// that it heard: "/<own id> heard", then IMEIs. The asking owner asks once an interval for as long
// as the dispute lasts, so a lost message does no harm. If the other instance lives, and nothing
// shows that it heard two questions in a row, the asking owner calls its own OnDisplaced: an owner
// without Config.OnDisplaced does not listen. On a Cluster PUBLISH proves nothing: it counts
// listeners at one node, and a message is lost where the link between two nodes is cut. So there an
// owner of a version that does not answer counts as one that does not listen.
//
// Asking is a goroutine of its own, with a deadline of a second: no write waits for it, nor for any
// other node than the one that has the entries.
//
// # Reconciliation
//
// Each reply to a beat or a write says, in O(1) for the server: whether the own heartbeat was
// absent, the size of the index, when entries may last have been lost as the witness knows, and
// whether there is a registry at all. An owner that writes the first entry where there is none
// tells that to all by the witness. A hold in which Redis lost no entries (settings,
// redis_evicting, redis_refusing, mass_failure) is no surprise. Any surprise reconciles everything,
// at once, but once an interval at most: a surprise that comes sooner waits until the interval has passed.
// Everything is reconciled in both directions: claims against entries (HMGET), and the index
// against claims (SSCAN), so that what names this instance and is not held is handed back. A write
// of unknown fate is checked again for a whole TTL, since it may land late.
//
// Without a surprise each beat checks a tenth of the claims. It leaves out those that the newest
// full scan vouches for: the scan tells each owner a digest of what it met (Layout.Scanned, see
// vouched). In one of four rounds of ten beats an owner checks all the same.
//
// A device that is held here while its entry names another instance is taken out of the index. So
// indexes have as many members as there are entries, and the leader sees when there is something
// that only a full scan can find (see due).
//
// # Memory while Redis is away
//
// A released device is forgotten at once if Redis was never asked to write it. One that Redis may
// know is remembered until it is taken out; but while writes fail, at most 10,000 more of those
// than devices are held (or as many as were, when there were more). Further ones are forgotten too.
// What they may have left is searched for in the index (with NoReverseIndex in the registry) with
// each beat, until no write of unknown fate can land any more.
//
// # One id, one life
//
// Process start draws a boot token from the server, above that of any earlier life: the heartbeat
// remembers the last one while it exists, and the witness the highest time of all, also when the
// server's clock goes back. Every script compares it: the newest boot wins. An older process ends with
// ErrSuperseded, writes nothing more and hands nothing back. The new one hands back what its former
// life left.
//
// # What is guaranteed, and what is not
//
//   - An entry never stands without a heartbeat written in the same step (S5).
//   - A release, and a heal without evidence, never change an entry that names another instance
//     (S2).
//   - While Redis is away devices are held and served by their replica; failures are counted;
//     within one heartbeat interval of Redis answering, everything held is back.
//   - A registration is not durable by itself: an asynchronous failover may lose it. Then it is
//     healed.
//   - An owner that is silent for a whole TTL is dead for everybody else: its entries may go, or be
//     taken over by an owner that has a socket of the device too. They come back when it beats
//     again; those that were taken over, on evidence.
//   - Between a device's move and the new replica's registration the entry names the former owner.
//   - When a device was last heard at each of two sockets tells which one is half open. A message
//     that took longer than the device took to move can blame the wrong one. If that socket is
//     silent for as long as Config.OnDisplaced's receiver waits, it is closed, and the device
//     connects again.
//   - With NoReverseIndex a late-landing write is searched for only for one TTL after it failed.
package registry

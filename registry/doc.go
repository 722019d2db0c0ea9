// Package registry keeps a Redis hash true that maps the id of each socket to the replica that
// holds it: every live socket is routable, and nothing dead is. It is the owner's side: a replica
// registers the sockets that connect to it, proves with a heartbeat that it is alive, and restores
// what Redis lost. An id is one socket: a device's, or a "user|device" of a chat.
//
//	ctl := redis.NewClient(lease.Options(opt)) // for heartbeats
//	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl})
//	go reg.Run(ctx)                       // beats and heals until ctx ends; then a goodbye
//
//	claim := reg.Register(id)             // one per socket; never blocks
//	defer claim.Release()
//	claim.FrameReceived()                 // for each message of the other end
//	claim.FrameAcked()                    // for each answer to it
//
//	owner, err := reg.Lookup(ctx, id)     // from any replica: where is this socket?
//
// # Who is authoritative
//
// The server: scripts make every decision at the instant of the write. The process keeps what it
// wants to be true (its claims) and what it believes Redis holds, and works off the difference.
//
// # An entry's way
//
//	socket opens   Register       ─► table ─ queue ─► register.lua  HSET entry, SADD index, heartbeat
//	               Claim.Wait     ◄─ table ◄─ reply ─ landed
//	frame arrives  FrameReceived  ─► table ─ queue ─► lookup.lua    lost: heal.lua; foreign: evidence
//	socket closes  Release        ─► table ─ queue ─► release.lua   HDEL if it is ours, SREM
//	every beat     beat.lua ─ reply ─ surprise ─► lookup.lua of everything, SSCAN of the index
//	process dies   its heartbeat expires ─► quickway.go, fullscan.go ─► batcher.go ─► evict.lua
//
// To follow one id, read in this order:
//
//   - claim.go: the calls of a socket.
//   - table.go: this replica's ids, each in one of ten states, without I/O or a clock. batch.go
//     decides what to write next and records the outcome; dispute.go handles entries that name
//     another instance.
//   - writer.go, heartbeat.go and reconcile.go: the loops around the table. They call the scripts
//     (scripts.go, starting with record.lua and owner.lua).
//   - internal/sweeps: the leader's work when an owner is dead. quickway.go and fullscan.go find
//     and judge; batcher.go passes full batches to janitor.Pass.Delete, where guard.lua checks
//     again before evict.lua deletes.
//
// The writer writes one batch at a time, so operations on one id never overlap, though the calls of
// a large batch do. An operation is
// decided when its batch is made, from the newest claim: a burst of opens and closes becomes one
// write, and the late close of an old socket undoes nothing.
//
// # Registration, healing, evidence
//
// A fresh registration overwrites any entry. If it has not landed at the first try, within a second
// of the handshake, healing takes over, which never overwrites a claim unseen. It takes an entry
// back from another instance only on fresh evidence: after seeing the foreign claim, this replica
// acknowledged a frame and then received another, so this socket really is the live one. The
// write compares with the foreign value that was seen. Evidence counts for one second after that
// frame. A failed call drops it; the foreign claim must then be seen again.
//
// An entry that names a dead instance needs no evidence. heal.lua overwrites it if the instance has
// no heartbeat, by its record was silent for its TTL or left with a goodbye, and could have beaten
// since Redis is heard (doubt.Record.Takes). That works whoever leads, while sweeping is paused,
// and whatever is in doubt about others.
//
// # Two owners of one id
//
// An owner that overwrites an entry notifies the former owner (PUBLISH on the channel named like
// its heartbeat), which then checks the entry. An id held here whose entry names another instance
// is in dispute: most likely one of the two sockets is half open, and a silent client does not show
// which. So this owner asks the other on its channel: "/<own id>", then pairs of the ms since it
// heard an id (a frame, or the handshake) and the id, as a word (see word).
//
// The owner that heard the id earlier calls Config.OnDisplaced. If the asked owner heard it
// later, it answers in the same form; an answer gets no answer. An owner that does not hold the
// id hands the entry back, and the asking owner writes its own within interval/10. In both
// other cases the asked owner confirms: "/<own id> heard", then the ids. Questions are repeated
// once an interval, so lost messages do no harm. If two in a row go unconfirmed by a live owner,
// the asking owner calls its own OnDisplaced: an owner without Config.OnDisplaced does not listen.
// PUBLISH proves nothing here: on a Cluster it counts the listeners of one node, and a cut link
// loses messages.
//
// Asking has its own goroutine and a deadline of a second, so no write waits for it.
//
// # Records
//
// Each beat also writes a record into a hash that never expires (record.lua, package doubt). It
// outlives the heartbeat, cannot be evicted, and shows how long an owner has been silent.
//
// A server whose record of this process is older than the newest beat is a former primary: it lacks
// a write that was acknowledged, and what it remembers or takes is no evidence. Every script and
// look-up of Client compares them before anything else, and answers READONLY, on which go-redis
// closes the connection and dials the name anew. A missing record proves nothing. If that happens
// three times in a row, Control may be the one that stayed behind, and its connections are dialed
// anew. Beats themselves do not compare: they repair a server that was set back.
//
// # Reconciliation
//
// Three signs show in O(1) that Redis or this process may have lost something:
//
//   - The own record is missing, older than it was, or a TTL old, so that others could take this
//     owner for dead. An answer that was lost may have been the only one to show it, and so counts
//     as this sign, like a server that takes no writes any more.
//   - Somebody recorded a loss in the witness: who listens, after a gap or a restart; an owner that
//     finds the registry missing when it beats or writes its first entry.
//   - The index has another size than the claims.
//
// The first two reconcile everything, at most once an interval, in both directions: claims against
// entries, and the index against claims (SSCAN), so that entries that are not held are handed back.
// The third compares the index alone. If the record is missing, everything is, and entries are
// restored without a look. A write of unknown fate is checked again for a whole TTL, since it may
// land late. Besides, each beat checks a tenth of the claims.
//
// An id in dispute is removed from the index. So indexes have as many members as there are
// entries, and the leader notices when only a full scan can find something (see due).
//
// # Memory while Redis is down
//
// A released id is forgotten at once if Redis was never asked to write it, otherwise when it is
// taken out. While writes fail, at most 10,000 more of them are remembered than ids are held (or as
// many as were, if more). Each beat then searches for the entries of forgotten ones, in the index
// (with NoReverseIndex, in the registry), until no write of unknown fate can land any more.
//
// # One id, one life
//
// At start a process draws a boot token from the server, above that of any earlier life, even if
// the server's clock went back. Every script compares it: the newest boot wins, and hands back what
// its former life left. An older process ends with ErrSuperseded, writes nothing more and hands
// nothing back.
//
// # What is guaranteed, and what is not
//
//   - Every entry is written in the same step as its owner's heartbeat (S5).
//   - A release, and a heal without evidence, never change an entry that names another instance
//     (S2).
//   - While Redis is down, replicas hold and serve their sockets, and count failures. Within one
//     heartbeat interval of Redis answering, everything held is back.
//   - A registration alone is not durable: an asynchronous failover may lose it, and it is then
//     healed.
//   - An owner that is silent for a whole TTL is dead to everybody else: its entries may be
//     deleted, or taken over by an owner that also has a socket of the id. They come back when
//     it beats again; those taken over, on evidence.
//   - Between an id's move and its new registration, the entry names the former owner.
//   - A message slower than an id's move may blame the wrong socket for being half open. If that
//     socket then stays silent for as long as OnDisplaced's receiver waits, it is closed, and the
//     client reconnects.
//   - With NoReverseIndex a late write is searched for only for one TTL after it failed.
package registry

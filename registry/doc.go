// Package registry keeps a Redis hash true that maps the id of each socket to the replica that
// holds it: every live socket is routable, and nothing dead is. It is the owner's side: a replica
// registers the sockets that connect to it, proves with a heartbeat that it is alive, and restores
// what Redis lost. An id is one socket: a device's, or a "user|device" of a chat.
//
//	ctl := redis.NewClient(lease.Options(opt)) // for heartbeats
//	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl})
//	go reg.Run(ctx)                       // beats and heals until ctx ends; then a goodbye
//
//	claim := reg.Register(id, registry.Socket{Close: conn.Close}) // never blocks
//	defer claim.Release()                 // when the socket ends
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
//	in use         Touch          ─► table ─ queue ─► lookup.lua    lost: heal.lua; foreign: dispute
//	socket closes  Release        ─► table ─ queue ─► release.lua   HDEL if it is ours, SREM
//	every beat     beat.lua ─ reply ─ surprise ─► lookup.lua of everything, SSCAN of the index
//	process dies   its heartbeat expires ─► package janitor
//
// To follow one id, read in this order:
//
//   - claim.go: the calls of a socket.
//   - table.go: this replica's ids, each in one of seven states, without I/O or a clock. batch.go
//     decides what to write next and records the outcome; dispute.go settles which of two sockets
//     of an id is newer, by clock.go.
//   - writer.go, heartbeat.go and reconcile.go: the loops around the table. They call the scripts
//     (scripts.go, starting with record.lua and owner.lua).
//
// The writer writes one batch at a time, so operations on one id never overlap, though the calls of
// a large batch do. An operation is
// decided when its batch is made, from the newest claim: a burst of opens and closes becomes one
// write, and the late close of an old socket undoes nothing.
//
// # Registration and healing
//
// A fresh registration overwrites any entry. If it has not landed at the first try, within a second
// of the handshake, healing takes over, which writes only what is absent. It never replaces a
// living instance.
//
// An entry that names a dead instance is overwritten: heal.lua checks that the instance has no
// heartbeat, by its record was silent for its TTL or left with a goodbye, and could have beaten
// since Redis is heard (doubt.Record.Takes). That works whoever leads, while sweeping is paused,
// and whatever is in doubt about others.
//
// # Two sockets of one id
//
// The newest handshake wins, and the other socket is closed. A handshake is the call of Register,
// in the server's time, which every reply has; it is known to half a round trip. Traffic of a
// socket counts for nothing: bytes may have waited in buffers, and a write succeeds into a
// half-open socket. So an older socket never wins, unless a newer one with a Ping did not answer
// it. A Ping that lies only gives what happens without one.
//
// On one replica the older socket is closed at once. An owner that overwrites an entry notifies the
// former owner (PUBLISH on the channel named like its heartbeat), which then checks the entry. An
// owner whose entry names another instance asks that one on its channel: "/<own id>", the server's
// time, then pairs of the time of a handshake, negative if the socket could be pinged first, and
// the id, as a word (see word). The asked owner:
//
//   - ignores the message if its own reading of the server's time differs by more than a second:
//     the message was slow, or somebody has not noticed yet that the clock has stepped.
//   - ends its claim if that is older, releases the entry, compared, and confirms, at once and when
//     the entry is out: "/<own id> heard", then the ids. Likewise if it does not hold the id. The
//     asking owner restores its own entry at the second. Of two equal ones, the one that the entry
//     names stays.
//   - answers in the same form if its own is newer, after a ping that succeeded; or older, and the
//     other one is not pinged yet. If the ping fails, it ends its own claim. It answers once a
//     second about an id, and otherwise confirms.
//
// Questions are repeated after interval/10 and then less often, down to once an interval, so lost
// messages do no harm. If an owner deals with none for two intervals, and beats meanwhile, it is a
// plain writer (HSET and SET of its own). It keeps the id, and the claim ends with ErrTaken: a live
// client connects again, which overwrites.
//
// Each beat sends its own owner a message, "/". If that does not arrive, questions do not either:
// the server may not be the primary any more. Control's channels are then subscribed anew.
//
// Asking has its own goroutine and a deadline of a second, so no write waits for it.
//
// A handshake is stamped when its first write is answered, so it grows no younger while a machine
// is suspended. If the server's clock steps back, what is older goes back as well.
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
// entries, and the leader notices when only a full scan can find something.
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
// its former life left. An older process ends with ErrReplaced, writes nothing more and hands
// nothing back.
//
// # What is guaranteed, and what is not
//
//   - Every entry is written in the same step as its owner's heartbeat (S5).
//   - A release never changes an entry that names another instance, a heal none that names a living
//     one (S2).
//   - While Redis is down, replicas hold and serve their sockets, and count failures. Within one
//     heartbeat interval of Redis answering, everything held is back.
//   - A registration alone is not durable: an asynchronous failover may lose it, and it is then
//     healed.
//   - An owner that is silent for a whole TTL is dead to everybody else: its entries may be
//     deleted, or taken over by an owner that also has a socket of the id. They come back when
//     it beats again; those taken over, if its handshakes are newer.
//   - Between an id's move and its new registration, the entry names the former owner.
//   - A handshake that was read late, by a process that was stopped, may be the newest and dead. A
//     Ping finds that. Without one the live socket is closed, and is the newest when it connects
//     again.
//   - A half-open socket without a rival stays: only TCP_USER_TIMEOUT or pings of the service end
//     it.
//   - Two clients that share an id and reconnect without end take it from each other each time.
//   - With NoReverseIndex a late write is searched for only for one TTL after it failed.
package registry

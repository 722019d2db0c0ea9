// Package history reads what a Redis server did: one total order of all writes, as the server
// itself recorded it.
//
//	server := redistest.Start(t, history.AppendOnly()...)
//	...
//	h, err := history.Read(server.Dir()) // also while it runs, or after it was killed
//	...
//	model := history.NewKeyspace()
//	for _, event := range h {
//		for _, command := range event.Commands {
//			err = errors.Join(err, model.Apply(command, layout)) // what the server then held
//		}
//	}
//
// A server's append-only file has the effects of a script as MULTI … EXEC and each expiry as an
// explicit DEL. A server that runs without such a file is told to [Begin] one; what it then holds
// is the beginning. [Read] makes one [History] of all parts of a run.
//
// What a test does to the keyspace by its own hand it marks: in one MULTI with a SET of [FaultKey].
// A restart without an append-only file, or a failover, gives the server another memory. Such a
// life is a part of its own, and begins with an event of [LifeCommand] that writes what the server
// then holds. A server that was killed and goes on in its own file needs no such event.
//
// # Limits
//
// A Redis 7.0 that was killed while it wrote an event may load half of it when it is killed and
// started a second time on the same file; the model holds that it was never done.
package history

// Package history reads a Redis server's writes in one total order, as the server itself recorded
// it.
//
//	server := redistest.Start(t, history.AppendOnly()...)
//	...
//	h, err := history.Read(server.Dir()) // also while it runs, or after it was killed
//	...
//	model := history.NewKeyspace()
//	for _, event := range h {
//		for _, command := range event.Commands {
//			err = errors.Join(err, model.Apply(command, layout)) // the server's content at that point
//		}
//	}
//
// A server's append-only file has the effects of a script as MULTI … EXEC, and each expiry as an
// explicit DEL. [Begin] starts the file of a server that runs without one.
//
// A test marks its own changes to the keyspace with a SET of [FaultKey] in the same MULTI. A
// restart without an append-only file, or a failover, gives the server another memory. Such a life
// is a part of its own, and begins with an event of [LifeCommand].
//
// # Limits
//
// A Redis 7.0 that was killed while it wrote an event may load half of it when it is killed and
// started a second time on the same file. The model treats the event as never executed.
package history

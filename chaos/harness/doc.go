// Package harness provides what a chaos scenario needs: a real Redis that writes its history,
// replicas that are processes of the program, devices that know where their sockets are, and
// traffic.
//
//	e := harness.New(t, harness.BuildIngest(t), seed, 1, 60, nil)
//	e.Start("one")
//	victim := e.Start("two")
//	e.Spread(harness.Some(0, 60)) // connects all devices
//	e.Traffic.Start(e)
//	e.Kill(victim)
//	e.Settle() // traffic ends, and every device is connected and has reported
//	h, err := history.Read(e.Parts...)
//	v := judge.Judge(h, e.Facts(e.Alive(nil)))
//
// Each [Replica] connects through a [Proxy] of its own, and takes orders at [Failpoints]. A
// [LoadProcess] is a process of the registry package without sockets, for volume. Environment
// records every socket, outage and death ([Environment.Facts]).
//
// A test binary that starts load processes becomes one itself if [AsLoadProcess] is set: its
// TestMain then calls [RunLoad].
package harness

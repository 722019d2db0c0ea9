// Package proxy sits between a client and a Redis server, and treats them as a network does: it
// holds, loses, delays, refuses and cuts.
//
//	p := proxy.New(t, server.Addr())
//	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
//	dels := func(r proxy.Request) bool { return r[0] == "DEL" }
//	lost := p.LoseReply(dels, 1)   // of the next DEL: it is done, and the client does not know
//	answers := p.Answers(dels)     // the server's answer to each
//	...
//	require.Equal(t, 1, lost.Hits()) // else the test proves nothing
//	require.Zero(t, p.NotUnderstood())
//
// Faults apply to the whole proxy or to requests, including those queued in a transaction, MULTI
// and EXEC. To lose a transaction's answer, lose that of EXEC. (toxiproxy knows bytes only.) A
// [Rule] counts its real hits, and a [Score] the server's answers: neither relies on the code under
// test. A request that the proxy has taken arrives even if the client has abandoned it or is dead.
//
// It understands RESP 2 and 3. A connection with anything else becomes a plain pipe, and is
// counted.
package proxy

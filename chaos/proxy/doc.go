// Package proxy stands between a client and a Redis server, and does to them what a network does:
// it keeps things back, loses, delays, refuses and cuts.
//
//	p := proxy.New(t, server.Addr())
//	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
//	dels := func(r proxy.Request) bool { return r[0] == "DEL" }
//	lost := p.LoseReply(dels, 1)   // of the next DEL: it is done, and the client does not know
//	answers := p.Answers(dels)     // what the server said to each
//	...
//	require.Equal(t, 1, lost.Hits()) // else the test proves nothing
//	require.Zero(t, p.NotUnderstood())
//
// Faults are of the whole proxy or addressed to requests: a matcher sees every request, also those
// that are queued in a transaction, and MULTI and EXEC. To lose a transaction's answer is to lose
// that of EXEC. This is why it is not toxiproxy, which knows bytes only. Every fault is a [Rule]
// that counts what it really hit, and a [Score] counts the server's answers; neither is the word of
// the code under test. A request that the proxy has taken arrives, also when the client has given
// it up or is dead.
//
// It understands RESP 2 and 3. Of what it does not understand it makes a plain pipe, and counts
// that.
package proxy

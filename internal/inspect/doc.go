// Package inspect answers an operator's questions about a fleet, by what is in Redis and nothing
// else: who leads, who lives, who holds a device, why an entry is gone or still here, whether this
// Redis is fit. It only reads. It knows no terminal and no HTTP: the tool, the HTTP interface and
// the page show the same answers.
//
//	r := inspect.New(client, guard.Layout{})
//	status, err := r.Status(ctx)
//	why, err := r.Why(ctx, "356307042441013")
//
// All times are the server's. What cannot be read is an error, and what Redis does not say is left
// empty: neither is guessed.
//
// An answer is put together of several reads, so it is not of one instant. An entry can go between
// two of them. The answer is then true of one of these instants.
package inspect

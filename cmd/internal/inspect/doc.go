// Package inspect answers an operator's questions about a fleet from Redis alone: who leads, who
// lives, who holds a device, why an entry is gone or still exists, whether this Redis is fit. It
// only reads. The tool, the HTTP interface and the page show the same answers, and
// docs/reference/http.md describes their fields.
//
//	r := inspect.New(client, guard.Layout{})
//	status, err := r.Status(ctx)
//	why, err := r.Why(ctx, status, "356307042441013")
//
// All times are the server's. Unreadable data is an error, and missing data is left empty; neither
// is guessed.
//
// An answer combines several reads, between which an entry may change.
package inspect

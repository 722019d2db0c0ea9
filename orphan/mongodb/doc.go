// Package mongodb answers package orphan's questions about documents from MongoDB. It reads, and
// writes nothing.
//
//	src, err := mongodb.Connect("mongodb://user:password@host:27017/game")
//	defer src.Close(ctx)
//	set, err := orphan.New(orphan.Config{Source: src, ...})
//
// # What an answer is worth
//
// Every read is made at the primary, with read concern majority, whatever the URI says: it returns
// no write that a change of primary could still undo. It is no proof that nothing newer exists: a
// primary that was cut off and does not know it yet answers for some seconds with what it has.
//
// A server that ignores read concern, as FerretDB does, gives what it gives. A database that was
// restored from a backup cannot be told from the present one.
//
// An answer is whole or an error. A document that is not in an answer was not found by that read;
// it is no evidence of anything.
//
// # What it costs the server
//
// A find by _id for each 500 ids, with only the fields that were asked for, on 4 connections at
// most, and one more for each server of the set, by which the driver watches it. The server is not
// told of the deadline: a find that was given up here may go on there, for as long as 500 look-ups
// by _id take.
//
// The user needs the right to find in the collections that the rules name; role read on the
// database has it.
package mongodb

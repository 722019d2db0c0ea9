// Package mongodb answers package orphan's questions about documents from MongoDB. It only reads.
//
//	src, err := mongodb.Connect("mongodb://user:password@host:27017/game")
//	defer src.Close(ctx)
//	set, err := orphan.New(orphan.Config{Source: src, ...})
//
// # What an answer is worth
//
// Every read goes to the primary, with read concern majority, whatever the URI asks for, so no
// change of primary can undo a write that it returns. Newer writes may exist: a primary that was
// cut off and has not noticed answers for some seconds from its own data.
//
// A server that ignores read concern, such as FerretDB, gives no such guarantee. A database
// restored from a backup looks like the present one. An answer is complete or an error. A missing
// document was not found by that read, which is not evidence of anything.
//
// # What it costs the server
//
// Each 500 ids cost a find by _id with only the requested fields, on at most 4 connections, plus
// one to monitor each server. The server does not know the deadline: a find that was given up
// here may continue there for 500 look-ups by _id. The user needs the right to find, as role read
// grants.
package mongodb

package orphan

import "context"

// A Source answers what a database says of documents. Package mongodb has one.
type Source interface {
	// Documents asks for documents by their _id, 500 at most. The result has those that were found,
	// each with the fields that were asked for and that it has. An error means that nothing is
	// known. It is bounded by a deadline of its own.
	Documents(ctx context.Context, q Query) (map[string]Document, error)
	// Empty tells whether a collection has no document at all.
	Empty(ctx context.Context, collection string) (bool, error)
}

// A Query asks for documents of one collection.
type Query struct {
	Collection string
	IDs        []string
	ObjectIDs  bool     // the IDs are ObjectIDs, in hexadecimal; false: they are text
	Fields     []string // dotted
}

// A Document is what was asked for of one document, by the field's dotted name: string, int64,
// float64, bool, time.Time, or another type that no condition matches.
type Document map[string]any

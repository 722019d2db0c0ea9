package orphan

import "context"

// A Source reads documents from a database, as package mongodb does.
type Source interface {
	// Documents reads at most 500 documents by _id, and returns those found, with the requested fields
	// that exist. An error means that nothing is known. The implementation sets the deadline.
	Documents(ctx context.Context, q Query) (map[string]Document, error)
	// Empty reports whether a collection has no documents.
	Empty(ctx context.Context, collection string) (bool, error)
}

// A Query asks for documents of one collection.
type Query struct {
	Collection string
	IDs        []string
	ObjectIDs  bool     // IDs are hexadecimal ObjectIDs; else text
	Fields     []string // dotted
}

// A Document has the requested fields by dotted name: string, int64, float64, bool, time.Time, or
// another type that no condition matches.
type Document map[string]any

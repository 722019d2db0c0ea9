package orphan

import "context"

// A Source reads documents from a database. Package mongodb has one.
type Source interface {
	// Documents reads at most 500 documents by their _id. The result has those found, with the
	// requested fields that exist. An error means that nothing is known. The call has a deadline of
	// its own.
	Documents(ctx context.Context, q Query) (map[string]Document, error)
	// Empty reports whether a collection has no documents.
	Empty(ctx context.Context, collection string) (bool, error)
}

// A Query asks for documents of one collection.
type Query struct {
	Collection string
	IDs        []string
	ObjectIDs  bool     // the IDs are ObjectIDs, in hexadecimal; false: they are text
	Fields     []string // dotted
}

// A Document has the requested fields of one document, by dotted name: string, int64, float64,
// bool, time.Time, or another type that no condition matches.
type Document map[string]any

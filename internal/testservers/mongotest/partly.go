package mongotest

import (
	"context"
	"maps"

	"github.com/rollcall-redis/rollcall/orphan"
)

// Partly is a source that answers without the documents whose ids Drop names.
type Partly struct {
	orphan.Source
	Drop func(id string) bool
}

// Documents leaves documents out.
func (p Partly) Documents(ctx context.Context, q orphan.Query) (map[string]orphan.Document, error) {
	docs, err := p.Source.Documents(ctx, q)
	maps.DeleteFunc(docs, func(id string, _ orphan.Document) bool { return p.Drop(id) })
	return docs, err
}

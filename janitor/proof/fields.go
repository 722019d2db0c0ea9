package proof

import (
	"context"
	"fmt"
	"iter"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// A Caller paces calls to Redis: a janitor.Pass, or a tool's own.
type Caller interface {
	// Call runs one call to Redis at the caller's pace.
	Call(ctx context.Context, f func(ctx context.Context) error) error
	// Client is for use within Call.
	Client() redis.UniversalClient
	// PageSize is the most that one page of a scan should have.
	PageSize() int
}

// A Field of a hash, with its value.
type Field struct{ Name, Value string }

const (
	firstPage = 16
	pageBytes = 256 << 10 // what a page should have
)

// Fields reads a hash page by page, however long its names are. As with HSCAN, fields may repeat.
func Fields(ctx context.Context, c Caller, key string) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		var size Pages
		by := guard.Paging{Size: func() int { return int(size.Next(c.PageSize())) }, Call: c.Call}
		for page, err := range guard.Fields(ctx, c.Client(), key, by) {
			if err != nil {
				yield(Field{}, fmt.Errorf("proof: %s: %w", key, err))
				return
			}
			size.Read(page.Items)
			for i := 0; i+1 < len(page.Items); i += 2 {
				if !yield(Field{page.Items[i], page.Items[i+1]}, nil) {
					return
				}
			}
		}
	}
}

// Pages chooses the COUNT of a scan by the bytes of earlier pages.
type Pages struct{ count int64 }

// Next returns the COUNT for the next page.
func (p *Pages) Next(most int) int64 {
	if p.count == 0 {
		p.count = firstPage
	}
	return min(p.count, int64(most))
}

// Read takes a page into account.
func (p *Pages) Read(page []string) {
	bytes := int64(1)
	for _, text := range page {
		bytes += int64(len(text)) + 16
	}
	p.count = max(1, min(4*p.count, p.count*pageBytes/bytes))
}

package sweeps

import (
	"context"

	"github.com/rollcall-redis/rollcall/janitor"
)

func NewBatcher(p *janitor.Pass) *batcher {
	return newBatcher(&sweeps{evicted: func(string, int) {}, refused: refusals{of: map[string]refusal{}}}, p)
}

func (b *batcher) Add(ctx context.Context, owner, id string) error { return b.add(ctx, owner, id) }
func (b *batcher) Flush(ctx context.Context) error                 { return b.flush(ctx) }

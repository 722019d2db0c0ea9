package janitor

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
)

// setPage is one page of a set, or the error that ends the reading.
type setPage struct {
	items []string
	err   error
}

// members reads a set page by page, one page ahead of who takes them and no more, so that Redis need not wait while a
// page is looked at, or a batch made of it. The channel ends behind the last page, an error, or with ctx. stop must be called, and joins.
func (t *tenure) members(ctx context.Context, key string) (pages <-chan setPage, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan setPage)
	var reader conc.WaitGroup
	reader.Go(func() {
		defer close(out)
		for cursor := uint64(0); ; {
			var page setPage
			held, err := t.call(ctx, func(ctx context.Context) (err error) {
				page.items, cursor, err = t.j.cfg.Client.SScan(ctx, key, cursor, "", int64(t.pages.Get())).Result()
				return err
			})
			if page.err = err; err == nil {
				t.pages.Took(held)
			}
			select {
			case out <- page:
			case <-ctx.Done():
				return
			}
			if page.err != nil || cursor == 0 {
				return
			}
		}
	})
	return out, func() { cancel(); reader.Wait() }
}

// expect asks how large hashes or sets are, and so how much the pass will look at. Where that is refused, or
// a key is of another type, it is not known.
func (p *Pass) expect(ctx context.Context, size func(redis.Pipeliner, context.Context, string) *redis.IntCmd, keys ...string) error {
	for slice := range slices.Chunk(keys, existsSlice) {
		err := p.Call(ctx, func(ctx context.Context) error {
			pipe := p.Client().Pipeline()
			for _, key := range slice {
				size(pipe, ctx, key)
			}
			cmds, err := pipe.Exec(ctx)
			for _, cmd := range cmds {
				if n, ok := cmd.(*redis.IntCmd); ok && n.Err() == nil {
					p.Expect(int(n.Val()))
				}
			}
			return err
		})
		if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
			return err
		}
	}
	return nil
}

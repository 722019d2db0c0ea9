package guard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/replies"
)

var (
	fieldsScript = redis.NewScript(lua("fields"))
	pageScript   = redis.NewScript(lua("page"))
)

// Values returns the first 1024 bytes of each field of a hash, nil where there is none.
func Values(ctx context.Context, client redis.UniversalClient, key string, fields ...string) ([]any, error) {
	args := make([]any, len(fields))
	for i, f := range fields {
		args[i] = f
	}
	found, err := fieldsScript.RunRO(ctx, client, []string{key}, args...).Slice()
	if err == nil && len(found) != len(fields) {
		err = fmt.Errorf("guard: %d fields in the answer, want %d", len(found), len(fields))
	}
	return found, err
}

// ErrTooLarge is wrapped by the error of a call whose reply the client refuses to read, for example
// since its connections limit what they read.
var ErrTooLarge = replies.ErrTooLarge

const (
	// longestName is the most bytes of an element that page.lua reads, smallPage its largest COUNT.
	longestName = 1024
	smallPage   = 1000
)

// A Page is one page of a scan.
type Page struct {
	Items []string // of a hash: field, value, ...
	Next  uint64   // cursor; 0: it was the last page
	Left  int      // elements that were too long to be read
}

// HScan reads a page of a hash. If the client refuses the page as [ErrTooLarge], a script reads
// fewer elements, and leaves out those longer than any name.
func HScan(ctx context.Context, c redis.UniversalClient, key string, cursor uint64, count int64) (Page, error) {
	items, next, err := c.HScan(ctx, key, cursor, "", count).Result()
	return readPage(ctx, c, "HSCAN", key, cursor, count, Page{Items: items, Next: next}, err)
}

// SScan is HScan of a set.
func SScan(ctx context.Context, c redis.UniversalClient, key string, cursor uint64, count int64) (Page, error) {
	items, next, err := c.SScan(ctx, key, cursor, "", count).Result()
	return readPage(ctx, c, "SSCAN", key, cursor, count, Page{Items: items, Next: next}, err)
}

// Paging is how a scan reads its pages. The zero Paging reads smallPage elements at once.
type Paging struct {
	Size func() int // the next page's COUNT, asked inside its call
	Call func(ctx context.Context, read func(ctx context.Context) error) error
}

// A Scan reads a key page by page. An error is the last thing that it yields. Elements may repeat.
type Scan func(context.Context, redis.UniversalClient, string, Paging) iter.Seq2[Page, error]

// Fields reads a hash with HScan.
func Fields(ctx context.Context, c redis.UniversalClient, key string, by Paging) iter.Seq2[Page, error] {
	return scan(ctx, c, key, by, HScan)
}

// Members reads a set with SScan.
func Members(ctx context.Context, c redis.UniversalClient, key string, by Paging) iter.Seq2[Page, error] {
	return scan(ctx, c, key, by, SScan)
}

func scan(ctx context.Context, c redis.UniversalClient, key string, by Paging,
	next func(context.Context, redis.UniversalClient, string, uint64, int64) (Page, error),
) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		var page Page
		read := func(ctx context.Context) (err error) {
			size := smallPage
			if by.Size != nil {
				size = by.Size()
			}
			page, err = next(ctx, c, key, page.Next, int64(size))
			return err
		}
		for first := true; first || page.Next != 0; first = false {
			var err error
			if by.Call != nil {
				err = by.Call(ctx, read)
			} else {
				err = read(ctx)
			}
			if !yield(page, err) || err != nil {
				return
			}
		}
	}
}

func readPage(
	ctx context.Context, c redis.UniversalClient, command, key string, cursor uint64, count int64, read Page, err error,
) (Page, error) {
	if !errors.Is(err, ErrTooLarge) {
		return read, err
	}
	out, failed := pageScript.RunRO(ctx, c, []string{key}, command, cursor, min(count, smallPage), longestName).Slice()
	if failed != nil || len(out) != 3 {
		return Page{}, err // the first error is the cause
	}
	next, _ := out[0].(string)
	left, _ := out[1].(int64)
	items, _ := out[2].([]any)
	p := Page{Left: int(left), Items: make([]string, 0, len(items))}
	for _, item := range items {
		text, _ := item.(string)
		p.Items = append(p.Items, text)
	}
	if p.Next, failed = strconv.ParseUint(next, 10, 64); failed != nil {
		return Page{}, err
	}
	return p, nil
}

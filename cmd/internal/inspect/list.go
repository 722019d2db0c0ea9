package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// Held lists ids that an instance owns.
type Held struct {
	Instance string   `json:"instance"`
	IDs      []string `json:"ids"`
	// Next continues the list; "": it has ended.
	Next string `json:"next,omitempty"`
}

// List returns about most ids that an instance holds, in no order, from where an earlier list
// ended. It looks through the registry, and not the index.
func (r *Reader) List(ctx context.Context, instance, after string, most int) (Held, error) {
	h := Held{Instance: instance, IDs: []string{}}
	parts, err := r.parts(ctx)
	if err != nil {
		return h, err
	}
	number, position, _ := strings.Cut(after, "-")
	k, _ := strconv.Atoi(number)
	cursor, _ := strconv.ParseUint(position, 10, 64)
	for ; k >= 0 && k < len(parts); k++ {
		for first := true; first || cursor != 0; first = false {
			if len(h.IDs) >= most || ctx.Err() != nil {
				h.Next = fmt.Sprintf("%d-%d", k, cursor)
				return h, ctx.Err()
			}
			page, err := guard.HScan(ctx, parts[k].client, parts[k].keys.Registry(), cursor, pageSize)
			if err != nil {
				return h, fmt.Errorf("inspect: scan the registry: %w", err)
			}
			for i := 0; i+1 < len(page.Items); i += 2 {
				if page.Items[i+1] == instance {
					h.IDs = append(h.IDs, page.Items[i])
				}
			}
			cursor = page.Next
		}
	}
	return h, nil
}

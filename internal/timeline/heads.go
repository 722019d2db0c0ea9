package timeline

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

//go:embed heads.lua
var headsLua string

var headsScript = redis.NewScript(headsLua)

// HeadsPage is at most a millisecond of Redis' time.
const HeadsPage = 200

// Heads returns up to most records, without fields of more than 256 bytes. order is XRANGE or
// XREVRANGE, of from and to.
func Heads(
	ctx context.Context, client redis.UniversalClient, key, order, from, to string, most int,
) ([]redis.XMessage, error) {
	rows, err := headsScript.RunRO(ctx, client, []string{key}, order, from, to, most).Slice()
	if err != nil {
		return nil, err
	}
	records := make([]redis.XMessage, 0, len(rows))
	for _, row := range rows {
		v, _ := row.([]any)
		if len(v) == 0 {
			continue
		}
		m := redis.XMessage{ID: fmt.Sprint(v[0]), Values: map[string]any{}}
		for pair := range slices.Chunk(v[1:], 2) {
			if len(pair) == 2 {
				m.Values[fmt.Sprint(pair[0])] = pair[1]
			}
		}
		records = append(records, m)
	}
	return records, nil
}

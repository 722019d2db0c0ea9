package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestTheLogIsReadOnceHoweverManyAreAskedAbout(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		ctx, r, now := t.Context(), New(w.Client, guard.Layout{Prefix: w.Prefix}), time.Now()
		read := 0 // records of the log
		w.Client.AddHook(after(func(cmd redis.Cmder) {
			if m, ok := cmd.(*redis.XMessageSliceCmd); ok {
				read += len(m.Val())
			}
		}))
		evict := func(n int, ids string) {
			require.NoError(t, w.Client.XAdd(ctx, &redis.XAddArgs{
				Stream: r.keys.Log(), ID: fmt.Sprintf("%d-%d", 1000+n/1000, n), Values: []any{
					"at", now.Add(time.Duration(n) * time.Millisecond).UnixMilli(), "owner", "gone", "imeis", ids,
				}}).Err())
		}
		find := func(id string) (ids []string, oldest int64) {
			found, at, err := r.history.of(ctx, r, id, now)
			require.NoError(t, err)
			require.NotNil(t, found)
			for _, rec := range found {
				ids = append(ids, rec.ID)
			}
			return ids, at.UnixMilli() - now.UnixMilli()
		}
		ids, _ := find("7")
		require.Empty(t, ids, "no log yet")
		for n := range 250 {
			evict(n, fmt.Sprintf(`["%d","7","7"]`, 1000+n))
		}
		ids, oldest := find("1249")
		require.Equal(t, []string{"1000-249"}, ids)
		require.Zero(t, oldest)
		read = 0
		for range 100 {
			ids, _ = find("not there")
			require.Empty(t, ids)
		}
		require.Zero(t, read, "only the beginnings of the newest and the oldest are")
		ids, _ = find("7")
		require.Len(t, ids, mostTold)
		require.Equal(t, "1000-249", ids[0])
		evict(250, `["9"]`)
		ids, _ = find("9")
		require.Equal(t, []string{"1000-250"}, ids)

		require.NoError(t, w.Client.XTrimMinID(ctx, r.keys.Log(), "1000-249").Err())
		ids, oldest = find("7")
		require.Equal(t, []string{"1000-249"}, ids)
		require.EqualValues(t, 249, oldest)
		require.NoError(t, w.Client.Del(ctx, r.keys.Log()).Err())
		evict(1, `["7"]`) // another log
		ids, _ = find("7")
		require.Equal(t, []string{"1000-1"}, ids)
		require.Len(t, r.history.named, 1, "the former is forgotten")
		require.NoError(t, w.Client.Del(ctx, r.keys.Log()).Err())
		ids, _ = find("7")
		require.Empty(t, ids)
	})
}

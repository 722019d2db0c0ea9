package lease

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestEpochScript(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		ctx := t.Context()
		lease, epoch, aside := w.Prefix+"leader", w.Prefix+"leader:epoch", w.Prefix+"leader:aside:1"
		damage := ""
		draw := func(token string, above uint64) (string, error) {
			out, err := epochScript.Run(ctx, w.Client, []string{lease, epoch, aside}, token, above).StringSlice()
			if err != nil {
				return "", err
			}
			damage = out[1]
			return out[0], nil
		}
		now := func() uint64 {
			at, err := w.Client.Time(ctx).Result()
			require.NoError(t, err)
			return uint64(at.UnixMicro())
		}

		_, err := draw("a/1", 0)
		require.ErrorIs(t, err, redis.Nil, "nobody holds it")
		require.NoError(t, w.Client.Set(ctx, lease, "a/1", time.Minute).Err())
		_, err = draw("a/2", 0)
		require.ErrorIs(t, err, redis.Nil, "another holds it")
		require.Zero(t, w.Client.Exists(ctx, epoch).Val(), "nothing is written")

		before := now()
		first, err := draw("a/1", 0)
		require.NoError(t, err)
		n, err := strconv.ParseUint(first, 10, 64)
		require.NoError(t, err, "whole microseconds, not 1.79e+15")
		require.GreaterOrEqual(t, n, before)
		require.LessOrEqual(t, n, now())
		require.Equal(t, first, w.Client.Get(ctx, epoch).Val())
		require.Equal(t, time.Duration(-1), w.Client.TTL(ctx, epoch).Val())

		ahead := now() + 1e12
		for _, c := range []struct {
			says          string
			stored, above uint64
			want          uint64
		}{
			{"it is higher than the previous one, though the clock is behind", ahead, 0, ahead + 1},
			{"than the highest met, though the stored one is lower", ahead, ahead + 7, ahead + 8},
		} {
			require.NoError(t, w.Client.Set(ctx, epoch, c.stored, 0).Err())
			got, err := draw("a/1", c.above)
			require.NoError(t, err, c.says)
			require.Equal(t, strconv.FormatUint(c.want, 10), got, c.says)
			require.Equal(t, got, w.Client.Get(ctx, epoch).Val(), c.says)
		}

		require.Empty(t, damage)

		// Nothing that anybody writes there, or a process remembers, may end all terms.
		for _, stored := range []string{
			"9007199254740992", "", "-5", "nan", "1e300", "0x7fffffff", strings.Repeat("9", 400),
			strconv.FormatUint(now()+400*864e8, 10),
		} {
			require.NoError(t, w.Client.Set(ctx, epoch, stored, 0).Err())
			before := now()
			got, err := draw("a/1", 0)
			require.NoError(t, err, stored)
			n, err := strconv.ParseUint(got, 10, 64)
			require.NoError(t, err, stored)
			require.GreaterOrEqual(t, n, before, stored)
			require.LessOrEqual(t, n, now(), stored)
			require.Equal(t, stored[:min(200, len(stored))], damage)
		}
		require.NoError(t, w.Client.Set(ctx, epoch, now()+360*864e8, 0).Err())
		high := w.Client.Get(ctx, epoch).Val()
		got, err := draw("a/1", 1<<53)
		require.NoError(t, err)
		require.Greater(t, got, high, "what is remembered is damage, and what is stored is not")
		require.NoError(t, w.Client.Del(ctx, epoch).Err())
		require.NoError(t, w.Client.RPush(ctx, epoch, "x").Err())
		_, err = draw("a/1", 0)
		require.NoError(t, err)
		require.Equal(t, "a key of another type, now "+aside, damage)
		require.Equal(t, "list", w.Client.Type(ctx, aside).Val(), "it may be somebody's")
		require.NoError(t, w.Client.Del(ctx, epoch).Err())
		require.NoError(t, w.Client.RPush(ctx, epoch, "another").Err())
		_, err = draw("a/1", 0)
		require.ErrorContains(t, err, "epoch is a key of another type")
		require.Equal(t, []string{"x"}, w.Client.LRange(ctx, aside, 0, -1).Val(), "nothing is overwritten")
		require.NoError(t, w.Client.Del(ctx, lease).Err())
		require.NoError(t, w.Client.RPush(ctx, lease, "a/1").Err())
		_, err = draw("a/1", 0)
		require.ErrorIs(t, err, redis.Nil, "a list is nobody's lease")
	})
}

func TestCapScript(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		run := func(key, seen string) (int, error) {
			keys := []string{key, key + ":aside"}
			return capScript.Run(t.Context(), w.Client, keys, seen, ttl.Milliseconds(), mistyped, longest).Int()
		}
		for name, c := range map[string]struct {
			value  string
			expiry time.Duration // 0: none
			want   int
		}{
			"no expiry":                {"a/1", 0, 1},
			"a longer one":             {"a/1", time.Hour, 1},
			"one as it should be":      {"a/1", 14 * time.Second, 0},
			"another value":            {"b/2", 0, 0},
			"an empty value, not seen": {"", 0, 0},
		} {
			lease := w.Prefix + name
			require.NoError(t, w.Client.Set(t.Context(), lease, c.value, c.expiry).Err())
			before := w.Client.PTTL(t.Context(), lease).Val()
			got, err := run(lease, "a/1")
			require.NoError(t, err, name)
			require.Equal(t, c.want, got, name)
			after := w.Client.PTTL(t.Context(), lease).Val()
			if c.want == 1 {
				require.InDelta(t, ttl, after, float64(5*time.Second), name)
			} else {
				require.LessOrEqual(t, after, before, name)
			}
		}
		got, err := run(w.Prefix+"free", "")
		require.NoError(t, err)
		require.Zero(t, got)

		// What is longer than what is read of it.
		long := w.Prefix + "long"
		require.NoError(t, w.Client.Set(t.Context(), long, strings.Repeat("x", 2*longest), 0).Err())
		got, err = run(long, strings.Repeat("x", longest))
		require.NoError(t, err)
		require.Equal(t, 1, got)

		// A key of another type, with an expiry or without, is renamed, and never over another one.
		list := w.Prefix + "list"
		require.NoError(t, w.Client.RPush(t.Context(), list, "x").Err())
		got, err = run(list, "a/1")
		require.NoError(t, err)
		require.Zero(t, got, "another value was seen")
		got, err = run(list, mistyped)
		require.NoError(t, err)
		require.Equal(t, 2, got)
		require.EqualValues(t, -1, w.Client.PTTL(t.Context(), list+":aside").Val())
		require.NoError(t, w.Client.RPush(t.Context(), list, "y").Err())
		got, err = run(list, mistyped)
		require.NoError(t, err)
		require.Zero(t, got)
		require.Equal(t, []string{"x"}, w.Client.LRange(t.Context(), list+":aside", 0, -1).Val())
		require.Equal(t, []string{"y"}, w.Client.LRange(t.Context(), list, 0, -1).Val())
	})
}

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
		do := func(args ...any) { t.Helper(); require.NoError(t, w.Client.Do(ctx, args...).Err()) }
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
		do("SET", lease, "a/1", "EX", 60)
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
			do("SET", epoch, c.stored)
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
			do("SET", epoch, stored)
			before := now()
			got, err := draw("a/1", 0)
			require.NoError(t, err, stored)
			n, err := strconv.ParseUint(got, 10, 64)
			require.NoError(t, err, stored)
			require.GreaterOrEqual(t, n, before, stored)
			require.LessOrEqual(t, n, now(), stored)
			require.Equal(t, stored[:min(200, len(stored))], damage)
		}
		do("SET", epoch, now()+360*864e8)
		high := w.Client.Get(ctx, epoch).Val()
		got, err := draw("a/1", 1<<53)
		require.NoError(t, err)
		require.Greater(t, got, high, "what is remembered is damage, and what is stored is not")
		do("DEL", epoch)
		do("RPUSH", epoch, "x")
		_, err = draw("a/1", 0)
		require.NoError(t, err)
		require.Equal(t, "a key of another type, now "+aside, damage)
		require.Equal(t, "list", w.Client.Type(ctx, aside).Val(), "it may be somebody's")
		do("DEL", epoch)
		do("RPUSH", epoch, "another")
		_, err = draw("a/1", 0)
		require.ErrorContains(t, err, "epoch is a key of another type")
		require.Equal(t, []string{"x"}, w.Client.LRange(ctx, aside, 0, -1).Val(), "nothing is overwritten")
		do("DEL", lease)
		do("RPUSH", lease, "a/1")
		_, err = draw("a/1", 0)
		require.ErrorIs(t, err, redis.Nil, "a list is nobody's lease")
	})
}

func TestCapScript(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		do := func(args ...any) { t.Helper(); require.NoError(t, w.Client.Do(t.Context(), args...).Err()) }
		caps := func(want int, key, seen string) {
			t.Helper()
			keys := []string{key, key + ":aside"}
			got, err := capScript.Run(t.Context(), w.Client, keys, seen, ttl.Milliseconds(), mistyped, longest).Int()
			require.NoError(t, err, key)
			require.Equal(t, want, got, key)
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
			caps(c.want, lease, "a/1")
			after := w.Client.PTTL(t.Context(), lease).Val()
			if c.want == 1 {
				require.InDelta(t, ttl, after, float64(5*time.Second), name)
			} else {
				require.LessOrEqual(t, after, before, name)
			}
		}
		caps(0, w.Prefix+"free", "")

		// What is longer than what is read of it.
		long := w.Prefix + "long"
		do("SET", long, strings.Repeat("x", 2*longest))
		caps(1, long, strings.Repeat("x", longest))

		// A key of another type, with an expiry or without, is renamed, and never over another one.
		list := w.Prefix + "list"
		do("RPUSH", list, "x")
		caps(0, list, "a/1") // another value was seen
		caps(2, list, mistyped)
		require.EqualValues(t, -1, w.Client.PTTL(t.Context(), list+":aside").Val())
		do("RPUSH", list, "y")
		caps(0, list, mistyped)
		require.Equal(t, []string{"x"}, w.Client.LRange(t.Context(), list+":aside", 0, -1).Val())
		require.Equal(t, []string{"y"}, w.Client.LRange(t.Context(), list, 0, -1).Val())
	})
}

package search

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

// What an enemy would write who has read the code: each on one fleet, which is never restarted.
func TestWhatAnEnemyWritesByHandIsSurvived(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		f := newPair(t, w.Options, "{"+w.Prefix+"}:")
		ctx := t.Context()
		f.sweeps()
		huge := strings.Repeat("9", 3*mostReply)
		do := func(args ...any) { require.NoError(t, ignoreNil(f.Do(ctx, args...).Err()), args[:2]) }
		epoch := f.Lease() + ":epoch"
		many := func(command, key, value string) {
			const fill = `for i = 1, 20000 do redis.call(unpack(ARGV[2] == '' and {ARGV[1], KEYS[1], 'm' .. i} or {ARGV[1], KEYS[1], 'm' .. i, ARGV[2]})) end`
			require.NoError(t, ignoreNil(f.Eval(ctx, fill, []string{key}, command, value).Err()))
		}
		for _, c := range []struct {
			name  string
			write func()
			del   string // the one documented step
		}{
			{"records of the batches to come", func() {
				newest := f.XRevRangeN(ctx, f.Log(), "+", "-", 1).Val()[0].ID
				of, n, _ := strings.Cut(newest, "-")
				for i, count := range []string{"-5", "nan", "1e308", "9007199254740993", ""} {
					id := fmt.Sprintf("%s-%d", of, number(n)+1+i)
					do("XADD", f.Log(), id, "leader", "one", "count", count, "reowned", "-1", "note", "x")
				}
			}, ""},
			{"the newest id that this term can have", func() {
				newest := f.XRevRangeN(ctx, f.Log(), "+", "-", 1).Val()[0].ID
				of, _, _ := strings.Cut(newest, "-")
				do("XADD", f.Log(), of+"-18446744073709551615", "a", huge)
			}, ""},
			{"a lease that no client can read", func() { do("SET", f.Lease(), huge) }, ""},
			{"a lease of a living instance that never ends", func() { do("SET", f.Lease(), "one/x") }, ""},
			{"a lease that ends at once", func() { do("SET", f.Lease(), "one/x", "PX", "1") }, ""},
			{"an epoch that no client can read", func() { do("SET", epoch, huge) }, ""},
			{"an epoch at 2^53", func() { do("SET", epoch, "9007199254740992"); f.resign() }, ""},
			{"a witness that no client can read", func() {
				for _, field := range witnessFields {
					do("HSET", f.Witness(), field, huge)
				}
			}, ""},
			{"a witness that never held and never beat", func() {
				do("HSET", f.Witness(), "since", "nan", "last", "-inf", "largest", "1e300", "grace", "-1", "disagreed", "nan")
			}, ""},
			{"settings of two days", func() {
				do("HSET", f.Witness(), "largest", "172800000", "disagreed", time.Now().AddDate(1, 0, 0).UnixMilli())
			}, f.Witness()},
			{"a witness that ends at once", func() { do("PEXPIRE", f.Witness(), "1") }, ""},
			{"20,000 fields in the witness", func() { many("HSET", f.Witness(), "1") }, ""},
			{"a pause that no client can read", func() { do("SET", f.Paused(), huge) }, f.Paused()},
			{"a pause until the year 9999", func() { do("SET", f.Paused(), `{"who":"\u202e","until":"9999-12-31T23:59:59Z"}`) }, f.Paused()},
			{"entries and owners that no client can read", func() {
				do("HSET", f.Registry(), "a", huge, huge, "b", "c\x00\x1b[31m\r\n", "d\xff\u202e")
			}, ""},
			{"20,000 entries of an owner with control characters", func() { many("HSET", f.Registry(), "o\x00\n\u202e") }, ""},
			{"members of the roster that no client can read", func() { do("SADD", f.Roster(), huge, "x\x00\r\n", "") }, ""},
			{"4,000 members of the roster", func() { // beyond 5,000 unknown owners, further ones wait
				ids := make([]any, 4000)
				for i := range ids {
					ids[i] = fmt.Sprint("m", i)
				}
				do(append([]any{"SADD", f.Roster()}, ids...)...)
			}, ""},
			{"a beat of a year ahead", func() {
				do("SET", f.Heartbeat("one"), fmt.Sprintf("%d/%026d", time.Now().AddDate(2, 0, 0).UnixMilli(), 9))
			}, ""},
			{"a beat that no client can read", func() { do("SET", f.Heartbeat("one"), huge) }, ""},
			{"an index that no client can read", func() { do("SADD", f.Devices("one"), huge) }, ""},
			{"contenders that no client can read", func() { do("SADD", f.Contenders(), huge) }, ""},
			{"what somebody may have set aside", func() {
				_, err := f.TxPipelined(ctx, func(p redis.Pipeliner) error { // or a tick comes between
					p.Del(ctx, f.Witness())
					p.RPush(ctx, f.Witness(), "x")
					return nil
				})
				require.NoError(t, err)
			}, ""},
		} {
			c.write()
			if c.del != "" {
				require.NoError(t, f.Del(ctx, c.del).Err())
			}
			f.sweeps(c.name)
			waittest.Until(t, 10*time.Millisecond, f.whole, c.name)
			require.Zero(t, f.livingEvicted(), c.name)
		}
	})
}

func ignoreNil(err error) error {
	if err == redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return nil
	}
	return err
}

func number(text string) (n int) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

package inspect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/timeline"
)

func names(s Status) (all []string) {
	for _, p := range s.Findings() {
		all = append(all, p.Name)
	}
	return all
}

func TestKeysOfAnotherTypeAreNamedAndHideNothingElse(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		ctx := t.Context()
		for _, d := range l.r.types() {
			require.NoError(t, l.Del(ctx, d.Key).Err())
			require.NoError(t, l.ZAdd(ctx, d.Key, redis.Z{Member: "x"}).Err())
		}
		watch := l.r.Watch()
		for range 2 {
			s, err := watch.Status(ctx)
			require.NoError(t, err)
			require.Len(t, s.Damaged, len(watch.types()))
			for _, d := range watch.types() {
				require.Contains(t, names(s), "types:"+d.Key)
			}
			require.Equal(t, Wrong, s.Findings()[0].Level)
			require.Equal(t, "(a key of another type)", s.Leader.Instance)
		}
		require.Equal(t, Wrong, l.check("types:"+l.keys.Lease()).Level)
	})
}

func TestALeaseThatNoInstanceHoldsIsAProblem(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		ctx := t.Context()
		require.NoError(t, l.Set(ctx, l.keys.Lease(), "squat", 1000*time.Hour).Err())
		s := l.status()
		require.Contains(t, s.Stopped().Sentence,
			"Nobody leads: squat holds the lease for 1000h more but is no living instance")

		require.NoError(t, l.Set(ctx, l.keys.Heartbeat("squat"), "x", time.Hour).Err())
		s = l.status()
		require.Contains(t, names(s), "leader", "it lives, and nothing is swept all the same")
	})
}

func TestAnEpochThatSomebodyOverwroteHidesNoLeader(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		ctx := t.Context()
		epoch := l.term(time.Minute)
		require.NoError(t, l.Set(ctx, l.keys.Lease(), "two/x", time.Minute).Err())
		l.record(fmt.Sprintf("%d-0", epoch), "leader", "two", "term", "two/x")
		for _, is := range []string{"9007199254740991", "18446744073709551615", "abc", ""} {
			require.NoError(t, l.Set(ctx, "{"+l.keys.Lease()+"}:epoch", is, 0).Err())
			led, sentence := l.led()
			require.True(t, led, "%q: %s", is, sentence)
		}
	})
}

func TestWhatIsReadOfAFleetIsBounded(t *testing.T) {
	t.Parallel()
	w := redistest.World{Client: redistest.Start(t).Client(), Prefix: redistest.Prefix(t), Real: true}
	w.Options = w.Client.Options()
	l := setup(t, w)
	ctx := t.Context()
	const fill = `for i = 1, tonumber(ARGV[1]) do redis.call('SADD', KEYS[1], 'fake-' .. i) end`
	require.NoError(t, ignoreNil(l.Eval(ctx, fill, []string{l.keys.Roster()}, 2*mostRoster).Err()))
	const about = `redis.call('SET', KEYS[1], '{"version":"' .. string.rep('v', 8000000) .. '"}')`
	require.NoError(t, ignoreNil(l.Eval(ctx, about, []string{l.keys.About("fake-1")}).Err()))
	require.NoError(t, ignoreNil(l.Eval(ctx, about, []string{l.keys.Heartbeat("fake-1")}).Err()))
	const events = `for i = 1, 1500 do redis.call('XADD', KEYS[1], '*', 'kind', 'pause', 'who', ARGV[1] .. i, 'why', string.rep('y', 5000)) end`
	require.NoError(t, ignoreNil(l.Eval(ctx, events, []string{l.keys.Timeline()}, "who").Err()))

	watch := l.r.Watch()
	s, err := watch.Status(ctx)
	require.NoError(t, err)
	require.InDelta(t, mostRoster, len(s.Instances), pageSize)
	require.EqualValues(t, 2*mostRoster-len(s.Instances), s.Cut)
	require.Contains(t, names(s), "roster")
	for _, in := range s.Instances {
		require.Less(t, len(in.Version), 300)
	}
	const large = `for i = 1, tonumber(ARGV[1]) do redis.call('SET', KEYS[1] .. i, ARGV[2]) end`
	passes := `{"passes":[{"sweep":"` + strings.Repeat("s", longestAbout-100) + `"}]}`
	fakes := l.keys.About("fake-")
	require.NoError(t, ignoreNil(l.Eval(ctx, large, []string{fakes}, mostRoster/2, passes).Err()))
	const long = `for i = 1, 2000 do redis.call('SADD', KEYS[1], string.rep('n', 1000) .. i) end`
	require.NoError(t, ignoreNil(l.Eval(ctx, long, []string{l.keys.Roster() + ":long"}).Err()))
	require.NoError(t, l.Rename(ctx, l.keys.Roster(), l.keys.Roster()+":short").Err())
	require.NoError(t, l.Rename(ctx, l.keys.Roster()+":long", l.keys.Roster()).Err())
	ids, cut, err := l.r.roster(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, len(ids), mostNames/1000)
	require.EqualValues(t, 2000-len(ids), cut)
	require.NoError(t, l.Rename(ctx, l.keys.Roster()+":short", l.keys.Roster()).Err())
	ids, _, err = l.r.roster(ctx)
	require.NoError(t, err)
	said, err := l.r.Abouts(ctx, ids)
	require.NoError(t, err)
	require.NotEmpty(t, said)
	require.Less(t, len(said), mostAbouts/len(passes)+2*aboutPage)

	told := watch.Timeline()
	require.LessOrEqual(t, len(told), mostEvents)
	require.Equal(t, "who1500", told[len(told)-1].Who, "the newest are kept")
	require.Empty(t, told[0].Why, "and what is long is not read")
	require.Equal(t, timeline.Pause, told[0].Kind)
}

func ignoreNil(err error) error {
	if err == redis.Nil {
		return nil
	}
	return err
}

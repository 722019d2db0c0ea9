package together_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// seen is a hook that records the number of commands of each pipeline, and can fail them.
type seen struct {
	mu    sync.Mutex
	pipes []int
	err   error
}

func (s *seen) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s *seen) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *seen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.mu.Lock()
		err := s.err
		if cmds[0].Name() == "incr" { // otherwise a connection is being set up
			s.pipes = append(s.pipes, len(cmds))
		}
		s.mu.Unlock()
		if err == nil {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

func inBubble(t *testing.T, f func(t *testing.T, c *redis.Client, s *seen)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := redis.NewClient(redistest.Fake(t)), &seen{}
		defer func() { require.NoError(t, c.Close()) }()
		c.AddHook(s)
		f(t, c, s)
	})
}

const within = 300 * time.Millisecond

// ask makes a member increment a counter, after a while, and returns the result and when.
func ask(t *testing.T, m *together.Member, after time.Duration) (n int64, took time.Duration, err error) {
	time.Sleep(after)
	begun := time.Now()
	var cmd *redis.IntCmd
	err = m.Do(t.Context(), within, func(pipe redis.Pipeliner) { cmd = pipe.Incr(t.Context(), "n") })
	return cmd.Val(), time.Since(begun), errors.Join(err, cmd.Err())
}

func TestAllAskInOnePipelineAsSoonAsTheLastHasAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, s *seen) {
		var all sync.WaitGroup
		for i := range 16 {
			m := together.Join(c, "test")
			defer m.Leave()
			all.Go(func() {
				_, took, err := ask(t, m, time.Second+time.Duration(i)*time.Millisecond)
				require.NoError(t, err)
				require.Equal(t, time.Duration(15-i)*time.Millisecond, took)
			})
		}
		all.Wait()
		require.Equal(t, []int{16}, s.pipes)
		require.Equal(t, int64(16), must(c.Get(t.Context(), "n").Int64()))
	})
}

func TestWhoDoesNotAskIsNotWaitedForForLong(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, s *seen) {
		a, b, silent := together.Join(c, "test"), together.Join(c, "test"), together.Join(c, "test")
		defer a.Leave()
		defer b.Leave()
		var all sync.WaitGroup
		all.Go(func() {
			_, took, err := ask(t, b, 100*time.Millisecond)
			require.NoError(t, err)
			require.Equal(t, within-100*time.Millisecond, took)
		})
		_, took, err := ask(t, a, 0)
		require.NoError(t, err)
		require.Equal(t, within, took)
		all.Wait()
		require.Equal(t, []int{2}, s.pipes)

		silent.Leave()
		all.Go(func() {
			_, _, err := ask(t, b, 0)
			require.NoError(t, err)
		})
		_, took, err = ask(t, a, 0)
		require.NoError(t, err)
		require.Zero(t, took)
		all.Wait()
	})
}

func TestOneThatAsksMoreOftenIsNotKeptWaitingByOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, s *seen) {
		seldom, often, silent := together.Join(c, "test"), together.Join(c, "test"), together.Join(c, "test")
		defer seldom.Leave()
		defer often.Leave()
		defer silent.Leave()
		var all sync.WaitGroup
		all.Go(func() {
			time.Sleep(100 * time.Millisecond)
			begun := time.Now()
			require.NoError(t, often.Do(t.Context(), time.Millisecond, func(pipe redis.Pipeliner) { pipe.Incr(t.Context(), "n") }))
			require.Equal(t, time.Millisecond, time.Since(begun))
		})
		_, took, err := ask(t, seldom, 0)
		require.NoError(t, err)
		require.Equal(t, 101*time.Millisecond, took)
		all.Wait()
		require.Equal(t, []int{2}, s.pipes)
	})
}

func TestWhoIsAloneWaitsForNobodyAndNeedsNoPipeline(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, s *seen) {
		m := together.Join(c, "test")
		defer m.Leave()
		n, took, err := ask(t, m, 0)
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		require.Zero(t, took)
		require.Empty(t, s.pipes)
	})
}

func TestAFailureIsEverybodys(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, s *seen) {
		s.err = errors.New("lost")
		a, b := together.Join(c, "test"), together.Join(c, "test")
		defer a.Leave()
		defer b.Leave()
		var all sync.WaitGroup
		for _, m := range []*together.Member{a, b} {
			all.Go(func() {
				_, _, err := ask(t, m, 0)
				require.ErrorIs(t, err, s.err)
			})
		}
		all.Wait()
	})
}

func TestTheEndOfWhoAskedFirstDoesNotTakeTheOthersAlong(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, _ *seen) {
		a, b, silent := together.Join(c, "test"), together.Join(c, "test"), together.Join(c, "test")
		defer a.Leave()
		defer b.Leave()
		defer silent.Leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			_ = a.Do(ctx, within, func(pipe redis.Pipeliner) { pipe.Incr(ctx, "n") })
		})
		synctest.Wait()
		all.Go(func() {
			n, took, err := ask(t, b, 0)
			require.NoError(t, err)
			require.Equal(t, int64(2), n)
			require.Zero(t, took)
		})
		synctest.Wait()
		cancel()
		all.Wait()
	})
}

func TestMembersOfAnotherPurposeAreNotWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, _ *seen) {
		m, other := together.Join(c, "test"), together.Join(c, "another")
		defer m.Leave()
		defer other.Leave()
		_, took, err := ask(t, m, 0)
		require.NoError(t, err)
		require.Zero(t, took)
	})
}

func TestATurnIsNotBeforeWhatIsAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, _ *seen) {
		m := together.Join(c, "test")
		defer m.Leave()
		time.Sleep(7 * time.Second)
		require.Equal(t, 3*time.Second, m.Turns(5*time.Second))
		require.Equal(t, 3*time.Second, m.TurnAfter(2*time.Second, 5*time.Second))
		require.Equal(t, 8*time.Second, m.TurnAfter(4*time.Second, 5*time.Second))
		require.Equal(t, 8*time.Second, m.TurnAfter(3*time.Second, 5*time.Second))
	})
}

func TestAConnectionThatIsRefusedIsAnError(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	require.NoError(t, srv.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	o := srv.Options()
	o.Password = "wrong"
	c := redis.NewClient(o)
	defer c.Close()
	pipe := c.Pipeline()
	cmd := pipe.Get(t.Context(), "key")
	require.Error(t, errors.Join(together.Exec(t.Context(), pipe), cmd.Err()))
}

func TestOnAClusterOneServerThatIsGoneKeepsNobodyElse(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	c := redis.NewClusterClient(lease.ClusterOptions(cluster.Options()))
	defer c.Close()
	require.NoError(t, c.Set(t.Context(), "{a}", 1, 0).Err())
	gone := cluster.Owner("{b}")
	require.NotEqual(t, cluster.Owner("{a}").Addr(), gone.Addr())
	a, b := together.Join(c, "test"), together.Join(c, "test")
	defer a.Leave()
	defer b.Leave()
	gone.Kill()
	var all sync.WaitGroup
	for m, key := range map[*together.Member]string{a: "{a}", b: "{b}"} {
		all.Go(func() {
			var cmd *redis.IntCmd
			err := m.Do(t.Context(), time.Minute, func(pipe redis.Pipeliner) { cmd = pipe.Incr(t.Context(), key) })
			require.NoError(t, err)
			_, refused := errors.AsType[net.Error](cmd.Err())
			require.Equal(t, key == "{b}", refused, "%s: %v", key, cmd.Err())
		})
	}
	all.Wait()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestTheAnswerGetsHalfOfTheTimeHoweverLongOthersAreWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, c *redis.Client, _ *seen) {
		a, silent := together.Join(c, "test"), together.Join(c, "test")
		defer a.Leave()
		defer silent.Leave()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var cmd *redis.IntCmd
		require.NoError(t, a.Do(ctx, time.Minute, func(pipe redis.Pipeliner) { cmd = pipe.Incr(ctx, "n") }))
		require.NoError(t, cmd.Err())
		require.Equal(t, time.Second, time.Since(begun))
	})
}

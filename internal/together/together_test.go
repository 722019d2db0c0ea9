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

// bubble is a test in a bubble, with a client.
type bubble struct {
	*testing.T
	*redis.Client
	seen
}

func inBubble(t *testing.T, f func(w *bubble)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &bubble{T: t, Client: redis.NewClient(redistest.Fake(t))}
		defer func() { require.NoError(t, w.Close()) }()
		w.Client.AddHook(&w.seen)
		f(w)
	})
}

// join returns so many members. They leave at the end.
func (w *bubble) join(n int) (all []*together.Member) {
	for range n {
		m := together.Join(w.Client, "test")
		w.Cleanup(m.Leave)
		all = append(all, m)
	}
	return all
}

const within = 300 * time.Millisecond

// asks makes a member increment a counter, which takes so long.
func (w *bubble) asks(m *together.Member, took time.Duration) int64 {
	begun := time.Now()
	var cmd *redis.IntCmd
	err := m.Do(w.Context(), within, func(pipe redis.Pipeliner) { cmd = pipe.Incr(w.Context(), "n") })
	require.ErrorIs(w, errors.Join(err, cmd.Err()), w.err)
	require.Equal(w, took, time.Since(begun))
	return cmd.Val()
}

func TestAllAskInOnePipelineAsSoonAsTheLastHasAsked(t *testing.T) {
	inBubble(t, func(w *bubble) {
		var all sync.WaitGroup
		for i, m := range w.join(16) {
			all.Go(func() {
				time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
				w.asks(m, time.Duration(15-i)*time.Millisecond)
			})
		}
		all.Wait()
		require.Equal(w, []int{16}, w.pipes)
		require.Equal(w, "16", w.Get(w.Context(), "n").Val())
	})
}

func TestWhoDoesNotAskIsNotWaitedForForLong(t *testing.T) {
	inBubble(t, func(w *bubble) {
		var all sync.WaitGroup
		m, silent := w.join(2), together.Join(w.Client, "test")
		all.Go(func() {
			time.Sleep(100 * time.Millisecond)
			w.asks(m[1], within-100*time.Millisecond)
		})
		w.asks(m[0], within)
		all.Wait()
		require.Equal(w, []int{2}, w.pipes)

		silent.Leave()
		all.Go(func() { w.asks(m[1], 0) })
		w.asks(m[0], 0)
		all.Wait()
	})
}

func TestOneThatAsksMoreOftenIsNotKeptWaitingByOthers(t *testing.T) {
	inBubble(t, func(w *bubble) {
		var all sync.WaitGroup
		m := w.join(3)
		all.Go(func() {
			time.Sleep(100 * time.Millisecond)
			begun := time.Now()
			incr := func(pipe redis.Pipeliner) { pipe.Incr(w.Context(), "n") }
			require.NoError(w, m[1].Do(w.Context(), time.Millisecond, incr))
			require.Equal(w, time.Millisecond, time.Since(begun))
		})
		w.asks(m[0], 101*time.Millisecond)
		all.Wait()
		require.Equal(w, []int{2}, w.pipes)
	})
}

func TestWhoIsAloneWaitsForNobodyAndNeedsNoPipeline(t *testing.T) {
	inBubble(t, func(w *bubble) {
		other := together.Join(w.Client, "another purpose")
		defer other.Leave()
		require.Equal(w, int64(1), w.asks(w.join(1)[0], 0))
		require.Empty(w, w.pipes)
	})
}

func TestAFailureIsEverybodys(t *testing.T) {
	inBubble(t, func(w *bubble) {
		w.err = errors.New("lost")
		var all sync.WaitGroup
		for _, m := range w.join(2) {
			all.Go(func() { w.asks(m, 0) })
		}
		all.Wait()
	})
}

func TestTheEndOfWhoAskedFirstDoesNotTakeTheOthersAlong(t *testing.T) {
	inBubble(t, func(w *bubble) {
		m := w.join(3)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			_ = m[0].Do(ctx, within, func(pipe redis.Pipeliner) { pipe.Incr(ctx, "n") })
		})
		synctest.Wait()
		all.Go(func() { require.Equal(w, int64(2), w.asks(m[1], 0)) })
		synctest.Wait()
		cancel()
		all.Wait()
	})
}

func TestATurnIsNotBeforeWhatIsAsked(t *testing.T) {
	inBubble(t, func(w *bubble) {
		m := w.join(1)[0]
		time.Sleep(7 * time.Second)
		require.Equal(w, 3*time.Second, m.Turns(5*time.Second))
		require.Equal(w, 3*time.Second, m.TurnAfter(2*time.Second, 5*time.Second))
		require.Equal(w, 8*time.Second, m.TurnAfter(4*time.Second, 5*time.Second))
		require.Equal(w, 8*time.Second, m.TurnAfter(3*time.Second, 5*time.Second))
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

func TestTheAnswerGetsHalfOfTheTimeHoweverLongOthersAreWaitedFor(t *testing.T) {
	inBubble(t, func(w *bubble) {
		m, begun := w.join(2), time.Now()
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		var cmd *redis.IntCmd
		require.NoError(w, m[0].Do(ctx, time.Minute, func(pipe redis.Pipeliner) { cmd = pipe.Incr(ctx, "n") }))
		require.NoError(w, cmd.Err())
		require.Equal(w, time.Second, time.Since(begun))
	})
}

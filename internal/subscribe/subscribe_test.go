package subscribe_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/subscribe"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const silence = time.Minute

// line is a connection that can break silently: nothing arrives any more.
type line struct {
	net.Conn
	broken *atomic.Bool
}

func (l line) Write(b []byte) (int, error) {
	if l.broken.Load() {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

func (l line) Read(b []byte) (int, error) {
	for {
		n, err := l.Conn.Read(b)
		if err != nil || !l.broken.Load() {
			return n, err
		}
	}
}

// subscriber is a running subscriber and its history.
type subscriber struct {
	refuse atomic.Bool   // of connections
	client *redis.Client // subscribes
	other  *redis.Client // publishes
	stop   func()

	mu         sync.Mutex
	heard      []string
	subscribed []bool
	broken     []*atomic.Bool // one per line
}

func (s *subscriber) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// told returns its messages, its changes of subscription, and how often it dialled.
func (s *subscriber) told() (heard []string, subscribed []bool, dials int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard), slices.Clone(s.subscribed), len(s.broken)
}

// cut breaks the newest line.
func (s *subscriber) cut() { s.note(func() { s.broken[len(s.broken)-1].Store(true) }) }

func start(t *testing.T) *subscriber {
	s := &subscriber{}
	o := redistest.Fake(t)
	s.other = redis.NewClient(lease.Options(o))
	mine := *o
	mine.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if s.refuse.Load() {
			return nil, net.ErrClosed
		}
		conn, err := o.Dialer(ctx, network, addr)
		l := line{conn, new(atomic.Bool)}
		s.note(func() { s.broken = append(s.broken, l.broken) })
		return l, err
	}
	client := redis.NewClient(lease.Options(&mine))
	s.client = client
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		subscribe.Channel{
			Client: client, Name: "news", Silence: silence, Retry: func() time.Duration { return time.Second },
			Message:    func(m string) { s.note(func() { s.heard = append(s.heard, m) }) },
			Subscribed: func(is bool) { s.note(func() { s.subscribed = append(s.subscribed, is) }) },
			Log:        slog.New(slog.DiscardHandler),
		}.Run(ctx)
	}()
	s.stop = func() { cancel(); <-ended; _ = client.Close() }
	t.Cleanup(func() { s.stop(); _ = s.other.Close() })
	synctest.Wait()
	return s
}

// publish publishes a message and returns the number of receivers.
func (s *subscriber) publish(t *testing.T, m string) int64 {
	n, err := s.other.Publish(t.Context(), "news", m).Result()
	require.NoError(t, err)
	synctest.Wait()
	return n
}

func TestALongSilenceIsNoReasonToSubscribeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		for range 3 {
			time.Sleep(20 * silence)
			require.EqualValues(t, 1, s.publish(t, "news"))
		}
		heard, subscribed, dials := s.told()
		require.Equal(t, []string{"news", "news", "news"}, heard)
		require.Equal(t, []bool{true}, subscribed)
		require.Equal(t, 1, dials)
	})
}

func TestAConnectionThatBrokeWithoutASignIsFoundAfterTwoSilences(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.cut()
		s.publish(t, "nobody hears this")
		heard, subscribed, _ := s.told()
		require.Empty(t, heard)
		require.Equal(t, []bool{true}, subscribed, "nobody knows yet")
		time.Sleep(2*silence + 2*time.Second)
		synctest.Wait()
		s.publish(t, "news")
		heard, subscribed, dials := s.told()
		require.Equal(t, []string{"news"}, heard)
		require.Equal(t, []bool{true, false, true}, subscribed)
		require.Equal(t, 2, dials)
	})
}

func TestARenewedSubscriptionIsOnAnotherConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.cut()
		subscribe.Renew(s.client)
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 1, s.publish(t, "news"))
		heard, subscribed, dials := s.told()
		require.Equal(t, []string{"news"}, heard)
		require.Equal(t, []bool{true, false, true}, subscribed)
		require.Equal(t, 2, dials)
		subscribe.Renew(s.other) // has no channels
	})
}

func TestItSubscribesAgainWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.refuse.Store(true)
		s.cut()
		time.Sleep(10 * silence)
		_, _, dials := s.told()
		require.Equal(t, 1, dials)
		s.refuse.Store(false)
		time.Sleep(2 * time.Second)
		s.publish(t, "news")
		heard, _, _ := s.told()
		require.Equal(t, []string{"news"}, heard)
	})
}

func TestItEndsAtOnceThoughAReadIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		begun := time.Now()
		s.stop()
		require.Zero(t, time.Since(begun))
		_, subscribed, _ := s.told()
		require.Equal(t, []bool{true, false}, subscribed)
		synctest.Wait() // the server notices the end too
		require.Zero(t, s.publish(t, "nobody"))
	})
}

func TestChannelsOfOneClientShareAConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		heard := map[string][]string{}
		var ended sync.WaitGroup
		for _, name := range []string{"weather", "sports", "sports"} {
			ended.Go(func() {
				subscribe.Channel{
					Client: s.client, Name: name, Silence: silence, Retry: func() time.Duration { return time.Second },
					Message: func(m string) {
						mu.Lock()
						defer mu.Unlock()
						heard[name] = append(heard[name], m)
					},
					Log: slog.New(slog.DiscardHandler),
				}.Run(ctx)
			})
		}
		synctest.Wait()
		publish := func(receivers int64) {
			for _, name := range []string{"weather", "sports"} {
				n, err := s.other.Publish(t.Context(), name, "of "+name).Result()
				require.NoError(t, err)
				require.Equal(t, receivers, n)
			}
			synctest.Wait()
		}
		publish(1)
		s.cut()
		time.Sleep(2*silence + 2*time.Second)
		synctest.Wait()
		publish(1)
		mu.Lock()
		require.Equal(t, map[string][]string{
			"weather": {"of weather", "of weather"},
			"sports":  {"of sports", "of sports", "of sports", "of sports"}, // two receivers
		}, heard)
		mu.Unlock()
		_, _, dials := s.told()
		require.Equal(t, 2, dials, "one, and one after it broke")
		cancel()
		ended.Wait()
		synctest.Wait()
		publish(0)
		require.EqualValues(t, 1, s.publish(t, "news"), "who stays is still told")
	})
}

package subscribe_test

import (
	"context"
	"log/slog"
	"net"
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
	*testing.T
	refuse atomic.Bool   // of connections
	client *redis.Client // subscribes
	other  *redis.Client // publishes
	stop   func()

	mu      sync.Mutex
	heard   []string
	changes []bool
	broken  []*atomic.Bool // one per line
}

func (s *subscriber) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// told checks its messages, its changes of subscription, and how often it dialled.
func (s *subscriber) told(heard []string, changes []bool, dials int) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(s, heard, s.heard)
	require.Equal(s, changes, s.changes)
	require.Len(s, s.broken, dials)
}

// cut breaks the newest line.
func (s *subscriber) cut() { s.note(func() { s.broken[len(s.broken)-1].Store(true) }) }

// subscribed runs f in a bubble with a subscriber.
func subscribed(t *testing.T, f func(s *subscriber)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(start(t)) })
}

func start(t *testing.T) *subscriber {
	s := &subscriber{T: t}
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
			Subscribed: func(is bool) { s.note(func() { s.changes = append(s.changes, is) }) },
			Log:        slog.New(slog.DiscardHandler),
		}.Run(ctx)
	}()
	s.stop = func() { cancel(); <-ended; _ = client.Close() }
	t.Cleanup(func() { s.stop(); _ = s.other.Close() })
	synctest.Wait()
	return s
}

// publish publishes a message and returns the number of receivers.
func (s *subscriber) publish(m string) int64 {
	n, err := s.other.Publish(s.Context(), "news", m).Result()
	require.NoError(s, err)
	synctest.Wait()
	return n
}

func TestALongSilenceIsNoReasonToSubscribeAgain(t *testing.T) {
	subscribed(t, func(s *subscriber) {
		for range 3 {
			time.Sleep(20 * silence)
			require.EqualValues(s, 1, s.publish("news"))
		}
		s.told([]string{"news", "news", "news"}, []bool{true}, 1)
	})
}

func TestAConnectionThatBrokeWithoutASignIsFoundAfterTwoSilences(t *testing.T) {
	subscribed(t, func(s *subscriber) {
		s.cut()
		s.publish("nobody hears this")
		s.told(nil, []bool{true}, 1) // nobody knows yet
		time.Sleep(2*silence + 2*time.Second)
		synctest.Wait()
		s.publish("news")
		s.told([]string{"news"}, []bool{true, false, true}, 2)
	})
}

func TestARenewedSubscriptionIsOnAnotherConnection(t *testing.T) {
	subscribed(t, func(s *subscriber) {
		s.cut()
		subscribe.Renew(s.client)
		time.Sleep(2 * time.Second)
		require.EqualValues(s, 1, s.publish("news"))
		s.told([]string{"news"}, []bool{true, false, true}, 2)
		subscribe.Renew(s.other) // has no channels
	})
}

func TestItSubscribesAgainWhenRedisIsBack(t *testing.T) {
	subscribed(t, func(s *subscriber) {
		s.refuse.Store(true)
		s.cut()
		time.Sleep(10 * silence)
		require.Len(s, s.broken, 1)
		s.refuse.Store(false)
		time.Sleep(2 * time.Second)
		s.publish("news")
		s.told([]string{"news"}, []bool{true, false, true}, 2)
	})
}

func TestItEndsAtOnceThoughAReadIsUnderWay(t *testing.T) {
	subscribed(t, func(s *subscriber) {
		begun := time.Now()
		s.stop()
		require.Zero(s, time.Since(begun))
		s.told(nil, []bool{true, false}, 1)
		synctest.Wait() // the server notices the end too
		require.Zero(s, s.publish("nobody"))
	})
}

func TestChannelsOfOneClientShareAConnection(t *testing.T) {
	subscribed(t, func(s *subscriber) {
		ctx, cancel := context.WithCancel(s.Context())
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
				n, err := s.other.Publish(s.Context(), name, "of "+name).Result()
				require.NoError(s, err)
				require.Equal(s, receivers, n)
			}
			synctest.Wait()
		}
		publish(1)
		s.cut()
		time.Sleep(2*silence + 2*time.Second)
		synctest.Wait()
		publish(1)
		mu.Lock()
		require.Equal(s, map[string][]string{
			"weather": {"of weather", "of weather"},
			"sports":  {"of sports", "of sports", "of sports", "of sports"}, // two receivers
		}, heard)
		mu.Unlock()
		s.told(nil, []bool{true, false, true}, 2) // one connection, and one after it broke
		cancel()
		ended.Wait()
		synctest.Wait()
		publish(0)
		require.EqualValues(s, 1, s.publish("news"), "who stays is still told")
	})
}

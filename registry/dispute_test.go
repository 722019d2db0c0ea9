package registry_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

// sockets closes displaced claims at a replica, like a gateway, unless they speak within a minute.
type sockets struct {
	moves
	open map[string]*registry.Claim
}

func (s *sockets) config(c *registry.Config) {
	s.open = make(map[string]*registry.Claim)
	s.tell(c)
	note := c.OnDisplaced
	c.OnDisplaced = func(imei, owner string) {
		note(imei, owner)
		s.mu.Lock()
		defer s.mu.Unlock()
		if claim := s.open[imei]; claim != nil {
			time.AfterFunc(time.Minute, claim.Release)
		}
	}
}

// keep closes a claim when it is displaced.
func (s *sockets) keep(imei string, c *registry.Claim) *registry.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[imei] = c
	return c
}

// hiccup registers imei at r while Redis is slow for longer than a handshake is fresh.
func hiccup(t *testing.T, r *replica, imei string) *registry.Claim {
	r.data.set(func(redis.Cmder) error { time.Sleep(4 * time.Second); return errLost }, nil)
	c := r.Register(imei)
	time.Sleep(5 * time.Second)
	r.data.set(nil, nil)
	return c
}

func withAndWithoutIndex(t *testing.T, f func(t *testing.T, w *bubble, index func(*registry.Config))) {
	for name, without := range map[string]bool{"with the index": false, "without it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, w *bubble) {
				f(t, w, func(c *registry.Config) { c.NoReverseIndex = without })
			})
		})
	}
}

func TestAParkedDeviceIsRoutableAgainThoughRedisWasSlowWhenItMoved(t *testing.T) {
	t.Parallel()
	withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
		var at1, at2 sockets
		r1, r2 := w.start("r1", index, at1.config), w.start("r2", index, at2.config)
		at2.keep("imei", r2.register(t, "imei")) // the half-open socket that it leaves
		time.Sleep(time.Minute)
		c := at1.keep("imei", hiccup(t, r1, "imei"))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		require.NoError(t, c.Wait(t.Context()))
		require.Empty(t, at1.since(), "the socket that is open is left alone")
		require.Equal(t, []string{"imei is at r1"}, at2.since())
		require.Zero(t, r1.Status().Foreign)
		w.end(r2)
		c.Release()
		w.end(r1)
	})
}

func TestADeviceThatSpeaksWhereItsEntrySaysStaysThere(t *testing.T) {
	t.Parallel()
	withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
		var at1, at2 sockets
		r1, r2 := w.start("r1", index, at1.config), w.start("r2", index, at2.config)
		there := r2.register(t, "imei")
		c := at1.keep("imei", hiccup(t, r1, "imei")) // a handshake read late: the device is gone
		for range 20 {
			time.Sleep(20 * time.Second)
			frame(there)
		}
		require.Equal(t, "r2", w.owner("imei"))
		require.Equal(t, []string{"imei is at r2"}, at1.since())
		require.LessOrEqual(t, len(at2.since()), 1, "before it spoke")
		c.Release()
		w.end(r1)
		require.Equal(t, "r2", w.owner("imei"))
		there.Release()
		w.end(r2)
	})
}

func TestWhatNamesAnOwnerThatDoesNotHoldItIsHandedBackWhenItIsAsked(t *testing.T) {
	t.Parallel()
	withAndWithoutIndex(t, func(t *testing.T, w *bubble, index func(*registry.Config)) {
		var at1, at2 sockets
		r1, r2 := w.start("r1", index, at1.config), w.start("r2", index, at2.config)
		at1.keep("imei", r1.register(t, "imei"))
		w.HSet(t.Context(), w.Registry(), "imei", "r2") // a late write of r2
		time.Sleep(11 * r1.Timing().Interval)
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		require.Empty(t, at1.since())
		require.Empty(t, at2.since())
		require.Zero(t, r2.Remembered())
		w.end(r1)
		w.end(r2)
	})
}

func TestAnOwnerIsAskedAgainWhileItDoesNotHear(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var at1, at2 sockets
		r1, r2 := w.start("r1", at1.config), w.start("r2", at2.config)
		at2.keep("imei", r2.register(t, "imei"))
		time.Sleep(time.Second)
		var lost atomic.Int64
		c := hiccup(t, r1, "imei")
		r1.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "publish" {
				lost.Add(1)
				return errLost
			}
			return nil
		}, nil)
		time.Sleep(10 * r1.Timing().Interval)
		require.InDelta(t, 10, lost.Load(), 1, "once an interval")
		require.Equal(t, "r2", w.owner("imei"))
		r1.data.set(nil, nil)
		time.Sleep(r1.Timing().Interval + 2*time.Minute)
		synctest.Wait()
		require.Equal(t, "r1", w.owner("imei"))
		require.Empty(t, at1.since())
		c.Release()
		w.end(r1)
		w.end(r2)
	})
}

func TestTwoThatDisputeDevicesTalkLittle(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told moves // and no reaction to it
		r1, r2 := w.start("r1", told.tell), w.start("r2", told.tell)
		const many = 600
		r1.registerMany(t, many)
		time.Sleep(time.Second)
		r2.registerMany(t, many)
		synctest.Wait()
		require.Len(t, told.since(), many)
		require.Equal(t, many, r1.Status().Foreign)
		said := map[*replica]*atomic.Int64{r1: new(atomic.Int64), r2: new(atomic.Int64)}
		for r, n := range said {
			r.data.set(func(cmd redis.Cmder) error {
				if cmd.Name() == "publish" {
					n.Add(1)
					require.LessOrEqual(t, len(strings.Fields(fmt.Sprintf("%s", cmd.Args()[2]))), 1+2*500)
				}
				return nil
			}, nil)
		}
		time.Sleep(10 * r1.Timing().Interval)
		synctest.Wait()
		batches := many/500 + 1
		require.InDelta(t, 10*batches, said[r1].Load(), float64(2*batches))
		require.Equal(t, said[r1].Load(), said[r2].Load(), "each is answered once")
		for _, r := range []*replica{r1, r2} {
			r.data.set(nil, nil)
		}
		w.kill(r1)
		w.kill(r2)
	})
}

// A failed heal is not retried while the device is in dispute, so nothing counts as failing.
func TestAHealThatIsNoLongerWantedFailsNoMore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told moves // and no reaction to it
		r1, r2 := w.start("r1", told.tell), w.start("r2", told.tell)
		c := r1.register(t, "imei")
		time.Sleep(time.Second)
		r2.register(t, "imei")
		synctest.Wait()
		require.Equal(t, 1, r1.Status().Foreign)
		r1.data.set(failing("evalsha"), nil)
		frame(c)
		c.FrameReceived() // proof, but the heal fails
		synctest.Wait()
		require.NotEmpty(t, r1.Status().Failing["heal"])
		time.Sleep(5 * time.Second)
		r1.data.set(nil, nil)
		time.Sleep(10 * r1.Timing().Interval)
		synctest.Wait()
		require.Equal(t, 1, r1.Status().Foreign)
		require.Empty(t, r1.Status().Failing)
		w.kill(r1)
		w.kill(r2)
	})
}

// A hanging node of a Cluster, or a slow link, must not delay devices that are not in dispute.
func TestRegistrationsDoNotWaitForWhatOtherOwnersAreAsked(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		var told moves // and no reaction to it
		r1, r2 := w.start("r1", told.tell), w.start("r2", told.tell)
		r1.registerMany(t, 1)
		time.Sleep(time.Second)
		r2.registerMany(t, 1)
		synctest.Wait()
		require.Equal(t, 1, r1.Status().Foreign)
		free := make(chan struct{})
		var asked atomic.Int64
		r1.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "publish" {
				asked.Add(1)
				<-free
			}
			return nil
		}, nil)
		for asked.Load() == 0 {
			time.Sleep(time.Second)
		}
		began := time.Now()
		require.NoError(t, r1.Register("another").Wait(t.Context()))
		require.Less(t, time.Since(began), time.Second)
		time.Sleep(20 * r1.Timing().Interval)
		require.EqualValues(t, 1, asked.Load())
		close(free)
		synctest.Wait()
		require.LessOrEqual(t, asked.Load(), int64(3), "what waited is asked once")
		r1.data.set(nil, nil)
		w.kill(r1)
		w.kill(r2)
	})
}

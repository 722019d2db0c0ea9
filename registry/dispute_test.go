package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry"
)

// socket is a service's: its loop ends when it is closed.
type socket struct {
	*registry.Claim
	here          atomic.Bool // its other end answers pings
	closed, pings atomic.Int64
}

func (r *replica) open(id string, pings, here bool) *socket {
	s := &socket{}
	s.here.Store(here)
	socket := registry.Socket{Close: func() error { s.closed.Add(1); return nil }}
	if pings {
		socket.Ping = s.ping
	}
	s.Claim = r.Registry.Register(id, socket)
	go func() { <-s.Done(); s.Release() }()
	return s
}

func (s *socket) ping(context.Context) error {
	s.pings.Add(1)
	if s.here.Load() {
		time.Sleep(50 * time.Millisecond)
		return nil
	}
	<-s.Done() // as a write into a full buffer, it does not heed ctx
	return errors.New("it was closed")
}

// hiccup makes Redis slow for r, for longer than a handshake overwrites.
func hiccup(r *replica) {
	r.data.set(func(redis.Cmder) error { time.Sleep(4 * time.Second); return errLost }, nil)
	time.AfterFunc(4500*time.Millisecond, func() { r.data.set(nil, nil) })
}

// A client has a socket at r1, then one at r2. Either may be half open, and both are in use all the
// time: what waits in buffers proves nothing.
func TestTheNewestHandshakeWins(t *testing.T) {
	t.Parallel()
	type trouble = func(w *bubble, r1, r2 *replica) // just before the second handshake
	cut1 := func(_ *bubble, r1, _ *replica) { r1.cut(true) }
	cut2 := func(_ *bubble, _, r2 *replica) { r2.cut(true) }
	both := func(_ *bubble, r1, r2 *replica) { r1.cut(true); r2.cut(true) }
	slow := func(_ *bubble, _, r2 *replica) { hiccup(r2) }
	deaf := func(_ *bubble, r1, r2 *replica) {
		r1.data.set(failing("publish"), nil)
		r2.data.set(failing("publish"), nil)
	}
	lost := func(w *bubble, _, _ *replica) {
		time.AfterFunc(time.Second, func() { w.FlushAll(context.Background()) })
	}
	steps := func(by time.Duration) trouble { return func(w *bubble, _, _ *replica) { w.step(by) } }
	for name, c := range map[string]struct {
		pings, older, newer bool // they can be pinged, and which are there
		trouble             trouble
		wins                string
	}{
		"the older is half open":                             {false, false, true, nil, "r2"},
		"both are there":                                     {false, true, true, nil, "r2"},
		"both are there, with pings":                         {true, true, true, nil, "r2"},
		"the older is half open, with pings":                 {true, false, true, nil, "r2"},
		"the newer was read late":                            {true, true, false, nil, "r1"},
		"neither is there":                                   {true, false, false, nil, "r1"},
		"r1 is cut off":                                      {false, false, true, cut1, "r2"},
		"r2 is cut off":                                      {false, false, true, cut2, "r2"},
		"both are cut off":                                   {false, false, true, both, "r2"},
		"r1 is cut off, with pings":                          {true, true, true, cut1, "r2"},
		"r2 is cut off, with pings":                          {true, true, true, cut2, "r2"},
		"both are cut off, with pings":                       {true, true, true, both, "r2"},
		"both are cut off, and the newer was read late":      {true, true, false, both, "r1"},
		"both are cut off for longer than a heartbeat lasts": {false, false, true, both, "r2"},
		"Redis is slow":                                      {false, false, true, slow, "r2"},
		"Redis is slow, with pings":                          {true, true, true, slow, "r2"},
		"Redis is slow, and the newer was read late":         {true, true, false, slow, "r1"},
		"messages are lost":                                  {false, false, true, deaf, "r2"},
		"everything is lost":                                 {false, false, true, lost, "r2"},
		"the server's clock steps back an hour":              {false, true, true, steps(-time.Hour), "r2"},
		"the server's clock steps back three seconds":        {false, true, true, steps(-3 * time.Second), "r2"},
		"the server's clock steps on three seconds":          {false, true, true, steps(3 * time.Second), "r2"},
		"the server's clock steps on an hour":                {false, true, true, steps(time.Hour), "r2"},
	} {
		t.Run(name, func(t *testing.T) {
			withAndWithoutIndex(t, func(w *bubble, index func(*registry.Config)) {
				r1, r2 := w.start("r1", index), w.start("r2", index)
				older := r1.open("imei", c.pings, c.older)
				require.NoError(w, older.Wait(w.Context()))
				time.Sleep(10 * time.Second)
				if c.trouble != nil {
					c.trouble(w, r1, r2)
				}
				newer := r2.open("imei", c.pings, c.newer)
				was, changes := "", 0
				talk := func(d time.Duration) {
					for range d / (500 * time.Millisecond) {
						time.Sleep(500 * time.Millisecond)
						older.Touch()
						newer.Touch()
						if now := w.owner("imei"); now != was {
							was = now
							changes++
						}
					}
				}
				lasts := time.Minute
				if strings.HasSuffix(name, "lasts") {
					lasts = 200 * time.Second
				}
				talk(lasts)
				for _, r := range []*replica{r1, r2} {
					r.cut(false)
					r.data.set(nil, nil)
				}
				talk(2 * time.Minute)
				require.Equal(w, c.wins, was, "older: %v, newer: %v", older.Err(), newer.Err())
				loser, winner := older, newer
				if c.wins == "r1" {
					loser, winner = newer, older
					require.ErrorIs(w, loser.Err(), registry.ErrNoAnswer)
				} else {
					require.Equal(w, registry.MovedError{To: "r2"}, loser.Err())
				}
				require.NoError(w, winner.Err())
				require.EqualValues(w, 1, loser.closed.Load())
				require.Zero(w, winner.closed.Load())
				require.Zero(w, older.pings.Load(), "only the newer one is asked")
				changes = 0
				talk(time.Minute)
				require.Zero(w, changes)
				require.Zero(w, r1.Status().Disputed+r2.Status().Disputed)
				winner.Release()
			})
		})
	}
}

func withAndWithoutIndex(t *testing.T, f func(w *bubble, index func(*registry.Config))) {
	eachBubble(t, map[string]bool{"with the index": false, "without it": true}, func(w *bubble, without bool) {
		f(w, func(c *registry.Config) { c.NoReverseIndex = without })
	})
}

func TestAMoveIsSettledAtOnce(t *testing.T) {
	rows := map[string]bool{"the newer overwrites": true, "the newer finds the older": false}
	eachBubble(t, rows, func(w *bubble, written bool) {
		r1, r2 := w.start("r1"), w.start("r2")
		older := r1.open("imei", true, true)
		time.Sleep(time.Second)
		if !written {
			hiccup(r2)
		}
		newer := r2.open("imei", true, true)
		time.Sleep(200 * time.Millisecond)
		if !written { // it is tried again
			time.Sleep(5 * time.Second)
		}
		require.EqualValues(w, 1, older.closed.Load())
		w.is("imei", "r2")
		require.EqualValues(w, 1, newer.pings.Load())
		newer.Release()
	})
}

// A writer of its own that lives and answers nothing keeps the id until a client connects again.
func TestAPlainWriterKeepsAnIDUntilTheNextHandshake(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1")
		s, dead := r.open("imei", false, true), r.open("of the dead", false, true)
		synctest.Wait()
		w.write("imei", "plain", "of the dead", "dead")
		w.Set(w.Context(), w.Heartbeat("plain"), "1/1", 0)
		s.Touch()
		time.Sleep(interval)
		require.NoError(w, s.Err(), "it may have been too busy to answer")
		time.Sleep(2 * interval)
		require.ErrorIs(w, s.Err(), registry.ErrTaken)
		w.is("imei", "plain")
		require.NoError(w, dead.Err(), "it will be swept")
		require.Equal(w, 1, r.Status().Held)
		r.register("imei")
		w.is("imei", "r1")
		time.Sleep(10 * interval)
		w.is("imei", "r1")
	})
}

func TestWhatNamesAnOwnerThatDoesNotHoldItIsHandedBackWhenItIsAsked(t *testing.T) {
	withAndWithoutIndex(t, func(w *bubble, index func(*registry.Config)) {
		r1, r2 := w.start("r1", index), w.start("r2", index)
		s := r1.open("imei", true, true)
		synctest.Wait()
		w.write("imei", "r2") // a late write of r2
		time.Sleep(2 * time.Second)
		s.Touch()
		time.Sleep(100 * time.Millisecond)
		w.is("imei", "r1")
		require.Zero(w, s.closed.Load()+s.pings.Load())
		require.Zero(w, r2.Remembered())
	})
}

func TestAnOwnerIsAskedAgainWhileItDoesNotHear(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r1, r2 := w.start("r1"), w.start("r2")
		older := r2.open("imei", false, false)
		time.Sleep(time.Second)
		r1.data.set(func(redis.Cmder) error { time.Sleep(4 * time.Second); return errLost }, nil)
		newer := r1.open("imei", false, true)
		time.Sleep(5 * time.Second)
		var asked []time.Time
		r1.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "publish" {
				asked = append(asked, time.Now())
				return errLost
			}
			return nil
		}, nil)
		pass(5 * time.Minute)
		tenth := interval / 10
		for i, least := range []time.Duration{1, 2, 4, 8, 10, 10} {
			require.InDelta(w, least, asked[i+1].Sub(asked[i])/tenth, 1, "question %d", i)
		}
		w.is("imei", "r2")
		require.NoError(w, errors.Join(older.Err(), newer.Err()))
		r1.data.set(nil, nil)
		time.Sleep(interval * 6 / 5)
		w.is("imei", "r1")
		require.Error(w, older.Err())
		newer.Release()
	})
}

// A replica was cut off while all its clients went elsewhere.
func TestManyThatHaveMovedAreClosedWithFewMessages(t *testing.T) {
	inBubble(t, func(w *bubble) {
		const many = 3_000
		r1, r2 := w.start("r1"), w.start("r2")
		older, newer := make([]*socket, many), make([]*socket, many)
		for i := range older {
			older[i] = r1.open(fmt.Sprint(i), true, false)
		}
		time.Sleep(time.Second)
		r1.cut(true)
		for i := range newer {
			newer[i] = r2.open(fmt.Sprint(i), true, true)
		}
		time.Sleep(interval)
		said := map[*replica]*atomic.Int64{r1: new(atomic.Int64), r2: new(atomic.Int64)}
		for r, n := range said {
			r.data.set(func(cmd redis.Cmder) error {
				if cmd.Name() == "publish" && cmd.Args()[2] != "/" { // of ids, not to itself
					n.Add(1)
					require.LessOrEqual(w, len(strings.Fields(fmt.Sprintf("%s", cmd.Args()[2]))), 2+2*500)
				}
				return nil
			}, nil)
		}
		r1.cut(false)
		time.Sleep(11 * interval)
		for i := range many {
			require.Equal(w, registry.MovedError{To: "r2"}, older[i].Err())
			require.EqualValues(w, 1, older[i].closed.Load())
			require.NoError(w, newer[i].Err())
			newer[i].Release()
		}
		require.Less(w, said[r1].Load()+said[r2].Load(), int64(20*many/500))
	})
}

// A hanging node of a Cluster, or a slow link, must not delay devices that are not in dispute.
func TestRegistrationsDoNotWaitForWhatOtherOwnersAreAsked(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r1, r2 := w.start("r1"), w.start("r2")
		r1.registerMany(1)
		free := make(chan struct{})
		var asked atomic.Int64
		r1.data.set(func(cmd redis.Cmder) error {
			if cmd.Name() == "publish" {
				asked.Add(1)
				<-free
			}
			return nil
		}, nil)
		time.Sleep(time.Second)
		r2.registerMany(1)
		for asked.Load() == 0 {
			time.Sleep(time.Second)
		}
		began := time.Now()
		require.NoError(w, r1.Register("another").Wait(w.Context()))
		require.Less(w, time.Since(began), time.Second)
		time.Sleep(20 * interval)
		require.EqualValues(w, 1, asked.Load())
		close(free)
		synctest.Wait()
		require.LessOrEqual(w, asked.Load(), int64(4), "what waited is asked once")
	})
}

// Register is called under the lock that Close takes.
func TestOnOneReplicaTheOlderSocketIsClosedAtOnceAndUnderNoLock(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1")
		var mu sync.Mutex
		closed := map[int]int{}
		var claims []*registry.Claim
		for i := range 3 {
			mu.Lock()
			claims = append(claims, r.Registry.Register("alice|phone", registry.Socket{
				Close: func() error {
					mu.Lock()
					defer mu.Unlock()
					closed[i]++
					return nil
				},
				Ping: func(context.Context) error { panic("nobody is asked") },
			}))
			mu.Unlock()
		}
		other := r.register("alice|tablet")
		<-claims[0].Done() // closed before Register returns
		for _, c := range claims[:2] {
			require.Equal(w, registry.MovedError{To: "r1"}, c.Err())
			require.Equal(w, c.Done(), c.Done())
			require.Equal(w, c.Err(), c.Wait(w.Context()))
			c.Release()
		}
		synctest.Wait()
		require.Equal(w, map[int]int{0: 1, 1: 1}, closed)
		w.is("alice|phone", "r1", "a late close undoes nothing")
		require.Equal(w, 2, r.Status().Held)
		require.NoError(w, errors.Join(claims[2].Err(), other.Err(), claims[2].Wait(w.Context())))
		claims[2].Release()
		require.ErrorIs(w, claims[2].Err(), registry.ErrReleased)
		r.register("alice|phone")
		require.ErrorIs(w, claims[2].Err(), registry.ErrReleased, "it has ended before")
		require.NoError(w, claims[2].Wait(w.Context()), "it has landed, whatever came later")
		require.Panics(w, func() { r.Registry.Register("x", registry.Socket{}) })
		w.end(r)
		require.Equal(w, map[int]int{0: 1, 1: 1}, closed, "none after its Release")
	})
}

func TestAReplicaThatStopsClosesItsSocketsEvenlyOverHalfTheDrainTime(t *testing.T) {
	inBubble(t, func(w *bubble) {
		r := w.start("r1", func(c *registry.Config) { c.Drain = 20 * time.Second })
		open := make([]*socket, 200)
		for i := range open {
			open[i] = r.open(fmt.Sprint(i), true, true)
		}
		synctest.Wait()
		closed := func() (n int) {
			synctest.Wait()
			for _, s := range open {
				n += int(s.closed.Load())
			}
			return n
		}
		begun := time.Now()
		r.stop()
		time.Sleep(5 * time.Second)
		require.InDelta(w, 100, closed(), 5)
		late := r.open("late", false, true)
		time.Sleep(4900 * time.Millisecond)
		require.Equal(w, len(open), closed())
		require.EqualValues(w, 1, late.closed.Load())
		require.ErrorIs(w, late.Err(), registry.ErrStopping)
		require.NoError(w, r.wait())
		require.Less(w, time.Since(begun), 11*time.Second)
		require.Empty(w, w.HGetAll(w.Context(), w.Registry()).Val())
		over := r.open("over", false, true)
		require.ErrorIs(w, over.Err(), registry.ErrStopping)
		synctest.Wait()
		require.EqualValues(w, 1, over.closed.Load())
	})
}

package doors

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// house is a room whose guests remember whether they lost their place.
type house struct {
	*Room
	t *testing.T
}

type visitor struct {
	Guest
	ended int
}

func (h house) knock(from string) (*visitor, bool) {
	v := &visitor{}
	v.End = func() { v.ended++ }
	return v, h.Enter(&v.Guest, Addr(from+":1"))
}

func (h house) enter(from string) *visitor {
	h.t.Helper()
	v, in := h.knock(from)
	require.True(h.t, in, "no place for %s", from)
	return v
}

func (h house) earned(from string) *visitor {
	h.t.Helper()
	v := h.enter(from)
	v.Earn()
	return v
}

func in(t *testing.T, cfg Config, test func(t *testing.T, h house)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, house{New(cfg), t}) })
}

func TestAFloodDisplacesItself(t *testing.T) {
	in(t, Config{Most: 64}, func(t *testing.T, h house) {
		unknown := h.enter("") // a balancer's header has not come yet
		far, near := h.enter("203.0.113.7"), h.enter("198.51.100.8")
		six := h.enter("[2001:db8:1:2::1]")
		var flood []*visitor
		for range 1000 {
			flood = append(flood, h.enter("198.51.100.7"))
			time.Sleep(10 * time.Millisecond)
		}
		for range 1000 {
			h.enter("[2001:db8::" + []string{"1", "2", "3"}[rand.IntN(3)] + "]") // a host has a /64
		}
		for _, v := range []*visitor{unknown, far, near, six} {
			require.Zero(t, v.ended)
		}
		require.Equal(t, 1, flood[0].ended, "the oldest went, once")
		require.Zero(t, flood[999].ended)
		all, plain := h.Size()
		require.Equal(t, []int{64, 64}, []int{all, plain})
	})
}

func TestANetworksOnlyGuestHasThreeSeconds(t *testing.T) {
	in(t, Config{Most: 2}, func(t *testing.T, h house) {
		first := h.enter("192.0.2.1")
		time.Sleep(time.Second)
		h.enter("198.51.100.1")
		_, entered := h.knock("203.0.113.1")
		require.False(t, entered)
		began := time.Now()
		late := &Guest{}
		require.NoError(t, h.Wait(t.Context(), late, Addr("203.0.113.1:1")))
		require.Equal(t, spared-time.Second, time.Since(began))
		require.Equal(t, 1, first.ended)
	})
}

func TestWhoEarnedAPlaceGoesLastAndOnlyForAFairerShare(t *testing.T) {
	in(t, Config{Most: 4}, func(t *testing.T, h house) {
		a := h.earned("192.0.2.1")
		time.Sleep(time.Minute)
		b, c := h.earned("192.0.2.1"), h.earned("192.0.2.2")
		other := h.earned("198.51.100.1")
		_, entered := h.knock("192.0.2.1")
		require.False(t, entered, "its network and address have most")
		d := h.enter("203.0.113.1") // from the largest network, and there from the fuller address
		require.Equal(t, []int{1, 0, 0, 0}, []int{a.ended, b.ended, c.ended, other.ended})
		_, entered = h.knock("192.0.2.9")
		require.False(t, entered, "its network already has its share, and no address more than another")
		d.Earn()
		a.Earn() // it has gone
		all, plain := h.Size()
		require.Equal(t, []int{4, 0, 2}, []int{all, plain, h.Largest()})
		other.Leave()
		other.Leave()
		h.enter("192.0.2.9")
	})
}

func TestAFullAddressMakesRoomForItsNeighbour(t *testing.T) {
	in(t, Config{Most: 8}, func(t *testing.T, h house) {
		var flood []*visitor
		for range 8 {
			flood = append(flood, h.earned("127.0.0.2"))
			time.Sleep(time.Second)
		}
		flood[0].Earn() // of late
		h.enter("127.0.0.1")
		require.Equal(t, []int{0, 1}, []int{flood[0].ended, flood[1].ended})
	})
}

// A flood that names itself keeps a 32nd at most, whatever it takes from larger networks.
func TestWhoHasEarnedNothingTakesLittleFromALargeNetwork(t *testing.T) {
	in(t, Config{Most: 320}, func(t *testing.T, h house) {
		lost := 0
		for range 320 {
			v := h.earned("192.0.2.1")
			v.End = func() { lost++ }
		}
		for range 1000 {
			h.enter("198.51.100.1")
		}
		require.Equal(t, 10, lost)
	})
}

func TestAPlaceIsLostWhenNothingComes(t *testing.T) {
	in(t, Config{Most: 2, Keep: time.Hour}, func(t *testing.T, h house) {
		silent, reports := h.earned("192.0.2.1"), h.earned("192.0.2.1")
		time.Sleep(30 * time.Minute)
		reports.Earn()
		time.Sleep(30 * time.Minute)
		_, plain := h.Size()
		require.Equal(t, 1, plain)
		time.Sleep(spared)
		h.enter("192.0.2.1")
		require.Equal(t, []int{1, 0}, []int{silent.ended, reports.ended})
		reports.Lose()
		_, plain = h.Size()
		require.Equal(t, 2, plain)
	})
}

func TestWhoCannotWaitReplacesItsOwnNetworksOldest(t *testing.T) {
	in(t, Config{Most: 4, Rotate: true}, func(t *testing.T, h house) {
		a := []*visitor{h.earned("192.0.2.1"), h.earned("192.0.2.1")}
		b := []*visitor{h.earned("198.51.100.1"), h.earned("198.51.100.1")}
		h.earned("198.51.100.1")
		require.Equal(t, []int{0, 1}, []int{a[0].ended, b[0].ended})
		h.earned("203.0.113.1")
		require.Equal(t, 1, a[0].ended+b[1].ended)
	})
}

func TestAnAddressThatBecomesKnownCountsFromThenOn(t *testing.T) {
	in(t, Config{Most: 4}, func(t *testing.T, h house) {
		v := h.enter("")
		for range 3 {
			h.enter("192.0.2.1")
		}
		v.Move(Addr("192.0.2.1:1"))
		h.enter("198.51.100.1")
		v.Leave()
		require.Len(t, h.plain.nets, 2)
		require.Equal(t, 2, h.plain.largest().size)
	})
}

func TestWaitEndsWhenAPlaceIsFreeOrItsTimeIsUp(t *testing.T) {
	in(t, Config{Most: 1}, func(t *testing.T, h house) {
		v := h.earned("192.0.2.1")
		up := errors.New("up")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, up)
		defer cancel()
		require.ErrorIs(t, h.Wait(ctx, &Guest{}, v.addr), up)
		began, free := time.Now(), make(chan error)
		go func() { free <- h.Wait(context.Background(), &Guest{}, v.addr) }()
		synctest.Wait()
		v.Leave()
		require.NoError(t, <-free)
		require.Equal(t, began, time.Now())
	})
}

func TestWhateverHappensTheRoomIsNeverOverfullAndForgetsWhoLeft(t *testing.T) {
	in(t, Config{Most: 20, Keep: time.Minute}, func(t *testing.T, h house) {
		from := []string{"", "192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.1", "[2001:db8::1]", "[2001:db8::2]"}
		var inside []*visitor
		r := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			before := len(inside)
			switch op := r.IntN(8); {
			case op < 3 || before == 0:
				if v, in := h.knock(from[r.IntN(len(from))]); in {
					inside = append(inside, v)
				}
			default:
				i := r.IntN(before)
				switch v := inside[i]; op {
				case 3:
					v.Earn()
				case 4:
					v.Lose()
				case 5:
					v.Move(Addr(from[r.IntN(len(from))] + ":1"))
				case 6:
					time.Sleep(time.Duration(r.IntN(10)) * time.Second)
				case 7:
					v.Leave()
					require.Zero(t, v.ended)
					inside = append(inside[:i], inside[i+1:]...)
				}
			}
			var rest []*visitor
			for _, v := range inside {
				require.LessOrEqual(t, v.ended, 1)
				if v.ended == 0 {
					rest = append(rest, v)
				}
			}
			require.LessOrEqual(t, len(inside)-len(rest), 1, "one goes for one")
			inside = rest
			all, _ := h.Size()
			require.Equal(t, len(inside), all)
			require.LessOrEqual(t, all, 20)
		}
		for _, v := range inside {
			v.Leave()
		}
		for _, k := range []*rank{&h.plain, &h.merit} {
			require.Empty(t, k.heap)
			require.Empty(t, k.nets)
			require.Zero(t, k.order.Len())
		}
	})
}

func TestAPeerIsItsAddress(t *testing.T) {
	t.Parallel()
	for peer, want := range map[string]string{
		"192.0.2.7:4000": "192.0.2.7", "[::ffff:192.0.2.7]:4000": "192.0.2.7",
		"[fe80::1%eth0]:80": "fe80::1", "@": "invalid IP", "": "invalid IP",
	} {
		require.Equal(t, want, Addr(peer).String())
	}
	require.Equal(t, netip.MustParsePrefix("2001:db8:1:2::/64"), networkOf(Addr("[2001:db8:1:2:3::]:1")))
}

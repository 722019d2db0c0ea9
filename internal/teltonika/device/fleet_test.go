package device

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

func TestTracksOfOneSeedAreTheSame(t *testing.T) {
	t.Parallel()
	a, b, other := NewTrack(7), NewTrack(7), NewTrack(8)
	all := a.Next(100)
	require.Equal(t, asJSON(all), asJSON(append(b.Next(40), b.Next(60)...)))
	require.NotEqual(t, asJSON(all), asJSON(other.Next(100)))
	for i, r := range all {
		require.Equal(t, uint64(Epoch+i*Step), r.Timestamp)
		require.InDelta(t, 252_797_000, r.Longitude, 5_000_000)
		require.InDelta(t, 546_872_000, r.Latitude, 5_000_000)
	}
}

func TestAllCodecsCarryATrack(t *testing.T) {
	t.Parallel()
	for _, c := range []teltonika.Codec{teltonika.Codec8, teltonika.Codec8E, teltonika.Codec16} {
		frame, err := teltonika.AppendFrame(nil, c, NewTrack(1).Next(10)...)
		require.NoError(t, err)
		require.LessOrEqual(t, len(frame), 1280, "more than a tracker sends")
	}
}

func TestAFleetKnowsWhereItsDevicesAre(t *testing.T) {
	t.Parallel()
	servers := []*server{setup(t), setup(t), setup(t)}
	for _, s := range servers {
		go drain(t, s)
	}
	f := NewFleet(20, 100, Options{Timeout: 10 * time.Second})
	t.Cleanup(f.CloseAll)
	require.Equal(t, 20, f.Len())
	require.Equal(t, "000000000000119", f.IMEI(19))
	require.Empty(t, f.Where())

	// All devices hop at once, several times and sometimes back to the same place. The truth is each
	// one's last hop.
	var hops sync.WaitGroup
	want := make([]string, f.Len())
	for i := range f.Len() {
		rnd := rand.New(rand.NewPCG(uint64(i), 0))
		hops.Go(func() {
			for range 5 {
				addr := servers[rnd.IntN(len(servers))].addr
				if err := f.Move(t.Context(), i, addr); err != nil {
					t.Error(err)
					return
				}
				want[i] = addr
				if records, err := f.Report(t.Context(), i, 2); err != nil || len(records) != 2 {
					t.Error(err)
				}
				if rnd.IntN(2) == 0 {
					f.DropStale(i)
				}
			}
		})
	}
	hops.Wait()
	where := f.Where()
	require.Len(t, where, f.Len())
	lost := 0
	for i, addr := range want {
		require.Equal(t, addr, where[f.IMEI(i)])
		if addr == servers[0].addr {
			lost++
		}
	}
	require.Len(t, f.Lost(servers[0].addr), lost)
	require.Len(t, f.Where(), f.Len()-lost)
	_, err := f.Report(t.Context(), f.Len()-1, 0)
	if want[f.Len()-1] != servers[0].addr {
		require.NoError(t, err)
	}
	f.CloseAll()
	require.Empty(t, f.Where())
}

// drain discards a server's events until the test ends.
func drain(t *testing.T, s *server) {
	for {
		select {
		case <-s.events:
		case <-s.frames:
		case <-t.Context().Done():
			return
		}
	}
}

func TestADeviceThatIsRefusedStaysWhereItWas(t *testing.T) {
	t.Parallel()
	s := setup(t)
	strict := setup(t, func(s *server) { s.refuse = map[string]bool{fmt.Sprintf("%015d", 5): true} })
	f := NewFleet(1, 5, Options{Timeout: 10 * time.Second})
	t.Cleanup(f.CloseAll)
	require.NoError(t, f.Move(t.Context(), 0, s.addr))
	require.Error(t, f.Move(t.Context(), 0, strict.addr))
	require.Equal(t, map[string]string{f.IMEI(0): s.addr}, f.Where())
	_, err := f.Report(t.Context(), 0, 3)
	require.NoError(t, err)
	f.Leave(0)
	_, err = f.Report(t.Context(), 0, 3)
	require.ErrorIs(t, err, ErrNotConnected)
}

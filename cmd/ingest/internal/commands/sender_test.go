package commands

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestASenderFollowsADeviceUnderTheLongestIDAndRefusesALongerOne(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	b.instance("a")
	b.instance("b").connects(imei).obeys()
	longest := strings.Repeat("x", maxID)
	for i, id := range []string{"c1", longest} {
		asked, s := 0, b.sender()
		s.Lookup = func(context.Context, string) (registry.Owner, error) { // lags behind
			asked++
			return registry.Owner{Instance: map[bool]string{true: "a", false: "b"}[asked < 3], Live: true}, nil
		}
		o, err := s.Send(t.Context(), Command{ID: id, IMEI: imei, Text: "getver", Expires: time.Now().Add(patience)})
		require.NoError(t, err)
		require.Equal(t, Outcome{o.ID, imei, "b", Answered, "did getver"}, o)
		require.NotEqual(t, id, o.ID)
		b.awaits(2*(i+1), "a", "b")
	}
	s := b.sender()
	s.Lookup = func(context.Context, string) (registry.Owner, error) {
		return registry.Owner{Instance: "dead"}, nil
	}
	o, err := s.Send(t.Context(), Command{IMEI: imei, Text: "getver"})
	require.NoError(t, err)
	require.Equal(t, NotConnected, o.Status)
	require.Zero(t, b.rdb.Exists(t.Context(), Outbound(b.layout, "dead")).Val(), "nothing is sent to the dead")
	for _, id := range []string{longest + "x", "two words"} {
		_, err := b.sender().Send(t.Context(), Command{ID: id, IMEI: imei, Text: "getver", Queue: true})
		require.ErrorIs(t, err, errNoID)
	}
}

func TestASenderWithoutAnAnswerFromRedisGetsTheOutcome(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"xadd", "xread"} {
		for _, queue := range []bool{false, true} {
			t.Run(fmt.Sprint(command, ", queue ", queue), func(t *testing.T) {
				t.Parallel()
				b := setup(t, redistest.Shared(t))
				d := b.instance("a").connects(imei)
				d.obeys()
				s := b.sender()
				l, left := loses(command, 2)
				client := b.client()
				client.AddHook(l)
				s.Client = client
				c := Command{ID: "c1", IMEI: imei, Text: "getver", Queue: queue, Expires: time.Now().Add(patience)}
				o, err := s.Send(t.Context(), c)
				require.NoError(t, err)
				require.Equal(t, Outcome{"c1", imei, "a", Answered, "did getver"}, o)
				require.Negative(t, left.Load(), "replies were lost")
				b.awaits(1, "a")
				require.Equal(t, []string{"getver"}, d.heard())
			})
		}
	}
}

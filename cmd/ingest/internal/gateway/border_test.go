package gateway

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// without returns a gateway that nobody connects to.
func without(t *testing.T, change ...func(*Config)) *Gateway {
	t.Helper()
	client := redis.NewClient(redistest.Fake(t))
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	cfg := Config{Register: (&registrar{}).register, Client: client, Stream: "s"}
	for _, f := range change {
		f(&cfg)
	}
	g := New(cfg)
	return g
}

// broken is a listener whose Accept fails a number of times, and then ends.
type broken struct {
	net.Listener
	at     []time.Duration
	began  time.Time
	enough int
}

func (b *broken) Accept() (net.Conn, error) {
	b.at = append(b.at, time.Since(b.began))
	if len(b.at) > b.enough {
		return nil, net.ErrClosed
	}
	return nil, errors.New("too many open files")
}

func (b *broken) Close() error { return nil }

func TestAcceptIsTriedAgainAtGrowingDistances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := without(t)
		ln := &broken{began: time.Now(), enough: 10}
		require.ErrorIs(t, g.Serve(t.Context(), ln), net.ErrClosed)
		const ms = time.Millisecond
		require.Equal(t, []time.Duration{
			0, 5 * ms, 15 * ms, 35 * ms, 75 * ms, 155 * ms, 315 * ms, 635 * ms, 1275 * ms, 2275 * ms, 3275 * ms,
		}, ln.at)
	})
}

// stub is a socket whose writes fail after a number of bytes.
type stub struct {
	net.Conn
	written  int
	deadline error
}

func (s *stub) Write([]byte) (int, error)        { return s.written, errors.New("reset") }
func (s *stub) SetWriteDeadline(time.Time) error { return s.deadline }
func (s *stub) SetDeadline(time.Time) error      { return nil }

func TestACommandThatCouldNotBeWrittenMayHaveBeenExecutedIfAnyOfItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			conn   stub
			reason string // for which the gateway is to end the socket
			failed string
		}{
			"nothing went out":         {stub{}, "", "reset"},
			"some of it":               {stub{written: 3}, "", ""},
			"there is no socket":       {stub{written: 3, deadline: errors.New("no socket")}, "", "no socket"},
			"the gateway is to end it": {stub{}, endMoved, "the socket is to end: moved"},
		} {
			s := newSession(without(t), &c.conn)
			if c.reason != "" {
				s.accepted.Store(true)
				s.end(c.reason)
			}
			o := &pendingCommand{frame: []byte("command")}
			require.Error(t, s.write(o), name, "the socket must end")
			if c.failed == "" {
				require.NoError(t, o.failed, name)
			} else {
				require.ErrorContains(t, o.failed, c.failed, name)
			}
		}
	})
}

func TestACommandForASessionThatHasEndedIsDoneAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSession(without(t), &stub{})
		pending := func() *pendingCommand {
			o, err := newPendingCommand(Command{IMEI: imei, Codec: teltonika.Codec12, Text: []byte("x")})
			require.NoError(t, err)
			return o
		}
		first, second := pending(), pending()
		require.True(t, s.addCommand(first))
		require.False(t, s.addCommand(second), "one is under way")
		require.Empty(t, s.finish())
		<-first.done
		s.withdraw(second)
		third := pending()
		require.True(t, s.addCommand(third))
		ended, err := s.awaitTurn(t.Context(), third)
		require.NoError(t, err)
		require.True(t, ended)
	})
}

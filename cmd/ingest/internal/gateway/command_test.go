package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// response returns a frame with a device's answer to a command.
func response(codec teltonika.Codec, text string) []byte {
	return encoded(codec, teltonika.TypeResponse, text)
}

// encoded returns a frame with one message, which names the device.
func encoded(codec teltonika.Codec, kind teltonika.MessageType, text string) []byte {
	of, _ := teltonika.ParseIMEI(imei)
	return teltonika.AppendMessages(nil, codec, teltonika.Message{Type: kind, IMEI: of, Text: []byte(text)})
}

// asked is the result of a command.
type asked struct {
	text string
	err  error
	took time.Duration
}

// asks sends a command whose permit allows this time for the answer.
func asks(g *Gateway, codec teltonika.Codec, text string, answerWithin time.Duration) <-chan asked {
	began, out := time.Now(), make(chan asked, 1)
	go func() {
		answer, err := g.Command(context.Background(), Command{
			IMEI: imei, Codec: codec, Text: []byte(text), Expires: began.Add(time.Minute),
			Permit: func(context.Context) (time.Duration, error) { return answerWithin, nil },
		})
		out <- asked{string(answer), err, time.Since(began)}
	}()
	return out
}

// hears reads the frame of a command.
func hears(t testing.TB, from io.Reader, codec teltonika.Codec, text string) {
	t.Helper()
	want := encoded(codec, teltonika.TypeCommand, text)
	got := make([]byte, len(want))
	_, err := io.ReadFull(from, got)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// reported returns a socket that takes commands, after an acknowledged frame.
func reported(t *testing.T, s *timed) *timed {
	t.Helper()
	s.login(t)
	s.stores(t)
	return s
}

const c12, c14 = teltonika.Codec12, teltonika.Codec14

// obeys runs a whole command: the device hears it and answers "did " and its text. It returns the
// time taken.
func (s *timed) obeys(t *testing.T, codec teltonika.Codec, text string) time.Duration {
	t.Helper()
	got := asks(s.gateway, codec, text, time.Minute)
	hears(t, s, codec, text)
	s.write(t, response(codec, "did "+text))
	a := <-got
	require.NoError(t, a.err)
	require.Equal(t, "did "+text, a.text)
	return a.took
}

func TestTheNextCommandWaitsUntilTheSocketWasQuietForThreeSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *timed) {
		reported(t, s)
		require.Zero(t, s.obeys(t, c12, "one"))
		<-time.After(time.Second)
		require.Equal(t, 2*time.Second, s.obeys(t, c12, "two"))
		<-time.After(time.Hour)
		require.Zero(t, s.obeys(t, c12, "three"))
	})
}

// ambiguous requires that the device hears a command, and that exactly these texts are its
// ambiguous answer.
func (s *timed) ambiguous(t *testing.T, got <-chan asked, codec teltonika.Codec, command, want string) {
	t.Helper()
	hears(t, s, codec, command)
	s.write(t, response(codec, "did "+command))
	a := <-got
	require.ErrorIs(t, a.err, ErrAmbiguous)
	require.Equal(t, want, a.text)
}

func TestAnotherFrameOfAnAnswerMakesTheNextOneAmbiguous(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, nil, func(t *testing.T, g *Gateway, join func() *timed) {
		s := reported(t, join())
		one := asks(g, c12, "one", time.Minute)
		hears(t, s, c12, "one")
		s.write(t, response(c12, "part 1 of the answer to one"))
		require.Equal(t, "part 1 of the answer to one", (<-one).text)
		two := asks(g, c12, "two", time.Minute)
		<-time.After(2900 * time.Millisecond)
		s.write(t, response(c12, "part 2 of the answer to one"))
		s.ambiguous(t, two, c12, "two", "did two")
		requireCount(t, 1, g.metrics.stray)

		s = reported(t, join()) // the device is back, and the new socket is like any other
		require.Zero(t, s.obeys(t, c12, "three"))
	})
}

func TestAnAnswerAfterAnUnansweredCommandIsAmbiguousUntilTheSocketEnds(t *testing.T) {
	t.Parallel()
	for name, comes := range map[string][]string{
		"nothing":                           nil,
		"what the device sends of itself":   {"serial data"},
		"the late answer":                   {"late answer to slow"},
		"the late answer, and more of that": {"serial data", "late answer to slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(t *testing.T, s *timed) {
				reported(t, s)
				slow := asks(s.gateway, c12, "slow", time.Second)
				hears(t, s, c12, "slow")
				require.ErrorIs(t, (<-slow).err, ErrUnanswered)
				for _, text := range comes {
					s.write(t, response(c12, text))
				}
				<-time.After(time.Minute)
				s.obeys(t, c14, "in the other codec")
				for _, command := range []string{"next", "and the next"} {
					s.ambiguous(t, asks(s.gateway, c12, command, time.Minute), c12, command, "did "+command)
				}
			})
		})
	}
}

func TestWhatADeviceSendsOfItselfIsInTheWayOfItsOwnCodecOnly(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		sends, asked teltonika.Codec
		served       bool
	}{
		"codec 12, and a command of 12": {c12, c12, false},
		"codec 12, and a command of 14": {c12, c14, true},
		"codec 14, and a command of 12": {c14, c12, true},
		"codec 14, and a command of 14": {c14, c14, false},
		"codec 13, and a command of 12": {teltonika.Codec13, c12, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(t *testing.T, s *timed) {
				reported(t, s)
				s.write(t, response(row.sends, "serial data"))
				synctest.Wait()
				<-time.After(time.Second) // what it sent used up its rate
				if row.served {
					require.Zero(t, s.obeys(t, row.asked, "getver"))
					return
				}
				s.ambiguous(t, asks(s.gateway, row.asked, "getver", time.Minute), row.asked, "getver", "did getver")
			})
		})
	}
}

func TestACommandThatExpiresBeforeTheSocketIsQuietIsNotWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *timed) {
		reported(t, s)
		s.obeys(t, c12, "one")
		_, err := s.gateway.Command(t.Context(), Command{
			IMEI: imei, Codec: c12, Text: []byte("two"), Expires: time.Now().Add(2 * time.Second),
			Permit: func(context.Context) (time.Duration, error) { return 0, errors.New("asked for a permit") },
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.obeys(t, c12, "three") // and nothing of two is on the wire
	})
}

func TestASocketThatEndsWhileItIsToBeQuietEndsTheWaiting(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *timed) {
		reported(t, s)
		s.obeys(t, c12, "one")
		two := asks(s.gateway, c12, "two", time.Minute)
		<-time.After(time.Second)
		require.NoError(t, s.Close())
		got := <-two
		require.ErrorIs(t, got.err, ErrNotConnected)
		require.Equal(t, time.Second, got.took)
	})
}

func TestACallDoesNotHideWhatHasArrived(t *testing.T) {
	t.Parallel()
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	device, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer device.Close()
	conn, err := ln.Accept()
	require.NoError(t, err)
	defer conn.Close()
	s := newSession(setup(t, redistest.Shared(t)).Gateway, conn)
	o, err := newPendingCommand(Command{IMEI: imei, Codec: c12, Text: []byte("getver")})
	require.NoError(t, err)
	require.True(t, s.addCommand(o))
	s.acceptCommands()
	s.permit(o)
	_, err = device.Write(response(c12, "the rest of an earlier answer"))
	require.NoError(t, err)
	await(t, func() bool { bytes, _ := s.unread(); return bytes })
	s.interrupt() // like a permit that comes before the session has met the frame
	command, err := s.rest()
	require.NoError(t, err)
	require.Nil(t, command)
	require.False(t, o.written)
}

// locked calls look with s.mu held.
func (s *session) locked(look func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return look()
}

// A command wakes a resting session without harm to a partial frame or its deadline.
func TestACommandDoesNotDisturbAFrameThatIsHalfHere(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, s *timed) {
		reported(t, s)
		f := frame(1)
		s.write(t, f[:5])
		got := asks(s.gateway, c12, "getver", time.Minute)
		<-time.After(20 * time.Second)
		s.write(t, f[5:])
		require.Equal(t, []byte{0, 0, 0, 1}, s.read(t, 4))
		hears(t, s, c12, "getver")
		s.write(t, response(c12, "did getver"))
		require.Equal(t, asked{"did getver", nil, 20 * time.Second}, <-got)
		s.write(t, f[:5])
		s.began = time.Now()
		_ = asks(s.gateway, c12, "again", time.Minute)
		s.endsAfter(t, completeTime)
	})
}

// Data that arrived before a command could be written does not answer it, even if unread and a TLS
// record of its own. Keep-alives neither delay the command nor hide what is behind them.
func TestWhatArrivedBeforeACommandWasWrittenIsNoAnswerToIt(t *testing.T) {
	t.Parallel()
	rest := response(c12, "the rest of an earlier answer")
	for over, listens := range transports(t) {
		for behind, more := range map[string][][]byte{
			"response": {rest}, "keep-alive": {{0xFF}}, "response behind keep-alives": {{0xFF}, {0xFF}, rest},
		} {
			t.Run(behind+" over "+over, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				b := setupOn(t, server, listens)
				w, gather := b.gathers(t, over)
				w.reports()
				server.Stop() // the next acknowledgement takes a while
				gather.hold = true
				w.send(frame(2))
				for _, p := range more {
					w.send(p)
				}
				gather.flush(t)
				s := b.newestSocket(imei)
				await(t, func() bool { return s.locked(func() bool { return !s.resting }) })
				got := asks(b.Gateway, c12, "getver", patience)
				await(t, func() bool {
					return s.locked(func() bool { return s.commands.pending != nil && s.commands.pending.permitted })
				})
				server.Cont()
				w.expect("00000002")
				hears(t, w, c12, "getver")
				w.send(response(c12, "did getver"))
				a := <-got
				require.Equal(t, "did getver", a.text)
				if behind == "keep-alive" {
					require.NoError(t, a.err)
				} else {
					require.ErrorIs(t, a.err, ErrAmbiguous)
				}
			})
		}
	}
}

package gateway

import (
	"context"
	"errors"
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

const c12, c14 = teltonika.Codec12, teltonika.Codec14

// obeys runs a whole command: the device hears it and answers "did " and its text. It returns the
// time taken.
func (s *timed) obeys(codec teltonika.Codec, text string) time.Duration {
	s.t.Helper()
	got := asks(s.Gateway, codec, text, time.Minute)
	s.hears(codec, text)
	s.send(response(codec, "did "+text))
	a := <-got
	require.NoError(s.t, a.err)
	require.Equal(s.t, "did "+text, a.text)
	return a.took
}

func TestTheNextCommandWaitsUntilTheSocketWasQuietForThreeSeconds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *timed) {
		s.begins()
		require.Zero(t, s.obeys(c12, "one"))
		<-time.After(time.Second)
		require.Equal(t, 2*time.Second, s.obeys(c12, "two"))
		<-time.After(time.Hour)
		require.Zero(t, s.obeys(c12, "three"))
	})
}

// ambiguous requires that the device hears a command, and that exactly these texts are its
// ambiguous answer.
func (s *timed) ambiguous(got <-chan asked, codec teltonika.Codec, command, want string) {
	s.t.Helper()
	s.hears(codec, command)
	s.send(response(codec, "did "+command))
	a := <-got
	require.ErrorIs(s.t, a.err, ErrAmbiguous)
	require.Equal(s.t, want, a.text)
}

func TestAnotherFrameOfAnAnswerMakesTheNextOneAmbiguous(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, func(t *testing.T, g *bubble) {
		s := g.join().begins()
		one := asks(g.Gateway, c12, "one", time.Minute)
		s.hears(c12, "one")
		s.send(response(c12, "part 1 of the answer to one"))
		require.Equal(t, "part 1 of the answer to one", (<-one).text)
		two := asks(g.Gateway, c12, "two", time.Minute)
		<-time.After(2900 * time.Millisecond)
		s.send(response(c12, "part 2 of the answer to one"))
		s.ambiguous(two, c12, "two", "did two")
		requireCount(t, 1, g.metrics.stray)

		s = g.join().begins() // the device is back, and the new socket is like any other
		require.Zero(t, s.obeys(c12, "three"))
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
			inBubble(t, func(t *testing.T, s *timed) {
				s.begins()
				slow := asks(s.Gateway, c12, "slow", time.Second)
				s.hears(c12, "slow")
				require.ErrorIs(t, (<-slow).err, ErrUnanswered)
				for _, text := range comes {
					s.send(response(c12, text))
				}
				<-time.After(time.Minute)
				s.obeys(c14, "in the other codec")
				for _, command := range []string{"next", "and the next"} {
					s.ambiguous(asks(s.Gateway, c12, command, time.Minute), c12, command, "did "+command)
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
			inBubble(t, func(t *testing.T, s *timed) {
				s.begins()
				s.send(response(row.sends, "serial data"))
				synctest.Wait()
				<-time.After(time.Second) // what it sent used up its rate
				if row.served {
					require.Zero(t, s.obeys(row.asked, "getver"))
					return
				}
				s.ambiguous(asks(s.Gateway, row.asked, "getver", time.Minute), row.asked, "getver", "did getver")
			})
		})
	}
}

func TestACommandThatExpiresBeforeTheSocketIsQuietIsNotWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *timed) {
		s.begins()
		s.obeys(c12, "one")
		_, err := s.Gateway.Command(t.Context(), Command{
			IMEI: imei, Codec: c12, Text: []byte("two"), Expires: time.Now().Add(2 * time.Second),
			Permit: func(context.Context) (time.Duration, error) { return 0, errors.New("asked for a permit") },
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.obeys(c12, "three") // and nothing of two is on the wire
	})
}

func TestASocketThatEndsWhileItIsToBeQuietEndsTheWaiting(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *timed) {
		s.begins()
		s.obeys(c12, "one")
		two := asks(s.Gateway, c12, "two", time.Minute)
		<-time.After(time.Second)
		require.NoError(t, s.Close())
		got := <-two
		require.ErrorIs(t, got.err, ErrNotConnected)
		require.Equal(t, time.Second, got.took)
	})
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
	inBubble(t, func(t *testing.T, s *timed) {
		s.begins()
		f := frame(1)
		s.send(f[:5])
		got := asks(s.Gateway, c12, "getver", time.Minute)
		<-time.After(20 * time.Second)
		s.send(f[5:])
		s.expect("00000001")
		s.hears(c12, "getver")
		s.send(response(c12, "did getver"))
		require.Equal(t, asked{"did getver", nil, 20 * time.Second}, <-got)
		s.send(f[:5])
		s.began = time.Now()
		_ = asks(s.Gateway, c12, "again", time.Minute)
		s.endsAfter(completeTime)
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
				w.hears(c12, "getver")
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

package gateway

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A device that forwards a line of a serial port each second takes every command on one socket. No
// outcome takes a line for a certain answer, and all lines are stored.
func TestADeviceWithSerialDataTakesCommandsAndLosesNeitherSocketNorData(t *testing.T) {
	t.Parallel()
	for _, kind := range []teltonika.MessageType{teltonika.TypeResponse, 0x0B} {
		t.Run(fmt.Sprintf("%02X", byte(kind)), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *timed) {
				s.begins()
				stored := int64(0)
				forwards := func() {
					s.send(encoded(c12, kind, fmt.Sprintf("LLS: %04d\r\n", stored)))
					stored++
					<-time.After(time.Second)
				}
				forwards()
				for i := range 20 {
					command := fmt.Sprint("command ", i)
					out := asks(s.Gateway, c12, command, time.Minute)
					s.hears(c12, command)
					forwards()
					s.send(response(c12, "did "+command))
					for range 3 {
						forwards()
					}
					got := <-out
					if kind != teltonika.TypeResponse {
						require.Equal(t, "did "+command, got.text)
						require.NoError(t, got.err)
						continue
					}
					stored++ // the answer may be a line
					require.ErrorIs(t, got.err, ErrAmbiguous)
					lines := strings.Split(got.text, "\n")
					require.Contains(t, lines, "did "+command)
					require.GreaterOrEqual(t, len(lines), 4, "and of each second a line")
				}
				s.reports() // nobody closed the socket
				require.Equal(t, 1, s.Connections())
				<-time.After(time.Second)
				require.Equal(t, MessageCounts{Stored: stored, LostBy: map[string]int64{}}, s.Messages())
			})
		})
	}
}

// Data that a device sends before any command is its own, and this is remembered on its next
// socket.
func TestADeviceWithSerialDataIsKnownOnItsNextSocket(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, func(t *testing.T, g *bubble) {
		s := g.join().begins()
		s.send(response(c12, "LLS: 0001"))
		s = g.join().begins()
		s.ambiguous(asks(s.Gateway, c12, "getver", time.Minute), c12, "getver", "did getver")
		s.obeys(c14, "in the other codec")
	})
}

// Each of several refusals may be an earlier command's.
func TestARefusalThatMayBeAnotherCommandsIsAmbiguous(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *timed) {
		s.begins()
		slow := asks(s.Gateway, c14, "slow", time.Second)
		s.hears(c14, "slow")
		require.ErrorIs(t, (<-slow).err, ErrUnanswered)
		next := asks(s.Gateway, c14, "next", time.Minute)
		s.hears(c14, "next")
		other, err := teltonika.ParseIMEI("352093081452251")
		require.NoError(t, err)
		nack := teltonika.AppendMessages(nil, c14, teltonika.Message{Type: teltonika.TypeNACK, IMEI: other})
		s.send(nack)
		got := <-next
		require.ErrorIs(t, got.err, ErrAmbiguous)
		require.Equal(t, "[not executed: the device says that it is 352093081452251]", got.text)
	})
}

// While Redis hangs, messages wait. Once it answers they are stored in order, each once if
// readers drop repeats of frame and record.
func TestMessagesWaitForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := setup(t, server)
	w := b.login(t, imei)
	w.reports()
	server.Stop()
	const n = 300
	for i := range n {
		w.send(response(c12, fmt.Sprint("line ", i)))
	}
	awaitCount(t, n, b.frames("12", "command"))
	require.Positive(t, b.Messages().Waiting)
	server.Cont()
	await(t, func() bool { return b.Messages().Waiting == 0 })
	require.Equal(t, MessageCounts{Stored: n, LostBy: map[string]int64{}}, b.Messages())
	next, seen := 0, map[string]bool{}
	for _, e := range b.entries(t, b.stream+MessagesSuffix) {
		if id := fmt.Sprint(e["frame"], e["record"]); !seen[id] {
			seen[id] = true
			require.Equal(t, fmt.Sprint("line ", next), e["text"])
			next++
		}
	}
	require.Equal(t, n, next)
}

// One device's broken frame must not stop the messages of all.
func TestADeadLetterThatRedisRefusesStopsNoMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Start(t))
	require.NoError(t, b.rdb.Set(t.Context(), b.stream+DeadSuffix, "of another type", 0).Err())
	w := b.login(t, imei)
	broken := []byte{byte(c12), 1, byte(teltonika.TypeResponse), 0xff, 0xff, 0xff, 0xff, 1}
	w.send(append(teltonika.AppendEnvelope(nil, broken), response(c12, "LLS: 1")...))
	await(t, func() bool { return b.Messages().Stored == 1 })
	require.Equal(t, MessageCounts{Stored: 1, Lost: 1, LostBy: map[string]int64{imei: 1}}, b.Messages())
}

// away returns the messages of a gateway without Redis.
func away(t *testing.T) *messages {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	g := New(Config{Register: (&registrar{}).register, Client: client, Logger: slog.New(slog.DiscardHandler)})
	g.messages.start(time.Millisecond)
	t.Cleanup(g.messages.close)
	return g.messages
}

func TestWhatDoesNotFitWhileRedisIsAwayIsCountedByDevice(t *testing.T) {
	t.Parallel()
	q := away(t)
	text := make([]byte, 1000)
	fits := deviceWaits / (messageCost + len(text))
	for range fits + 5 {
		q.add(&message{origin: origin{imei: imei}, text: text})
	}
	q.add(&message{origin: origin{imei: "352093081452251"}, text: text})
	require.Equal(t, MessageCounts{Waiting: fits + 1, Lost: 5, LostBy: map[string]int64{imei: 5}}, q.read())
	requireCount(t, 5, q.metrics.lost)
	q.close()
	require.Equal(t, MessageCounts{
		Lost: int64(fits + 6), LostBy: map[string]int64{imei: int64(fits + 5), "352093081452251": 1},
	}, q.read())
	q.add(&message{origin: origin{imei: imei}})
	require.EqualValues(t, fits+7, q.read().Lost)
}

func TestWhatAllDevicesMayHaveWaitingIsBounded(t *testing.T) {
	t.Parallel()
	q := away(t)
	text := make([]byte, 32<<10)
	for i := range 2 * allWait / len(text) {
		q.add(&message{origin: origin{imei: fmt.Sprintf("%015d", i)}, text: text})
	}
	require.LessOrEqual(t, q.read().Waiting*len(text), allWait)
	require.Len(t, q.read().LostBy, losersMost)
	require.Greater(t, q.read().Lost, int64(losersMost))
}

func TestWhatIsPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "LLS: 22\r\n": true, "a\tb": true, "Größe": true, "\x00": false, "\x1b[2J": false, "\x85": false,
		"\xff": false, "\u202e": false, "\u0085": false, "\ufffd": true,
	} {
		require.Equal(t, want, isText([]byte(text)), "%q", text)
	}
}

// Data that has arrived when a socket ends is stored, since it is not sent again, whether it is
// in the gateway's buffer, TLS' or the kernel's.
func TestMessagesThatHaveArrivedWhenTheirSocketEndsAreStored(t *testing.T) {
	t.Parallel()
	wraps := transports(t)
	for name, c := range map[string]struct {
		ends   func(t *testing.T, b *bench, over string)
		stored int64
	}{
		"the device has a newer socket": {func(t *testing.T, b *bench, over string) { b.gathers(t, over) }, 3},
		"the replica stops":             {func(_ *testing.T, b *bench, _ string) { b.stop() }, 3},
		"the socket is in the way": {func(_ *testing.T, b *bench, _ string) {
			b.newestSocket(imei).end(endCrowded)
		}, 3},
		"Redis refuses the records": {func(t *testing.T, b *bench, _ string) {
			require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		}, 3},
		"the device may not be served": {func(_ *testing.T, b *bench, _ string) { b.expel(imei) }, 0},
	} {
		for over, listens := range wraps {
			t.Run(name+", "+over, func(t *testing.T) {
				t.Parallel()
				b := setupOn(t, redistest.Start(t), listens)
				w, _ := b.gathers(t, over)
				first := b.registrar.all()[0]
				require.NoError(t, b.rdb.Do(t.Context(), "CLIENT", "PAUSE", "60000", "WRITE").Err())
				w.send(append(frame(1), response(c12, "LLS: 1")...))
				await(t, func() bool { n, _ := first.counts(); return n == 1 })
				w.send(append(response(c12, "LLS: 2"), frame(1)...))
				w.send(response(c12, "LLS: 3"))
				c.ends(t, b, over)
				require.NoError(t, b.rdb.Do(t.Context(), "CLIENT", "UNPAUSE").Err())
				<-first.released
				require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
				await(t, func() bool { return b.Messages().Waiting == 0 })
				require.Equal(t, MessageCounts{Stored: c.stored, LostBy: map[string]int64{}}, b.Messages())
			})
		}
	}
}

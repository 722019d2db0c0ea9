package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestReaderFindsTheEndsOfValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wire string
		kind byte
		text string
	}{
		{"+OK\r\n", '+', "OK"},
		{"-ERR no\r\n", '-', "ERR no"},
		{":-12\r\n", ':', "-12"},
		{",1.5e3\r\n", ',', "1.5e3"},
		{"#t\r\n", '#', "t"},
		{"(123456789012345678901234567890\r\n", '(', "123456789012345678901234567890"},
		{"_\r\n", '_', "nil"},
		{"$-1\r\n", '$', "nil"},
		{"*-1\r\n", '*', "nil"},
		{"$0\r\n\r\n", '$', ""},
		{"$4\r\n\r\n+x\r\n", '$', "\r\n+x"},
		{"=7\r\ntxt:abc\r\n", '=', "txt:abc"},
		{"!5\r\nERR x\r\n", '!', "ERR x"},
		{"*0\r\n", '*', ""},
		{"*2\r\n*0\r\n$1\r\na\r\n", '*', "a"},
		{"*5\r\n$4\r\nDONE\r\n:1\r\n:0\r\n$0\r\n\r\n:0\r\n", '*', "DONE"},
		{"*2\r\n*2\r\n:1\r\n*1\r\n_\r\n%1\r\n+k\r\n~2\r\n#f\r\n,inf\r\n", '*', "1"},
		{"%0\r\n", '%', ""},
		{"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", '%', "a"},
		{"~1\r\n$1\r\nm\r\n", '~', "m"},
		{">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", '>', "subscribe"},
		{"|1\r\n+ttl\r\n:5\r\n*1\r\n+x\r\n", '*', "x"},
		{"|0\r\n:7\r\n", ':', "7"},
		{"*2\r\n|1\r\n+a\r\n%1\r\n+b\r\n+c\r\n+x\r\n+y\r\n", '*', "x"},
	} {
		wire := c.wire + c.wire // the state between two values counts as well
		for cut := range len(wire) + 1 {
			r := bufio.NewReader(io.MultiReader(strings.NewReader(wire[:cut]), strings.NewReader(wire[cut:])))
			var v value
			for range 2 {
				require.NoError(t, v.read(r), "%q", c.wire)
				require.Equal(t, c.wire, string(v.raw), "%q cut at %d", c.wire, cut)
				require.Equal(t, string(c.kind), string(v.kind), "%q", c.wire)
				require.Equal(t, c.text, v.word(0), "%q cut at %d", c.wire, cut)
			}
			require.ErrorIs(t, v.read(r), io.EOF)
		}
	}
	for _, wire := range []string{"\r\n", "hello\r\n", "+x\n", "*x\r\n", "$?\r\n", "$-2\r\n", "*1\r\n?\r\n"} {
		require.ErrorIs(t, new(value).read(bufio.NewReader(strings.NewReader(wire))), errNotRESP, "%q", wire)
	}
}

// patient is how long what must come is waited for.
const patient = 2 * time.Minute

func until(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patient, time.Millisecond)
}

func has(t *testing.T, c *redis.Client, key string) bool {
	return c.Exists(t.Context(), key).Val() == 1
}

// served matches what a server refuses while it cannot serve.
func served(r Request) bool { return r[0] != "HELLO" && r[0] != "CLIENT" && r[0] != "PING" }

// through opens a proxy to a server, and a client of it that speaks RESP2 or 3 and neither retries
// nor waits for long.
func through(t *testing.T, server *redistest.Server, protocol int) (*Proxy, *redis.Client) {
	l := New(t, server.Addr())
	c := redis.NewClient(&redis.Options{
		Addr: l.Addr(), Protocol: protocol, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: patient, ReadTimeout: patient, WriteTimeout: patient, PoolTimeout: patient, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = c.Close() })
	return l, c
}

// lined runs a test with both protocols.
func proxied(t *testing.T, f func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client)) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			l, c := through(t, server, protocol)
			f(t, server, l, c)
			require.Zero(t, l.NotUnderstood())
		})
	}
}

// is matches requests by their first words.
func is(first ...string) func(Request) bool {
	return func(r Request) bool {
		return len(r) >= len(first) && strings.Join(r[:len(first)], " ") == strings.Join(first, " ")
	}
}

// shortly is for a call of which no answer is expected.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func requireTimeout(t *testing.T, err error) {
	t.Helper()
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), err)
}

func TestProxyChangesNothing(t *testing.T) {
	proxied(t, func(t *testing.T, _ *redistest.Server, l *Proxy, c *redis.Client) {
		ctx := t.Context()
		big := strings.Repeat("x\r\n$", 1<<18)
		require.NoError(t, c.Set(ctx, "big", big, 0).Err())
		require.True(t, big == c.Get(ctx, "big").Val())

		s := l.Answers(is("INCR"))
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 10_000 {
				p.Incr(ctx, "n")
			}
			return nil
		})
		require.NoError(t, err)
		for i, cmd := range cmds {
			require.Equal(t, int64(i+1), cmd.(*redis.IntCmd).Val())
		}
		require.Len(t, s.Counts(), 10_000)

		cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, "h", "a", "1", "b", "2")
			p.HGetAll(ctx, "h")
			p.Get(ctx, "none")
			p.SAdd(ctx, "s", "m")
			p.SMembers(ctx, "s")
			return nil
		})
		require.ErrorIs(t, err, redis.Nil)
		require.Equal(t, map[string]string{"a": "1", "b": "2"}, cmds[1].(*redis.MapStringStringCmd).Val())
		require.Equal(t, []string{"m"}, cmds[4].(*redis.StringSliceCmd).Val())

		sub := c.Subscribe(ctx, "c1", "c2")
		defer sub.Close()
		for range 2 {
			_, err = sub.Receive(ctx)
			require.NoError(t, err)
		}
		require.NoError(t, sub.PSubscribe(ctx, "p*"))
		_, err = sub.Receive(ctx)
		require.NoError(t, err)
		for _, to := range []string{"c2", "p1", "c1"} {
			require.NoError(t, c.Publish(ctx, to, "hello").Err())
			m, err := sub.ReceiveMessage(ctx)
			require.NoError(t, err)
			require.Equal(t, to, m.Channel)
		}
		require.NoError(t, sub.Ping(ctx))
		_, err = sub.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, sub.Unsubscribe(ctx))
		for range 2 {
			_, err = sub.Receive(ctx)
			require.NoError(t, err)
		}
		require.NoError(t, sub.Ping(ctx))
		_, err = sub.Receive(ctx)
		require.NoError(t, err)
		require.ErrorContains(t, c.Do(ctx, "NONSENSE").Err(), "unknown command")
	})
}

func TestProxyGoesOnWithWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	l := New(t, redistest.Start(t).Addr())
	for i, wire := range []string{"PING\r\n", "*1\r\n$4\r\nPING\r\nPING\r\n", "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n"} {
		conn, err := net.Dial("tcp", l.Addr())
		require.NoError(t, err)
		_, err = io.WriteString(conn, wire)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		got, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("+PONG\r\n", strings.Count(wire, "PING"))+strings.Repeat("+OK\r\n", strings.Count(wire, "ON")), string(got))
		require.NoError(t, conn.Close())
		require.Equal(t, i+1, l.NotUnderstood())
	}
}

func TestHeldRequestArrivesThoughTheReplicaIsGone(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		caught, release := l.HoldNext(is("SET", "late"))
		require.NoError(t, c.Set(t.Context(), "other", "1", 0).Err())
		require.Error(t, c.Set(shortly(t), "late", "1", 0).Err())
		require.Equal(t, Request{"SET", "late", "1"}, <-caught)
		require.NoError(t, c.Set(t.Context(), "after", "1", 0).Err(), "on another connection")
		require.NoError(t, c.Close())
		direct := server.Client()
		require.False(t, has(t, direct, "late"))
		release()
		until(t, func() bool { return has(t, direct, "late") })
		release()
	})
}

func TestHeldRequestLetsGoWhatIsBeforeItOnly(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		caught, release := l.HoldNext(is("SET", "b"))
		result := make(chan error)
		go func() {
			_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for _, k := range []string{"a", "b", "c"} {
					p.Set(t.Context(), k, "1", 0)
				}
				return nil
			})
			result <- err
		}()
		<-caught
		direct := server.Client()
		until(t, func() bool { return has(t, direct, "a") })
		require.Zero(t, direct.Exists(t.Context(), "b", "c").Val())
		release()
		require.NoError(t, <-result)
	})
}

func TestReplyIsLostAndCounted(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		s := l.Answers(is("INCR"))
		r := l.LoseReply(is("INCR"), 2)
		for range 2 {
			err := c.Incr(t.Context(), "n").Err()
			require.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF), "%v", err)
		}
		require.Equal(t, int64(3), c.Incr(t.Context(), "n").Val())
		require.Equal(t, 2, r.Hits())
		require.Equal(t, map[string]int{"1": 1, "2": 1, "3": 1}, s.Counts())

		silent := l.LoseReplySilently(is("INCR"), 1)
		requireTimeout(t, c.Incr(shortly(t), "n").Err())
		require.Equal(t, 1, silent.Hits())
		until(t, func() bool { return s.Counts()["4"] == 1 })
		require.Zero(t, s.Unanswered())
	})
}

func TestRequestIsLost(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		s := l.Answers(is("INCR"))
		lost := l.LoseRequest(is("INCR"), 1)
		require.Error(t, c.Incr(t.Context(), "n").Err())
		silent := l.LoseRequestSilently(is("INCR"), 1)
		requireTimeout(t, c.Incr(shortly(t), "n").Err())
		require.Equal(t, int64(1), c.Incr(t.Context(), "n").Val())
		require.Equal(t, []int{1, 1}, []int{lost.Hits(), silent.Hits()})
		require.Equal(t, map[string]int{"1": 1}, s.Counts())
		require.Zero(t, s.Unanswered())
	})
}

func TestRequestsAreDelayed(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		r := l.DelayEach(is("GET"), 150*time.Millisecond)
		begun := time.Now()
		require.ErrorIs(t, c.Get(t.Context(), "x").Err(), redis.Nil)
		require.GreaterOrEqual(t, time.Since(begun), 150*time.Millisecond)
		require.Equal(t, 1, r.Hits())
		r.End()
		require.ErrorIs(t, c.Get(t.Context(), "x").Err(), redis.Nil)
		require.Equal(t, 1, r.Hits())
	})
}

func TestServerIsMadeToRefuse(t *testing.T) {
	proxied(t, func(t *testing.T, server *redistest.Server, l *Proxy, c *redis.Client) {
		ctx := t.Context()
		r := l.AnswerWith(is("SET", "b"), "MISCONF it cannot be written", -1)
		pipe := func(run func(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)) ([]redis.Cmder, error) {
			return run(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, "a", "1", 0)
				p.Set(ctx, "b", "1", 0)
				p.Get(ctx, "a")
				return nil
			})
		}
		cmds, err := pipe(c.Pipelined)
		require.ErrorContains(t, err, "MISCONF it cannot")
		require.NoError(t, cmds[0].Err())
		require.Equal(t, "1", cmds[2].(*redis.StringCmd).Val())
		require.NoError(t, c.Del(ctx, "a").Err())
		_, err = pipe(c.TxPipelined)
		require.ErrorContains(t, err, "EXECABORT")
		require.Zero(t, c.Exists(ctx, "a", "b").Val())
		require.Equal(t, 2, r.Hits())
		r.End()
		_, err = pipe(c.TxPipelined)
		require.NoError(t, err)

		all := l.AnswerWith(served, "LOADING Redis is loading the dataset in memory", -1)
		require.ErrorContains(t, c.Get(ctx, "a").Err(), "LOADING")
		fresh := redis.NewClient(c.Options())
		defer fresh.Close()
		require.ErrorContains(t, fresh.Get(ctx, "a").Err(), "LOADING")
		_, err = pipe(c.TxPipelined)
		require.Error(t, err)
		all.End()
		require.Equal(t, "1", fresh.Get(ctx, "a").Val())
	})
}

func TestAnswersAreCountedAfterTheReplicasDeath(t *testing.T) {
	proxied(t, func(t *testing.T, _ *redistest.Server, l *Proxy, c *redis.Client) {
		s := l.Answers(is("INCR"))
		first, goOn := l.HoldNext(is("INCR", "n"))
		second, goOnAgain := l.HoldNext(is("INCR", "m"))
		result := make(chan error)
		go func() {
			_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Incr(t.Context(), "n")
				p.IncrBy(t.Context(), "m", 6)
				p.Incr(t.Context(), "m")
				return nil
			})
			result <- err
		}()
		<-first
		l.Reset()
		require.Error(t, <-result)
		goOn()
		until(t, func() bool { return s.Counts()["1"] == 1 })
		<-second
		require.Zero(t, s.Unanswered(), "the second is not sent")
		goOnAgain()
		until(t, func() bool { return s.Counts()["7"] == 1 })
	})
}

func TestPushesAnswerNoRequest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := New(t, server.Addr())
	s := l.Answers(is("GET"))
	conn, err := net.Dial("tcp", l.Addr())
	require.NoError(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	until := func(line string) {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patient)))
		for got := ""; got != line+"\r\n"; {
			got, err = in.ReadString('\n')
			require.NoError(t, err)
		}
	}
	_, err = io.WriteString(conn, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
	require.NoError(t, err)
	until("_")
	require.NoError(t, server.Client().Set(t.Context(), "k", "1", 0).Err())
	until("invalidate")
	_, err = io.WriteString(conn, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
	require.NoError(t, err)
	until("1")
	require.Equal(t, map[string]int{"nil": 1, "1": 1}, s.Counts())
	require.Zero(t, l.NotUnderstood())
}

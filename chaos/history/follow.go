package history

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Followed are the settings of a redis-server that [Follow] attaches to without delay. Follow works
// without them.
func Followed() []string { return []string{"--repl-diskless-sync-delay", "0"} }

// Follower records the replication stream of a server: its history where there is no append-only
// file, or where it would not outlive the server.
type Follower struct {
	conn   net.Conn
	client *redis.Client
	in     *parser
	out    *bufio.Writer
	stop   context.CancelFunc
	begun  int64         // the server's offset at which the stream began
	offset atomic.Int64  // up to which it is written
	marks  chan mark     // times of the server
	done   chan struct{} // it has ended
	err    error
}

// mark says that whatever stands at or behind an offset was written no earlier than at a second of
// the server's.
type mark struct{ offset, second int64 }

// Follow attaches to a server as a replica, and writes to to what [Read] reads: first one
// [LifeCommand] event with what the server holds now (why says how this life of it came about),
// then everything that it writes. It returns when that first event is written. Nobody may write to
// the server until then; that keys expire does no harm.
//
// It goes on until ctx ends, Close is called, or the server is gone.
func Follow(ctx context.Context, addr, why string, to io.Writer) (*Follower, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &Follower{
		client: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}), out: bufio.NewWriter(to), stop: stop,
		marks: make(chan mark, 1), done: make(chan struct{}),
	}
	if err := f.begin(ctx, addr, why); err != nil {
		stop()
		f.release()
		return nil, fmt.Errorf("history: follow %s: %w", addr, err)
	}
	context.AfterFunc(ctx, func() { _ = f.conn.Close() })
	asked, acked := make(chan struct{}), make(chan struct{})
	go func() { defer close(asked); f.ask(ctx) }()
	go func() { defer close(acked); f.acknowledge(ctx) }()
	go func() {
		defer close(f.done)
		err := f.record()
		if ctx.Err() == nil && !gone(err) {
			f.err = fmt.Errorf("history: follow %s: %w", addr, err)
		}
		stop()
		<-asked
		<-acked
		f.release()
	}()
	return f, nil
}

// Done is closed when nothing will be written any more.
func (f *Follower) Done() <-chan struct{} { return f.done }

// Close ends the recording and returns when everything received is written. That the server has
// gone is no error.
func (f *Follower) Close() error {
	f.stop()
	<-f.done
	return f.err
}

// Caught waits until everything that the server has written up to now is recorded.
func (f *Follower) Caught(ctx context.Context) error {
	want, err := f.serverOffset(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for f.offset.Load() < want.offset {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.done:
			return fmt.Errorf("history: the stream ended at offset %d of %d", f.offset.Load(), want.offset)
		case <-tick.C:
		}
	}
	return nil
}

func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || isReset(err)
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

func (f *Follower) release() {
	if f.conn != nil {
		_ = f.conn.Close()
	}
	_ = f.client.Close()
}

func (f *Follower) begin(ctx context.Context, addr, why string) (err error) {
	var d net.Dialer
	if f.conn, err = d.DialContext(ctx, "tcp", addr); err != nil {
		return err
	}
	end := context.AfterFunc(ctx, func() { _ = f.conn.Close() })
	defer end()
	f.in = &parser{r: bufio.NewReaderSize(f.conn, 1<<20)}
	if err := f.attach(); err != nil {
		return err
	}
	now, err := f.serverOffset(ctx)
	if err != nil {
		return err
	}
	f.stamp(now.second)
	if err := dump(ctx, f.client, why, f.out); err != nil {
		return err
	}
	return f.out.Flush()
}

// attach goes through a replica's handshake and leaves the reader at the first command behind the
// snapshot.
func (f *Follower) attach() error {
	port := f.conn.LocalAddr().(*net.TCPAddr).Port // nobody listens there; the server only lists it
	for _, c := range []Command{{"REPLCONF", "listening-port", strconv.Itoa(port)}, {"REPLCONF", "capa", "eof", "capa", "psync2"}} {
		if err := f.send(c); err != nil {
			return err
		}
		if answer, err := f.answer(); err != nil || answer != "+OK" {
			return fmt.Errorf("%v: %q: %w", c, answer, err)
		}
	}
	if err := f.send(Command{"PSYNC", "?", "-1"}); err != nil {
		return err
	}
	answer, err := f.answer()
	if err != nil {
		return err
	}
	words := strings.Fields(answer)
	if len(words) != 3 || words[0] != "+FULLRESYNC" {
		return fmt.Errorf("PSYNC: %q", answer)
	}
	if f.begun, err = strconv.ParseInt(words[2], 10, 64); err != nil {
		return fmt.Errorf("PSYNC: %w", err)
	}
	if err := f.skipSnapshot(); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	f.in.offset = 0
	f.offset.Store(f.begun)
	// A server that sent the snapshot without a disk sends nothing more before it hears that it
	// arrived.
	return f.send(Command{"REPLCONF", "ACK", strconv.FormatInt(f.begun, 10)})
}

// answer reads a line. Empty ones keep the connection alive while the server makes a snapshot.
func (f *Follower) answer() (string, error) {
	for {
		line, err := f.in.line()
		if err != nil {
			return "", err
		}
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			return text, nil
		}
	}
}

// skipSnapshot reads "$<length>" and as many bytes, or "$EOF:<mark>" and everything up to the mark.
func (f *Follower) skipSnapshot() error {
	head, err := f.answer()
	if err != nil {
		return err
	}
	if end, ok := strings.CutPrefix(head, "$EOF:"); ok {
		return skipTo(f.in.r, end)
	}
	n, err := count([]byte(head), '$')
	if err != nil {
		return err
	}
	_, err = f.in.r.Discard(n)
	return err
}

func skipTo(r *bufio.Reader, end string) error {
	if end == "" {
		return errors.New("no mark")
	}
	for tail := make([]byte, 0, 2*len(end)); string(tail) != end; {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		if len(tail) == len(end) {
			copy(tail, tail[1:])
			tail = tail[:len(end)-1]
		}
		tail = append(tail, b)
	}
	return nil
}

func (f *Follower) send(c Command) error {
	w := bufio.NewWriter(f.conn)
	writeCommand(w, c)
	return w.Flush()
}

// record writes the stream, command by command.
func (f *Follower) record() error {
	var due mark
	for within := false; ; {
		c, err := f.in.command()
		if err != nil {
			return errors.Join(err, f.out.Flush())
		}
		before := f.offset.Load()
		select {
		case due = <-f.marks:
		default:
		}
		switch {
		case c[0] == "PING", c[0] == "REPLCONF", c[0] == "SELECT" && len(c) == 2 && c[1] == "0":
		default:
			if due.second > 0 && !within && before >= due.offset {
				f.stamp(due.second)
				due = mark{}
			}
			writeCommand(f.out, c)
			within = c[0] == "MULTI" || within && c[0] != "EXEC" // an event has one time
		}
		if f.in.r.Buffered() == 0 {
			if err := f.out.Flush(); err != nil {
				return err
			}
		}
		f.offset.Store(f.begun + f.in.offset)
		if c[0] == "REPLCONF" && len(c) > 1 && strings.EqualFold(c[1], "GETACK") {
			if err := f.ack(); err != nil {
				return errors.Join(err, f.out.Flush())
			}
		}
	}
}

func (f *Follower) stamp(second int64) { fmt.Fprintf(f.out, "#TS:%d\r\n", second) }

func (f *Follower) ack() error {
	return f.send(Command{"REPLCONF", "ACK", strconv.FormatInt(f.offset.Load(), 10)})
}

func (f *Follower) acknowledge(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = f.ack() // the reader finds out
		}
	}
}

// ask asks for the time, so that a history says it even where no beat does. What is written behind
// the offset that the server has at that time is not older, however late it arrives here.
func (f *Follower) ask(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for last := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := f.serverOffset(ctx)
		if err != nil || now.second == last {
			continue // a server in trouble is what this is about
		}
		last = now.second
		select {
		case f.marks <- now:
		case <-ctx.Done():
			return
		}
	}
}

// serverOffset asks for the server's time and offset, both as of one instant.
func (f *Follower) serverOffset(ctx context.Context) (mark, error) {
	var at *redis.TimeCmd
	var info *redis.StringCmd
	if _, err := f.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		at, info = p.Time(ctx), p.Info(ctx, "replication")
		return nil
	}); err != nil {
		return mark{}, err
	}
	_, rest, _ := strings.Cut(info.Val(), "master_repl_offset:")
	digits, _, _ := strings.Cut(rest, "\r\n")
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return mark{}, fmt.Errorf("history: INFO replication: %w", err)
	}
	return mark{offset, at.Val().Unix()}, nil
}

// Package replies bounds what a Redis client reads of one reply.
package replies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// ErrTooLarge is in the chain of a call's error. Nothing of the reply was read into memory, and the
// connection is closed.
var ErrTooLarge = errors.New("the reply of Redis is larger than this client takes")

// DialFunc is as net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Bounding returns a dialer of connections that end before a reply of more than most bytes is read;
// 0: of any size. So a key that somebody has filled cannot exhaust the memory of everybody who
// reads it.
func Bounding(dial DialFunc, most int64) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil || most <= 0 {
			return conn, err
		}
		b := &boundConn{Conn: conn, replies: replies{most: most}}
		if raw, ok := conn.(syscall.Conn); ok { // the pool looks through it whether the peer has gone
			return &boundSocket{b, raw}, nil
		}
		return b, nil
	}
}

// boundConn counts the bytes that the server announces.
type boundConn struct {
	net.Conn
	replies replies
	wrong   error // stays: go-redis reads again after the first error
}

func (c *boundConn) Read(p []byte) (n int, err error) {
	if c.wrong != nil {
		return 0, c.wrong
	}
	n, err = c.Conn.Read(p)
	if c.wrong = c.replies.take(p[:n]); c.wrong != nil {
		_ = c.Conn.Close()
		return 0, c.wrong
	}
	return n, err
}

type boundSocket struct {
	*boundConn
	syscall.Conn
}

// replies follows RESP2 and RESP3 as far as lengths go.
type replies struct {
	most int64

	line  []byte // incomplete
	skip  int64  // bytes left of a string, with its end of line
	left  int64  // elements left of the reply; 0: the next one begins
	bytes int64  // of the reply so far, also those that are only announced
}

// longestLine: simple strings, errors and numbers have no announced length.
const longestLine = 64 << 10

func (r *replies) take(p []byte) error {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, int64(len(p)))
			r.skip -= n
			p = p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end+1]
		}
		if len(r.line)+len(part) > longestLine {
			return fmt.Errorf("%w: a line of more than %d bytes", ErrTooLarge, longestLine)
		}
		p = p[len(part):]
		if end < 0 {
			r.line = append(r.line, part...)
			return nil
		}
		if len(r.line) > 0 {
			part = append(r.line, part...)
		}
		err := r.header(part)
		r.line = r.line[:0]
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *replies) header(line []byte) error {
	if r.left == 0 {
		r.left, r.bytes = 1, 0
	}
	r.left--
	r.bytes += int64(len(line))
	text := bytes.TrimRight(line[1:], "\r\n")
	var announced int64
	if strings.IndexByte("$=!*~>%|", line[0]) >= 0 { // an error of ParseInt costs more than a reply
		announced, _ = strconv.ParseInt(string(text), 10, 64)
		announced = min(max(0, announced), 1<<40)
	}
	switch line[0] {
	case '$', '=', '!':
		if string(text) != "-1" {
			r.skip = announced + 2
			r.bytes += announced
		}
	case '*', '~', '>':
		r.left += announced
		r.bytes += 16 * announced // what each costs the reader at least
	case '%':
		r.left += 2 * announced
		r.bytes += 32 * announced
	case '|':
		r.left += 2*announced + 1
		r.bytes += 32 * announced
	}
	if r.bytes > r.most {
		return fmt.Errorf("%w: %d bytes and more, of at most %d", ErrTooLarge, r.bytes, r.most)
	}
	return nil
}

//go:build unix

package gateway

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// peeker is pooled, since a RawConn's callback lives on the heap.
type peeker struct {
	look       func(fd uintptr)
	bytes, end bool
	into       [1]byte
}

var peekers = sync.Pool{New: func() any {
	p := new(peeker)
	p.look = func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), p.into[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		p.bytes = n > 0
		p.end = n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET)
	}
	return p
}}

// rawConn returns nil if conn has no handle for peek.
func rawConn(conn net.Conn) syscall.RawConn {
	if sc, ok := conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// peek reports, without waiting, whether a socket has unread bytes or has ended. Deadlines do not
// affect it.
func peek(raw syscall.RawConn) (bytes, end bool) {
	if raw == nil {
		return false, false
	}
	p := peekers.Get().(*peeker)
	defer peekers.Put(p)
	p.bytes, p.end = false, false
	_ = raw.Control(p.look) // fails on a closed socket, and so does the next read
	return p.bytes, p.end
}

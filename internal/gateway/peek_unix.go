//go:build unix

package gateway

import (
	"errors"
	"net"
	"syscall"
)

// peek looks, without waiting, at what has arrived at a socket and is not read yet: bytes, or its end.
func peek(conn net.Conn) (bytes, end bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false, true
	}
	var b [1]byte
	_ = raw.Read(func(fd uintptr) bool { // fails on a closed socket, which the next read says too
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		bytes = n > 0
		end = n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET)
		return true
	})
	return bytes, end
}

//go:build !unix

package gateway

import (
	"net"
	"syscall"
)

func rawConn(net.Conn) syscall.RawConn { return nil }

// peek cannot look without reading on this system. It reports that nothing has arrived.
func peek(syscall.RawConn) (bytes, end bool) { return false, false }
